"""The store of all runs: what is in it, what is removed, and results of an earlier layout that it takes over."""
