"""What a file with an analysis imports, and may rely on."""

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis

__all__ = ["AnalysedRun", "Analysis"]
