"""FedFlat's training half: configurations, methods, data, models, engine, run records, command line."""

__version__ = "0.1.0"
