"""Generated pages about the papers: the index of their tables, and contradictions in their printed numbers."""
