"""Training: from one cell of an experiment to run directories."""
