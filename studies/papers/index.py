"""The index of the papers' tables and figures as one page: the target of each, and its cost at paper scale.

`python -m studies.papers.index` rewrites paper_tables/README.md. The costs are hours of one core, computed from the
times of gradients in paper_tables/costs.csv; `--measure` measures these on the CPU with one thread, and stores them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.planning.gradient_times import GradientTimes
from fedflat.analysis.planning.plan import CellCosts, Cost, NamedCell, rounded, total
from fedflat.analysis.planning.run_cost import OVERHEAD
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.layout import TableLayout
from fedflat.bench.data.sources import parse_source
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_names
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.text_table import markdown
from fedflat.bench.host.torch_device import prepare_device
from studies.command import run
from studies.papers.printed_coverage import Coverage, coverage
from studies.papers.printed_numbers import dataset_title

_WITHOUT_TARGET = re.compile(r"^\| ((?:Table|Figure)s? [^|]+) \| ([^|]*\bno target\b[^|]*) \|", re.MULTILINE)
"""A row of a paper's README for a table or figure that has no target."""

HEADER = ["target", "what", "tables", "figures", "runs", "hours", "GiB"]


def page(times: GradientTimes) -> str:
    """The whole page, in Markdown."""
    requested = [RequestedExperiment(name, Path("results")) for name in experiment_names()]
    costs = CellCosts.of_experiments(requested, times, ignore_finished=True)
    experiments = [_Indexed(one, costs) for one in requested]
    papers = [experiment for experiment in experiments if experiment.requested.is_paper]
    lines = [
        *(_line(paper, f"[`{paper.requested.target}`](#{paper.requested.target})") for paper in papers),
        *_all_papers(papers),
        *(_line(other, f"`{other.requested.target}`") for other in experiments if other not in papers),
    ]
    sections = [line for paper in papers for line in _section(paper)]
    first, *others = [paper.coverage for paper in papers]
    counted = [f"{sum(others, first)}."]
    return "\n".join([*_introduction(times), *counted, "", *markdown(HEADER, lines), *sections]) + "\n"


@dataclass(frozen=True, eq=False)
class _Indexed:
    """An experiment with the files from which its tables and figures are computed."""

    requested: RequestedExperiment
    costs: CellCosts

    @cached_property
    def tables(self) -> dict[str, list[Path]]:
        tables = Tables(self.requested)
        return {name: tables.inputs(name) for name in tables.names()}

    @cached_property
    def figures(self) -> dict[str, list[Path]]:
        figures = Figures(self.requested)
        return {name: figures.inputs(name) for name in figures.names()}

    def cells(self, layouts: Mapping[str, list[Path]]) -> dict[NamedCell, Cost]:
        """The cells of all tables, or of all figures."""
        return self.costs.of(self.requested, (file for files in layouts.values() for file in files))

    @cached_property
    def coverage(self) -> Coverage:
        """How many of the paper's printed numbers have a run behind them."""
        tables = Tables(self.requested)
        layouts = [tables.layout(name) for name in tables.names()]
        return coverage(self.requested.paper, self.requested.experiment, layouts)

    @property
    def has_own_images(self) -> bool:
        """Whether a data set consists of user-defined images, whose number is not known."""
        sources = [parse_source(part.dataset) for part in self.requested.experiment.resolved_parts.values()]
        return any(source.own and not hasattr(source, "facts") for source in sources)


def _line(experiment: _Indexed, target: str) -> list[str]:
    """The table row of an experiment."""
    title = [target, experiment.requested.experiment.description]
    if experiment.has_own_images:
        return [*title, "", "", *_numbers([])]
    tables, figures = experiment.tables, experiment.figures
    cells = experiment.cells(tables) | experiment.cells(figures)
    return [*title, str(len(tables)), str(len(figures)), *_numbers(cells.values())]


def _all_papers(papers: Sequence[_Indexed]) -> Iterator[list[str]]:
    """The table rows of the targets all_tables and all_figures."""
    by_target = {
        "all_tables": [paper.cells(paper.tables) for paper in papers],
        "all_figures": [paper.cells(paper.figures) for paper in papers],
    }
    for target, cells in by_target.items():
        needed = {cell: cost for of_paper in cells for cell, cost in of_paper.items()}
        yield [f"`{target}`", "those of all papers", "", "", *_numbers(needed.values())]


