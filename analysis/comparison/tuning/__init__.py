"""What tuning changes: the gain of each method, and how the ranking depends on the number of trials."""
