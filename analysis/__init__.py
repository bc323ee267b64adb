"""Questions asked of finished runs, and the tables and figures that show the answers."""
