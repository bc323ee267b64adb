"""The training half of FedFlat: data, models, methods, engine, experiments and run directories."""

__version__ = "0.1.0"
