"""The mathematics of the analyses: functions of a model and its data, or of a run's metrics."""
