"""The common parts of tables and figures: layouts, the tidy files that they read, captions."""
