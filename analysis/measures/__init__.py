"""Mathematics on a model and its data, or on a run's metrics."""
