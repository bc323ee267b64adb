"""Components that are no choice of an experiment: other components, or the engine, add them to a method."""
