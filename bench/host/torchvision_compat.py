"""torchvision, also where its compiled operators cannot be loaded.

Built against CUDA, as PyPI has it, its library does not load beside a CPU build of torch. `import torchvision`
then fails with "operator torchvision::nms does not exist", although nothing here runs an operator of that library:
models, transforms and data sets are plain Python. The import only wants the two schemas below to be known.
"""

import functools
import importlib
import sys
from types import ModuleType

import torch

SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))

_stand_ins: list[torch.library.Library] = []
"""A library's schemas are forgotten as soon as its object is."""


@functools.cache
def import_torchvision() -> ModuleType:
    """The package torchvision with its models; it takes seconds, so only what needs it asks for it.

    The stand-ins are defined only after the import has failed for want of them: an intact torchvision defines its own.
    """
    try:
        return _import()
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _stand_ins.append(library)
    return _import()


def _import() -> ModuleType:
    package = importlib.import_module("torchvision")
    importlib.import_module("torchvision.models")
    return package
