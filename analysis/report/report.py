"""An experiment's report, as the command and Snakemake ask for it: tables, figures, one page, a summary."""

import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis import figures
from analysis.analyses import load_analyses
from analysis.analyses.base import Analysis
from analysis.analyses.training.convergence import Convergence
from analysis.figures.base import FigureLayout
from analysis.layouts.layout import Folder, Layout, are_inherited, layout_file, layout_files, layout_names, subfigures
from analysis.layouts.protocol import at_scale, with_requested_value
from analysis.layouts.tidy import Tidy
from analysis.layouts.titles import method_titles
from analysis.measures.convergence import FinalValue, diverged_seeds, final_values
from analysis.report.page import PageFigure, figure_markdown, page, table_page
from analysis.tables import table as tables
from analysis.tables.formats import FORMATS
from analysis.tables.layout import Column, TableLayout, load_table
from analysis.tables.quantities import quantity
from analysis.tables.reproduction import with_published
from bench.experiments.address import CellAddress
from bench.experiments.experiment import Experiment, load_experiment
from bench.experiments.files import experiment_file, experiment_files, experiment_names
from bench.experiments.overrides import CONFIG_KEYS, check_methods
from bench.experiments.resolving import experiment_data
from bench.experiments.results import RUN_FILES, ResultPaths
from bench.files.atomic import write_text
from bench.input.errors import UserError, unknown


