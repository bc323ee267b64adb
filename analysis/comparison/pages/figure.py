"""A figure of a report."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from fedflat.analysis.layouts.captions import Caption


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its name, caption, and the frame that it draws."""

    name: str
    caption: Caption
    frame: pd.DataFrame
    figure: Figure
