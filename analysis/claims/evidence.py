"""The numbers that decide claims: those that a paper prints, or those of the runs of one experiment, never both."""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Literal

from fedflat.analysis.claims.decide import Decision, Statement, decide
from fedflat.analysis.claims.schema import Claim, PaperClaims, claims_of
from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.layouts.protocol import at_scale, with_requested_value
from fedflat.analysis.layouts.quantities import quantity
from fedflat.analysis.layouts.tidy import FILES
from fedflat.analysis.measures.convergence import incomplete_data
from fedflat.analysis.published.numbers import PublishedNumber, find, published
from fedflat.analysis.published.transcript import departures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.tables.fairness import compared, other_evaluation
from fedflat.analysis.tables.layout import Column, load_table
from fedflat.analysis.tables.published_keys import of_entry
from fedflat.analysis.tables.values import values_of
from fedflat.analysis.verdicts.margins import rules
from fedflat.bench.data.sources import parse_source
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError

Kind = Literal["true scale", "smoke scale", "other settings", "other data"]
"""What runs are: those of the paper's experiment with its own settings, at smoke scale, or with values set otherwise;
or those of another experiment, which extends the paper's, on other data. An experiment that extends the paper's, and
whose parts are parts of the paper, counts as the paper's experiment with some of its cells. As for tables, values about
which the paper says nothing may differ. A data set of which images are missing is other data.
"""

_TABLES = re.compile(r"Tables? (\d+(?:(?:, | and | to )\d+)*)")

_Key = tuple[str, str, float | str | None, bool, CellAddress]


def _key(column: Column, cell: CellAddress) -> _Key:
    return (column.metric, column.file, column.target, column.smoothed, cell)


@dataclass(frozen=True)
class Printed:
    """The numbers that a paper prints, for the cells of its own experiment.

    Doubtful numbers and bounds count as they are printed. A run that failed is worse than all others. Where more
    multiples of another method's number are printed than numbers, they stand for them.
    """

    paper: str

    def finding(self, claim: Claim) -> Decision | None:
        """Whether the printed numbers confirm a claim; None if none is printed."""
        statement = claim.statement(list(self._experiment.settings))
        if statement is None:
            return None
        found = [
            {cell: of_tables for cell in statement.cells if (of_tables := numbers.get(_key(claim.column, cell)))}
            for numbers in self._numbers
        ]
        most = max(found, key=len)
        values = {cell: {0: self._value(claim, of_tables)} for cell, of_tables in most.items()}
        return decide(statement, values, exact=True) if values else None

    @staticmethod
    def _value(claim: Claim, of_tables: dict[str, PublishedNumber]) -> float:
        """The number of a table that the claim's place names, else of the first one."""
        named = [number for table, number in of_tables.items() if table in _tables(claim.place)]
        number = [*named, *of_tables.values()][0]
        return _worst(claim.column) if number.value is None else number.value

    @cached_property
    def _experiment(self) -> Experiment:
        """The paper's experiment, which is read once for all claims."""
        return load_experiment(self.paper)

    @cached_property
    def _numbers(self) -> tuple[dict[_Key, dict[str, PublishedNumber]], dict[_Key, dict[str, PublishedNumber]]]:
        """The printed numbers of each quantity and cell, by the table that prints them; and the same for multiples."""
        experiment, frame = self._experiment, published(self.paper)
        plain: dict[_Key, dict[str, PublishedNumber]] = {}
        multiples: dict[_Key, dict[str, PublishedNumber]] = {}
        for name in layout_names(self.paper, "tables"):
            layout = load_table(self.paper, name, experiment)
            columns = [one for one in layout.columns if not (one.mean_of or one.gain_over or one.reading)]
            of_table = frame[frame["table"] == layout.published]
            for block, column, method in product(layout.blocks, columns, layout.methods):
                if layout.published is None or not layout.has(block, method, column, experiment):
                    continue
                number = find(of_entry(of_table, layout, experiment, block, method, column), table=layout.published)
                number = number.deviation if number and "value" in column.published else number
                if number is not None and (number.value is not None or number.failed):
                    (setting,) = layout.settings_of(block, column, experiment)
                    numbers = plain if column.relative_to is None or column.divides_published else multiples
                    numbers.setdefault(_key(column, CellAddress(setting, method)), {})[layout.published] = number
        return plain, multiples


