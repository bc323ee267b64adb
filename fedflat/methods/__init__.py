"""A method that a command names, and its description."""
