"""Kinds of figures, one per module: a new file with a class is a new kind."""
