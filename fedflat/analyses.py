"""What a file with an analysis imports, and may rely on."""

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.bench.metrics.quantity import Quantity

__all__ = ["AnalysedRun", "Analysis", "Quantity"]
