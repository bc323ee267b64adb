"""Numbers: flat parameter vectors, number formats, random streams."""