def _introduction(times: GradientTimes) -> list[str]:
    """How to read the page, and how to generate it again."""
    return [
        "# Tables and figures of the papers, and their cost",
        "",
        "This page is generated by `python -m studies.papers.index`; do not edit it. `snakemake --cores 2 TARGET`",
        "computes a target. `fedflat plan TARGET` shows what is left to compute on your machine, at any scale.",
        "",
        "A run that several targets share is counted in each of them; the target of a whole paper, `all_tables` and",
        "`all_figures` count each run once. The scale `smoke` (`scale=smoke`) has as many runs, each of a few rounds",
        "on digits; with `seeds=[0]` there is one run per cell. The experiments listed below `all_figures` do not",
        "belong to a paper; those on a user's images have no numbers. A figure with several parts, such as 4a and 4b,",
        "also has a target for the whole figure (`fedgf_figure_4`). One Snakemake job trains all seeds of a cell.",
        "",
        "Hours are hours of one core, for training and evaluation at paper scale in fp32; the wall time is shorter if",
        "several runs are trained in parallel. They are computed from the times of single gradients, measured with one",
        f"thread on {times.machine} ({times.day}, [costs.csv](costs.csv)). A local step takes {OVERHEAD:g} times as",
        "long as its gradients. Analyses are not included. GiB is the disk space of the stored models and states.",
        "`python -m studies.papers.index --measure` measures the gradients anew, and writes both files again.",
        "",
        "A printed number has a run behind it if the experiment has runs for its entry in a table, trained or not yet.",
    ]


def _section(paper: _Indexed) -> list[str]:
    """The tables and figures of a paper; at the end those without a target, which the paper's README names."""
    requested = paper.requested
    tables, figures = Tables(requested), Figures(requested)
    rows = [_row(paper, "table", name, tables.layout(name), files) for name, files in paper.tables.items()]
    rows += [_row(paper, "figure", name, figures.layout(name), files) for name, files in paper.figures.items()]
    readme = (PAPER_TABLES / (source := requested.name_or_file) / "README.md").read_text(encoding="utf-8")
    header = ["target", "shows", "runs", "hours", "GiB", "data"]
    others = [[place, what, "", "", "", ""] for place, what in _WITHOUT_TARGET.findall(readme)]
    return [
        "",
        f"## {requested.target}",
        "",
        f"Settings, and choices that the paper leaves open: [{source}/README.md]({source}/README.md).",
        f"{paper.coverage}.",
        "",
        *markdown(header, [*rows, *others]),
    ]


def _row(paper: _Indexed, kind: str, name: str, layout: TableLayout | FigureLayout, files: list[Path]) -> list[str]:
    """The table row of a table or figure."""
    data = ", ".join(sorted({dataset_title(name) for name in _data(paper, files)}))
    target = f"`{paper.requested.target}_{kind}_{name}`"
    return [target, layout.title, *_numbers(paper.costs.of(paper.requested, files).values()), data]


def _data(paper: _Indexed, files: Iterable[Path]) -> Iterator[str]:
    """The names of the data sets that runs and analyses need."""
    found = ((paper.requested.paths.cell_of(file), file.stem) for file in files)
    read = dict.fromkeys((of[0], of[1].setting.dataset, stem) for of, stem in found if of is not None)
    for experiment, part, stem in read:
        requested = paper.costs.experiments[experiment]
        source = parse_source(requested.experiment.resolved_parts[part].dataset)
        yield source.name
        if stem in requested.analyses:
            yield from requested.analyses[stem].other_data(source)


def _numbers(costs: Iterable[Cost]) -> list[str]:
    """Runs, hours and GiB; dashes if there are no runs."""
    cost = total(costs)
    return [f"{cost.runs:,}", rounded(cost.hours), rounded(cost.bytes / 2**30)] if cost.runs else ["–"] * 3


def main(measure: Annotated[bool, typer.Option("--measure")] = False, out: Path = PAPER_TABLES) -> None:
    """Rewrite the page; `out`: the folder of README.md and costs.csv."""
    costs, readme = out / "costs.csv", out / "README.md"
    times = GradientTimes.measured(prepare_device("cpu", 1)) if measure else GradientTimes.read(costs)
    text = page(times)
    if measure:
        times.write(costs)
    write_text(readme, text)
    print(readme)


if __name__ == "__main__":
    run(lambda: typer.run(main))
