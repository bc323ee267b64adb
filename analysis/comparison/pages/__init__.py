"""Reports in Markdown and LaTeX from tables and figures: of comparisons, of tuning, and of the flatness study."""
