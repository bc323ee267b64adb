"""The import of torchvision, even if its compiled operators cannot be loaded.

The build on PyPI is compiled for CUDA and does not load together with a CPU build of torch. `import torchvision` then
fails with "operator torchvision::nms does not exist", although this project uses none of torchvision's operators:
models, transforms and data sets are plain Python. The import only needs the two schemas below.
"""

import functools
import importlib
import sys
from types import ModuleType

import torch

SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))

_libraries: list[torch.library.Library] = []
"""The libraries that define the schemas; a schema exists only as long as its library object."""


def prepare_imports(source: bytes) -> None:
    """Make `import torchvision` work in user-defined code, if it mentions torchvision."""
    if b"torchvision" in source:
        import_torchvision()


@functools.cache
def import_torchvision() -> ModuleType:
    """The package torchvision with its models. The import takes seconds, so call this only where it is needed.

    The schemas are defined only after an import has failed without them: a complete torchvision defines its own.
    """
    try:
        return _import()
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # partly imported
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _libraries.append(library)
    return _import()


def _import() -> ModuleType:
    package = importlib.import_module("torchvision")
    importlib.import_module("torchvision.models")
    return package
