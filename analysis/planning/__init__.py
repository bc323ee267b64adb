"""What runs, analyses, tables and figures need, before anything starts."""
