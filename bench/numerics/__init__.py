"""Flat parameter vectors, number formats, random streams."""
