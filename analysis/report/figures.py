"""The figures of an experiment: their layouts, the files that they read, and their drawing."""

from pathlib import Path

from PIL import Image

from fedflat.analysis.figures.base import STYLE, TEXT_WIDTH, FigureLayout
from fedflat.analysis.figures.draw import caption, draw, load_figure, save, shows_main_setting, suits_data
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.layout import subfigures
from fedflat.analysis.layouts.protocol import at_scale, with_requested_value, with_trained_headings
from fedflat.analysis.report.checked_layouts import CheckedLayouts, LayoutFile
from fedflat.analysis.report.page import PageFigure, figure_markdown
from fedflat.bench.data.sources import parse_source
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError


class Figures(CheckedLayouts[FigureLayout]):
    """The figures of an experiment."""

    folder = "figures"

    def outputs(self, name: str) -> list[Path]:
        """The files of a figure: two images, and the caption."""
        return self.requested.report_paths.figure(name)

    def in_page_order(self) -> list[str]:
        """The figures that are shown: numbered ones first, as in papers, then the others by kind."""
        return sorted(self.shown(), key=lambda name: -1 if name[:1].isdigit() else self.layout(name).page_order)

    def subfigures(self) -> dict[str, list[str]]:
        """Figures that consist of several, such as 4a and 4b, by their number."""
        return subfigures(self.names())

    def render(self, name: str) -> list[Path]:
        """Draw a figure as PNG and PDF, and write Markdown with its caption; return the files."""
        layout, requested = self.rendered_layout(name), self.requested
        if not any(file.is_file() for file in self._tidy_files(layout)):
            requested.check_runs(f"{requested.target}_figure_{name}")
        figure = draw(layout, requested.tidy)
        text = figure_markdown(PageFigure(name, layout.title, caption(layout, requested.tidy)))
        *_, file = self.outputs(name)
        images = save(figure, file.with_suffix(""))
        write_text(file, text)
        return [*images, file]

    def on_page(self, name: str) -> PageFigure:
        """A figure for the page. An outdated tidy file is reported in its place, and does not stop the page."""
        layout, report = self.layout(name), self.requested.report_paths
        files = tuple(file.relative_to(report.folder) for file in report.figure(name) if file.is_file())
        share = _share_of_text_width(report.figure(name)[0])
        try:
            return PageFigure(name, layout.title, caption(layout, self.requested.tidy), files, share)
        except UserError as error:
            return PageFigure(name, layout.title, Caption(layout.title, f"Not shown: {error}"))

    def _adapted(self, source: LayoutFile) -> FigureLayout:
        experiment = self.requested.experiment
        layout = load_figure(source.experiment, source.name, experiment, source.part)
        return with_trained_headings(with_requested_value(at_scale(layout, experiment), experiment), experiment)

    def _shows_one_setting(self, source: LayoutFile) -> bool:
        return shows_main_setting(source.experiment, source.name)

    def _suits(self, source: LayoutFile, part: str) -> bool:
        data = parse_source(self.requested.experiment.resolved_parts[part].dataset)
        return suits_data(source.experiment, source.name, data)

    def _check(self, layout: FigureLayout) -> None:
        self._check_analysis(layout.needed_file, layout.file, layout)
        layout.check(self.requested.experiment, self.requested.analyses.get(layout.file))

    def _tidy_files(self, layout: FigureLayout) -> list[Path]:
        return layout.inputs(self.requested.experiment, self.requested.paths)

    def _is_shown(self, layout: FigureLayout) -> bool:
        return layout.is_shown(self.requested.experiment)


def _share_of_text_width(picture: Path) -> float:
    """How wide a drawn figure is, relative to a page's text; 1 at most, and for a picture that cannot be read."""
    try:
        with Image.open(picture) as image:
            return min(1.0, image.width / float(STYLE["savefig.dpi"]) / TEXT_WIDTH)
    except OSError:
        return 1.0