@dataclass(frozen=True)
class RunEvidence:
    """The runs of an experiment: of a paper's, or of one that extends it."""

    requested: RequestedExperiment

    @property
    def kind(self) -> Kind:
        """What these runs are."""
        if not (self.requested.is_paper or self._has_papers_parts) or self._images_are_missing:
            return "other data"
        if self.requested.experiment.scale != "paper":
            return "smoke scale"
        if self.requested.experiment.report is not None:
            return "other settings"
        unchanged = all(map(self._has_papers_settings, self.requested.experiment.addresses))
        return "true scale" if unchanged else "other settings"

    @cached_property
    def _papers(self) -> Experiment:
        """The paper's own experiment at the scale of these runs."""
        scale = self.requested.experiment.scale
        return load_experiment(self.requested.paper, {} if scale == "paper" else {"scale": scale})

    @cached_property
    def _has_papers_parts(self) -> bool:
        """Whether each part is one of the paper's experiment, with the same label and data set."""
        theirs, ours = (
            {label: parse_source(part.dataset).name for label, part in one.resolved_parts.items()}
            for one in (self._papers, self.requested.experiment)
        )
        return ours.items() <= theirs.items()

    @cached_property
    def _images_are_missing(self) -> bool:
        """Whether a run that decides a claim was trained on a published data set with missing images."""
        cells = dict.fromkeys(cell for claim in self.paper.claims for cell in self.cells(claim))
        return any(incomplete_data(self.requested.tidy.gather("metrics", [cell])) for cell in cells)

    def _has_papers_settings(self, cell: CellAddress) -> bool:
        """Whether the paper has the cell, and these runs depart from it only where its own experiment does, too."""
        if not self._papers.has_cell(cell):
            return False
        ours, theirs = self._runs(cell)
        departing, _ = compared(self.requested.paper, cell, ours, theirs)
        return {*departing} <= {*departures(self.requested.paper, cell, theirs)}

    def _runs(self, cell: CellAddress) -> tuple[RunConfig, RunConfig]:
        """The first run of a cell, and that of the paper's own experiment."""
        ours, theirs = (one.cell(cell.path).runs[0] for one in (self.requested.experiment, self._papers))
        return ours, theirs

    @cached_property
    def paper(self) -> PaperClaims:
        """The claims of the paper, with the reported value of a run at this scale."""
        claims, experiment = claims_of(self.requested.paper), self.requested.experiment
        return with_requested_value(at_scale(claims, experiment), experiment)

    def cells(self, claim: Claim) -> list[CellAddress]:
        """The cells of a claim that the experiment has, to which its analysis applies, and with enough evaluations."""
        experiment, file = self.requested.experiment, claim.column.file
        statement = self._statement(claim)
        cells = [] if statement is None else [cell for cell in statement.cells if experiment.has_cell(cell)]
        cells = [cell for cell in cells if self._is_evaluated_enough(claim, cell)]
        return cells if file in FILES else [cell for cell in cells if cell.path in self._analysed(file)]

    def _is_evaluated_enough(self, claim: Claim, cell: CellAddress) -> bool:
        """Whether a cell of the paper has the evaluations on which the claim's quantity depends, as for tables."""
        if not self._papers.has_cell(cell):
            return True
        return not other_evaluation(*self._runs(cell), claim.column, self.paper.final)

    def _analysed(self, analysis: str) -> set[str]:
        """The paths of the cells to which an analysis applies; none if the experiment does not allow it."""
        if analysis not in self._analysed_cells:
            try:
                self._analysed_cells[analysis] = set(self.requested.analysed(analysis))
            except UserError:
                self._analysed_cells[analysis] = set()
        return self._analysed_cells[analysis]

    @cached_property
    def _analysed_cells(self) -> dict[str, set[str]]:
        return {}

    def _statement(self, claim: Claim) -> Statement | None:
        """What must hold of the cells of this experiment; None if the claim is not about them."""
        experiment = self.requested.experiment
        stand_for = {label: part.stands_for for label, part in experiment.parts.items() if part.stands_for is not None}
        if not self.requested.is_paper and self._has_papers_parts:
            stand_for = {label: label for label in experiment.resolved_parts}
        return claim.statement(list(experiment.settings), stand_for)

    def inputs(self) -> list[Path]:
        """The tidy files that decide the claims, each once."""
        tidy = self.requested.tidy
        files = (tidy.path(claim.column.file, cell) for claim in self.paper.claims for cell in self.cells(claim))
        return list(dict.fromkeys(files))

    def finding(self, claim: Claim) -> Decision | None:
        """Whether the runs confirm a claim; None if no cell of it has values."""
        statement = self._statement(claim)
        if statement is None:
            return None
        values = {cell: of_seeds for cell in self.cells(claim) if (of_seeds := self._values(claim, cell))}
        return decide(statement, values, exact=rules().is_exact(claim.metric)) if values else None

    def _values(self, claim: Claim, cell: CellAddress) -> dict[int, float]:
        """A cell's values by seed; a run that diverged, or did not reach its target, is worse than all others."""
        column = claim.column.adapted_to(self.requested.experiment)
        key = (_key(column, cell), column.final)
        if key not in self._known:
            shown = quantity(column.metric)
            also = [shown.column or column.metric] if column.file == "metrics" else []
            frame = self.requested.tidy.gather(column.file, [cell], also=also)
            values = {} if frame.empty else values_of(column, {cell.method: self.paper.final}, frame)
            found, worst = values.get(cell.ids, []), _worst(column)
            self._known[key] = {
                one.seed: one.number if one.reached and math.isfinite(one.number) else worst for one in found
            }
        return self._known[key]

    @cached_property
    def _known(self) -> dict[object, dict[int, float]]:
        return {}


def _tables(place: str) -> list[str]:
    """The numbers of the tables that a place names: 'Table 1', 'Tables 2 and 10'."""
    return [number for listed in _TABLES.findall(place) for number in re.findall(r"\d+", listed)]


def _worst(column: Column) -> float:
    return {"higher": -math.inf, "lower": math.inf, "none": math.nan}[column.direction]