@dataclass(frozen=True)
class Report:
    """Tables and figures of an experiment, from the tidy files under `results`.

    `source` is the experiment's name, or its YAML file; layouts lie beside that file. `changes` are the values of the
    experiment that its runs changed.
    """

    source: str
    results: Path
    changes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment, with its changed values. Chosen methods must be its own, or those of a named experiment."""
        experiment = load_experiment(self.source, self.changes)
        if experiment.chosen is not None:
            check_methods(experiment.chosen, dict.fromkeys([self.source, *experiment_names()]))
        return experiment

    @cached_property
    def analyses(self) -> dict[str, Analysis]:
        """Every analysis by name, with the experiment's options, as they fit its scale."""
        return {name: at_scale(asked, self.experiment) for name, asked in load_analyses(self.source).items()}

    @property
    def analysis_names(self) -> list[str]:
        """Their names; the experiment itself is not read for that."""
        return list(load_analyses(self.source))

    @property
    def target(self) -> str:
        """What its targets of Snakemake begin with: the experiment's name, whatever the scale."""
        if self.source in experiment_names():
            return self.source
        return str(experiment_data(self.source)["name"])

    @property
    def is_paper(self) -> bool:
        """Whether it is one of the papers': with published numbers beside it."""
        return experiment_file(self.source).with_name("published").is_dir()

    @property
    def _chosen(self) -> str:
        return ", ".join(self.experiment.chosen or ())

    @property
    def _paper(self) -> str:
        """The paper whose numbers stand beside: its own, or that of an experiment which it extends."""
        folders = [file.parent for file in experiment_files(self.source)]
        return next((folder.name for folder in folders if (folder / "published").is_dir()), self.target)

    @property
    def paths(self) -> ResultPaths:
        """The paths of the results."""
        return ResultPaths(self.results)

    @property
    def tidy(self) -> Tidy:
        """Its tidy files."""
        return Tidy(self.results, self.experiment, self.analyses)

    @property
    def folder(self) -> Path:
        """The report's folder; a report of another value of a run than the experiment's own has a separate folder."""
        return self.paths.report(self.experiment.name, self.changes.get("report"))

    def table_names(self) -> list[str]:
        """All tables, sorted; of those that an extended experiment has, the ones that fit."""
        return self._fitting("tables")

    def figure_names(self) -> list[str]:
        """All figures, sorted; of those that an extended experiment has, the ones that fit."""
        return self._fitting("figures")

    def subfigures(self) -> dict[str, list[str]]:
        """Figures that have several parts, such as 4a and 4b, by their number."""
        return subfigures(self.figure_names())

    def tables_shown(self) -> list[str]:
        """All tables but those that show none of the methods that were chosen."""
        names = self.table_names()
        return names if self.experiment.chosen is None else [n for n in names if self.table_layout(n).methods]

    def figures_shown(self) -> list[str]:
        """All figures but those that show none of the methods that were chosen."""
        names, experiment = self.figure_names(), self.experiment
        return names if experiment.chosen is None else [n for n in names if self.figure_layout(n).cells(experiment)]

    def table_inputs(self, name: str) -> list[Path]:
        """The files that a table is made from: its layouts, and tidy files that may not exist yet."""
        inputs = tables.inputs(self.table_layout(name), self.experiment, self.paths)
        return [*layout_files(self.source, "tables", name), *inputs]

    def figure_inputs(self, name: str) -> list[Path]:
        """The files that a figure is made from: its layouts, and tidy files that may not exist yet."""
        inputs = self.figure_layout(name).inputs(self.experiment, self.paths)
        return [*layout_files(self.source, "figures", name), *inputs]

    def compared(self, path: str, analysis: str) -> list[str]:
        """The paths of the cells that an analysis of a cell compares it with."""
        cell = CellAddress.of(path)
        return [self.experiment.compared_cell(cell, x).path for x in self.analyses[analysis].compared_labels()]

    def analysed(self, analysis: str) -> list[str]:
        """The paths of all cells of which an analysis can be asked; a `UserError` if it cannot be asked at all."""
        if analysis not in self.analyses:
            raise unknown(f"analysis of experiment {self.experiment.name}", analysis, self.analyses)
        asked = self.analyses[analysis]
        parts, reasons = set(), []
        for label, part in self.experiment.resolved_parts.items():
            try:
                asked.check(part.evaluation)
                parts.add(label)
            except UserError as error:
                reasons.append(error)
        if not parts:
            raise reasons[0]
        cells = [path.split("/") for path in self.experiment.paths()]
        return ["/".join(cell) for cell in cells if cell[0] in parts and asked.applies_to(cell[-1], cell[1])]

    def render_table(self, name: str) -> list[Path]:
        """Write a table as Markdown, LaTeX, CSV and HTML; return the files."""
        layout = self.table_layout(name)
        if not layout.methods:
            raise UserError(f"table {name} of {self.experiment.name} shows none of the methods {self._chosen}")
        if layout.published is None or layout.cells(self.experiment):  # else published numbers stand alone
            self._check_runs(f"{self.target}_table_{name}")
        table = self._filled(name, layout)
        formats = {**FORMATS, "html": table_page}
        files = {self.folder / "tables" / f"{name}.{extension}": render(table) for extension, render in formats.items()}
        for file, text in files.items():
            write_text(file, text)
        return list(files)

    def render_figure(self, name: str) -> list[Path]:
        """Draw a figure as PNG and PDF, and show it with its caption as Markdown; return the files."""
        layout = self.figure_layout(name)
        if not layout.cells(self.experiment):
            raise UserError(f"figure {name} of {self.experiment.name} shows none of the methods {self._chosen}")
        if not any(file.is_file() for file in layout.inputs(self.experiment, self.paths)):
            self._check_runs(f"{self.target}_figure_{name}")
        figure = figures.draw(layout, self.tidy)
        told = figure_markdown(PageFigure(name, layout.title, figures.caption(layout, self.tidy)))
        file = self.folder / "figures" / f"{name}.md"
        written = figures.save(figure, file.with_suffix(""))
        write_text(file, told)
        return [*written, file]

    def render_page(self) -> Path:
        """Write the page that gathers all tables and figures; a figure that has not been drawn says so."""
        self._check_runs(self.target)
        filled = [self._filled(name, self.table_layout(name)) for name in self.tables_shown()]
        figure_parts = []
        for name in self.figures_shown():
            layout = self.figure_layout(name)
            stem = self.folder / "figures" / name
            files = tuple(kind for kind in ("png", "pdf", "md") if stem.with_name(f"{name}.{kind}").is_file())
            try:
                figure_parts.append(PageFigure(name, layout.title, figures.caption(layout, self.tidy), files))
            except UserError as error:  # an outdated file: the others are shown all the same
                figure_parts.append(PageFigure(name, layout.title, f"Not shown: {error}"))
        path = self.folder / "index.html"
        write_text(path, page(self.experiment, _headline(self.tidy), filled, figure_parts))
        return path

    def summary(self) -> str:
        """A few lines: how many runs, which method leads, where the report lies."""
        self._check_runs(self.target)
        return "\n".join(
            [
                *_headline(self.tidy),
                f"report: {self.folder / 'index.html'}",
                f"tables: {self.folder / 'tables'}, figures: {self.folder / 'figures'}",
            ]
        )

    def left_out(self) -> list[str]:
        """A line for each table and figure of the extended experiment that does not fit this one."""
        return [
            f"{self.experiment.name}: {folder.removesuffix('s')} {name} of the extended experiment is left out ({why})"
            for folder, unfit in self._unfit.items()
            for name, why in unfit.items()
        ]

    def _fitting(self, folder: Folder) -> list[str]:
        """An experiment's own layouts must fit. One taken over may name methods or settings that it does not have."""
        return [name for name in layout_names(self.source, folder) if name not in self._unfit[folder]]

    @cached_property
    def _unfit(self) -> dict[Folder, dict[str, str]]:
        """Layouts taken over that do not fit, and why."""
        loads: dict[Folder, Callable[[str], Layout]] = {"tables": self.table_layout, "figures": self.figure_layout}
        unfit: dict[Folder, dict[str, str]] = {folder: {} for folder in loads}
        for folder, load in loads.items():
            for name in layout_names(self.source, folder) if are_inherited(self.source, folder) else []:
                try:
                    load(name)
                except UserError as error:
                    unfit[folder][name] = str(error)
        return unfit

    def snakemake(self, target: str) -> str:
        """The command that makes a target of the Snakefile, whose defaults are left out."""
        short = {changed: key for key, changed in CONFIG_KEYS.items()}
        config = [f"{short[key]}={value}" for key, value in self.changes.items() if key in short]
        if self.results != Path("results"):
            config.insert(0, f"results={self.results}")
        if self.source not in experiment_names():
            config.insert(0, f"experiments=[{self.source}]")
        command = shlex.join(["snakemake", "--cores", "2", target, *(["--config", *config] if config else [])])
        others = [key for key in self.changes if key not in short]
        return command + (f" (with {', '.join(others)} changed in the experiment's file)" if others else "")

    def table_layout(self, name: str) -> TableLayout:
        """A table's layout; a `UserError` if it does not fit the experiment."""
        layout = load_table(self.source, name).adapted_to(self.experiment)
        with _naming(layout_file(self.source, "tables", name)):
            for column in layout.supported:
                self._check_needs(quantity(column.metric).file, column.file, layout)
                self._check_target(column)
            layout.cells(self.experiment)
        return layout

    def _filled(self, name: str, layout: TableLayout) -> tables.Table:
        """The table, beside the published one if it has one."""
        table = tables.fill(name, layout, self.tidy)
        return table if layout.published is None else with_published(table, self.experiment, self._paper)

    def figure_layout(self, name: str) -> FigureLayout:
        """A figure's layout; a `UserError` if it does not fit the experiment."""
        layout = with_requested_value(
            at_scale(figures.load_figure(self.source, name), self.experiment), self.experiment
        )
        with _naming(layout_file(self.source, "figures", name)):
            self._check_needs(layout.asks, layout.file, layout)
            layout.cells(self.experiment)
        return layout

    def _check_target(self, column: Column) -> None:
        """A `UserError` if a column asks for a target that the experiment's analyses do not have."""
        convergence = self.analyses.get(column.file)
        if column.target is not None and isinstance(convergence, Convergence):
            convergence.check_target(column.target, smoothed=column.smoothed)

    def _check_needs(self, kind: str, name: str, layout: Layout) -> None:
        """A `UserError` if the experiment has no such analysis of that kind, or lacks what it compares with, or runs do
        not keep what it needs."""
        if kind in RUN_FILES and name == kind:
            return
        of_kind = [other for other, analysis in self.analyses.items() if analysis.name == kind]
        if name not in of_kind:
            raise unknown(f"analysis of kind {kind}", name, of_kind)
        for part in dict.fromkeys(place.dataset for place in layout.settings(self.experiment)):
            self.analyses[name].check(self.experiment.resolved_parts[part].evaluation)
        for label, cell in itertools.product(self.analyses[name].compared_labels(), layout.cells(self.experiment)):
            self.experiment.compared_cell(cell, label)

    def _check_runs(self, target: str) -> None:
        """A `UserError` if nothing has been trained; it names the command that makes the target."""
        if not self.experiment.paths():
            raise UserError(f"experiment {self.experiment.name} has none of the methods {self._chosen}")
        if not self.tidy.has_runs():
            raise UserError(
                f"no run of experiment {self.experiment.name} under '{self.results}'; "
                f"make them with: {self.snakemake(target)}"
            )


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """A layout that does not fit its experiment is told with its file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"'{file}': {error}") from None


def _headline(tidy: Tidy) -> list[str]:
    """Counts of runs, and the leading method with the runner-up."""
    experiment = tidy.experiment
    cells, settings = experiment.addresses, experiment.settings
    metrics = tidy.gather("metrics", cells)
    runs = diverged_seeds(metrics)
    planned: Counter[str] = Counter()
    for cell in cells:
        planned[cell.method] += len(experiment.resolved_parts[cell.setting.dataset].grid.seeds)
    everywhere = max(planned.values())
    finished, diverged = runs["seeds"].sum(), runs["diverged"].sum()
    lines = [f"{experiment.name}: {finished} of {planned.total()} runs, {diverged} of them diverged"]

    final = FinalValue()
    values = final_values(metrics, "test_accuracy", final, "higher")
    complete = [
        method for method, rows in values.groupby("method") if len(rows) == everywhere and rows["value"].notna().all()
    ]
    means = values[values["method"].isin(complete)].groupby("method")["value"].mean().sort_values(ascending=False)
    names = method_titles(experiment)
    ranked = [f"{names[str(method)]} with {mean:.2f} %" for method, mean in means.items()]
    of = "" if len(ranked) == len(experiment.methods) else f", of the {len(ranked)} methods that finished all of them"
    if len(ranked) > 1 or len(experiment.methods) == len(ranked) == 1:
        runner_up = f", then {ranked[1]}" if len(ranked) > 1 else ""
        lines.append(
            f"highest mean test accuracy over {len(settings)} setting{'s' if len(settings) > 1 else ''}{of} "
            f"({final.description}): {ranked[0]}{runner_up}"
        )
    else:
        lines.append("fewer than two methods have finished all settings without divergence: none leads")
    return lines
