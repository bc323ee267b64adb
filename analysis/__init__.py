"""Analyses of finished runs, the tables and figures of their results, and comparisons with published numbers."""
