"""What a comparison writes: the verdict in words, tables, figures, and the report with all of them."""
