"""Files: written atomically, locked, and read as columns, tensors or slots."""
