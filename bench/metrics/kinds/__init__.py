"""One metric per file: the file is all that a metric needs."""
