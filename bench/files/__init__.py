"""Files: atomic writing, locks, CSV and JSON, columns, tensors, and slots of equal size."""
