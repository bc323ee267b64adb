"""What tables and figures share: layouts, the tidy files they read, captions."""
