"""Layouts of tables: what stands in columns, blocks and rows, as their YAML files say."""

import itertools

from pydantic import Field, field_validator, model_validator

from analysis.layouts.layout import Layout, Selection, read_layout
from analysis.layouts.protocol import at_scale, final_at_scale, with_requested_value
from analysis.measures.convergence import Better, FinalValue, reported
from analysis.published.numbers import KEYS, METRICS
from analysis.tables.quantities import QUANTITIES, quantity
from bench.experiments.address import CellAddress, Setting
from bench.experiments.experiment import Experiment
from bench.input.errors import UserError, unknown
from bench.input.frozen import Frozen

Keys = dict[str, str | int | tuple[str, ...] | None]
"""Keys of published numbers; of several values, any fits, and null is any at all."""

_ASKED = {*KEYS} - {"paper", "table"}


def _checked(keys: Keys, *others: str) -> Keys:
    for key in keys:
        if key not in _ASKED.union(others):
            raise unknown("key of published numbers", key, _ASKED.union(others))
    return keys


class Column(Frozen):
    """One column: a quantity in a (part of a) setting, or its mean over several."""

    header: str
    group: str = Field(default="", description="header over neighbouring columns of the same group")
    metric: str
    analysis: str | None = Field(
        default=None, description="which of the experiment's analyses of the metric's kind; null: the one of its name"
    )
    better: Better | None = Field(default=None, description="null: the quantity's own direction")
    final: FinalValue | None = Field(default=None, description="null: the table's")
    target: float | str | None = Field(
        default=None, description="for what it takes to reach a target: accuracy in percent, or whose final accuracy"
    )
    smoothed: bool = Field(default=False, description="whether a mean of evaluations has to reach the target")
    relative_to: str | None = Field(
        default=None, description="a method of the table: values are multiples of its own, seed by seed"
    )
    gain_over: dict[str, str] = Field(
        default={}, description="by method, another one: its values are taken off, seed by seed; no others are shown"
    )
    in_percent: bool = Field(default=False, description="whether gains are percentages of the other one's values")
    unit: float = Field(default=1, gt=0, allow_inf_nan=False, description="what values are divided by")
    decimals: int = Field(default=2, ge=0, le=12)
    select: Selection = Selection()
    mean_of: tuple[Selection, ...] = Field(
        default=(), description="what else is selected; values are means over all these, seed by seed"
    )
    published: Keys = Field(
        default={},
        description="keys of the published numbers that differ from the cell's own; null: any. value: std stands for "
        "the printed deviation",
    )
    unsupported: str | None = Field(
        default=None, description="why nothing can be reproduced: the published numbers alone are shown"
    )

    @field_validator("published")
    @classmethod
    def _asked_by_known_keys(cls, keys: Keys) -> Keys:
        if (part := keys.get("value", "std")) != "std":
            raise unknown("part of published numbers", str(part), ["std"])
        return _checked(keys, "value")

    @model_validator(mode="after")
    def _known(self) -> "Column":
        if self.unsupported is None or self.metric not in METRICS:
            quantity(self.metric)
        return self

    @model_validator(mode="after")
    def _target_where_needed(self) -> "Column":
        if self.unsupported is not None:
            return self
        needed = quantity(self.metric).file == "convergence"
        if needed != (self.target is not None) or (self.smoothed and not needed):
            needs = "a target" if needed else "no target, and nothing smoothed"
            raise UserError(f"column {self.name}: {self.metric} takes {needs}")
        return self

    @model_validator(mode="after")
    def _one_comparison(self) -> "Column":
        if self.relative_to is not None and self.gain_over:
            raise UserError(f"column {self.name}: relative_to and gain_over exclude each other")
        if self.in_percent and not self.gain_over:
            raise UserError(f"column {self.name}: in_percent goes with gain_over")
        return self

    @model_validator(mode="after")
    def _final_where_it_matters(self) -> "Column":
        shown = QUANTITIES.get(self.metric)
        if self.final is not None and (shown is None or shown.file != "metrics" or shown.deviation_over is not None):
            raise UserError(f"column {self.name}: {self.metric} takes no final value")
        return self

    @property
    def file(self) -> str:
        """The kind of tidy file that has the values."""
        return self.analysis or quantity(self.metric).file

    def adapted_to(self, experiment: Experiment) -> "Column":
        """The column as it fits the experiment; what is asked for goes before its own value, but for a deviation."""
        if self.unsupported is not None:
            return self
        final = self.final
        if (own := self.deviation) is not None:
            shorter = final_at_scale(own, experiment)
            final = None if shorter == own else shorter
        elif experiment.report is not None and final is not None and final.rule != "std_last_n":
            final = None
        return at_scale(self.model_copy(update={"final": final}), experiment)

    @property
    def deviation(self) -> FinalValue | None:
        """The deviation that its quantity is by itself, None if it is none."""
        n = quantity(self.metric).deviation_over
        return None if n is None else FinalValue(rule="std_last_n", n=n)

    @property
    def direction(self) -> Better:
        """Which direction is better."""
        known = QUANTITIES.get(self.metric)
        return self.better or ("none" if known is None else known.better)

    @property
    def judged_as(self) -> str:
        """The metric that a verdict is for; gains and multiples are none with a tolerance of their own."""
        as_it_is = self.relative_to is None and not self.gain_over and self.unit == 1
        return self.metric if as_it_is else ""

    @property
    def name(self) -> str:
        """Group and header, for one-line headings."""
        return f"{self.group} {self.header}".strip()


