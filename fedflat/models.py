"""What a file with a model imports, and may rely on: dropout whose masks repeat, and the models of FedFlat."""

from fedflat.bench.models import build_model, parse_model
from fedflat.bench.models.dropout import Dropout, StochasticDepth

__all__ = ["Dropout", "StochasticDepth", "build_model", "parse_model"]
