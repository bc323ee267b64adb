"""Analyses of finished runs, the tables and figures of their results, and comparisons with published numbers."""

import logging
import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """`fedflat.analysis(...)` had a function's name before this package had it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """As `fedflat.analysis_values`."""
        logging.getLogger("fedflat.code").warning("fedflat.analysis(...) is fedflat.analysis_values(...) now")
        return sys.modules["fedflat"].analysis_values(*arguments, **options)


if __name__ == "analysis":  # found in the current folder, that of the repository
    raise ImportError("this package is fedflat.analysis; write fedflat.analysis, or fedflat.analyses")
sys.modules[__name__].__class__ = _Package