class Block(Frozen):
    """A stacked part of the table, with its own ranking."""

    header: str = ""
    select: Selection = Selection()
    instead: dict[str, str] = Field(
        default={}, description="by label that a column selects, the one that the block has in its place"
    )
    published: Keys = Field(default={}, description="as a column's, which goes before it")

    @field_validator("published")
    @classmethod
    def _asked_by_known_keys(cls, keys: Keys) -> Keys:
        return _checked(keys)


class UnsupportedRow(Frozen):
    """A row that can't be reproduced: the published numbers alone are shown."""

    title: str
    why: str


class TableLayout(Layout):
    """A table: rows (methods) × columns, in one or more blocks."""

    published: str | None = Field(default=None, description="the paper's table whose numbers stand beside: its number")
    rows: dict[str, Keys] = Field(
        default={}, description="by label, keys of the published numbers that differ from the label's own"
    )
    unsupported_rows: dict[str, UnsupportedRow] = Field(
        default={}, description="by label, rows of methods that the experiment does not have"
    )
    final: FinalValue | None = Field(
        default=None, description="null: the last round; for released variants what their code reports"
    )
    columns: tuple[Column, ...] = Field(min_length=1)
    blocks: tuple[Block, ...] = Field(default=(Block(),), min_length=1)

    @field_validator("rows")
    @classmethod
    def _asked_by_known_keys(cls, rows: dict[str, Keys]) -> dict[str, Keys]:
        for keys in rows.values():
            _checked(keys)
        return rows

    @model_validator(mode="after")
    def _references_shown(self) -> "TableLayout":
        named = [*self.rows, *self.unsupported_rows]
        for column in self.columns:
            named += [*column.gain_over, *column.gain_over.values()]
            named += [] if column.relative_to is None else [column.relative_to]
        for method in named:
            if method not in self.methods:
                raise unknown("method of the table", method, self.methods)
        return self

    def final_values(self, experiment: Experiment) -> dict[str, FinalValue]:
        """Which value of a run is reported, by method."""
        return {
            method: self.final or final_at_scale(reported(experiment.methods[method].release(method)), experiment)
            for method in self.supported_methods
        }

    def adapted_to(self, experiment: Experiment) -> "TableLayout":
        """The layout as it fits the experiment: the methods that are chosen, and the values that it reports.

        What is asked for goes before what columns say; only deviations stay deviations.
        """
        columns = tuple(column.adapted_to(experiment) for column in self.columns)
        methods = self.methods
        if experiment.chosen is not None:
            methods = tuple(m for m in methods if m in experiment.methods and experiment.is_chosen(m))
        changes = {"columns": columns, "methods": methods}
        return with_requested_value(at_scale(self, experiment), experiment).model_copy(update=changes)

    @property
    def supported(self) -> tuple[Column, ...]:
        """The columns that can be reproduced."""
        return tuple(column for column in self.columns if column.unsupported is None)

    @property
    def supported_methods(self) -> tuple[str, ...]:
        """The methods that can be run."""
        return tuple(method for method in self.methods if method not in self.unsupported_rows)

    def why_unsupported(self, method: str, column: Column) -> str | None:
        """Why an entry can't be reproduced, None if it can."""
        if column.unsupported is None and method in self.unsupported_rows:
            return self.unsupported_rows[method].why
        return column.unsupported

    def settings_of(self, block: Block, column: Column, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of a column within a block, over which means are taken; mostly one."""
        base = block.select.narrowed(column.select)
        chosen = (base.narrowed(selection) for selection in column.mean_of or (Selection(),))
        return tuple(_instead(selection, block).setting(experiment) for selection in chosen)

    def has(self, block: Block, method: str, column: Column, experiment: Experiment) -> bool:
        """Whether the experiment has the cells of an entry: parts may leave out methods."""
        settings = self.settings_of(block, column, experiment)
        return all(experiment.has_cell(CellAddress(setting, method)) for setting in settings)

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of all columns in all blocks, each once."""
        pairs = itertools.product(self.blocks, self.supported)
        places = (self.settings_of(block, column, experiment) for block, column in pairs)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(places)))

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """As of every layout, without the rows that can't be reproduced."""
        return super(TableLayout, self.model_copy(update={"methods": self.supported_methods})).cells(experiment)


def _instead(selection: Selection, block: Block) -> Selection:
    return Selection(**{field: block.instead.get(value, value) for field, value in selection.given().items()})


def load_table(experiment_name: str, name: str) -> TableLayout:
    """A table's layout, validated; a `UserError` says what is wrong with it."""
    file, data = read_layout(experiment_name, "tables", name)
    return TableLayout.parse(data, where=str(file))
