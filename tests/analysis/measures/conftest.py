"""What tests of landscapes share."""

import pytest
from torch import Tensor

from fedflat.analysis.measures.directions import Family, filter_normalised_directions
from fedflat.bench.engine.objective import Objective
from fedflat.bench.numerics.streams import torch_stream


@pytest.fixture
def plane(cnn: Objective, trained: Tensor) -> Family:
    """Through a trained model, along two normalised directions."""
    return Family(trained, filter_normalised_directions(cnn.layout, trained, torch_stream(0, "test")))
