"""The training half of FedFlat: data, models, methods, engine, experiments and run directories."""

__version__ = "0.1.0"

if __name__ == "bench":  # found in the current folder, that of the repository
    raise ImportError("this package is fedflat.bench; write fedflat.bench, or fedflat.methods")
