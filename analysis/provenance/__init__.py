"""Where results come from: finished runs are verified, and results are exported with all that they were made of."""
