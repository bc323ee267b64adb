"""Verdicts on reproduced numbers: margins, equivalence tests, and the order of the methods."""
