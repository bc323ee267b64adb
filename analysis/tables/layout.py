"""Layouts of tables: the YAML files that say what columns, blocks and rows show."""

import itertools
from collections.abc import Collection, Sequence
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from fedflat.analysis.layouts.grid import GridPart, grid_settings, part_prefix
from fedflat.analysis.layouts.layout import Layout, Selection, load_layout
from fedflat.analysis.layouts.protocol import at_scale, final_at_scale, with_requested_value
from fedflat.analysis.layouts.quantities import known_quantities, quantity
from fedflat.analysis.layouts.titles import participation_phrase, partition_headings, partition_title
from fedflat.analysis.measures.convergence import FinalValue, reported
from fedflat.analysis.published.numbers import MULTIPLES
from fedflat.analysis.tables.counterparts import Keys, Quoted, Reading, checked_keys
from fedflat.analysis.verdicts.margins import Form
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.input.preference import with_first_known
from fedflat.bench.metrics.quantity import Better


class Column(Frozen):
    """One column: a quantity in one setting, or its mean over several settings.

    `select` names the fields of the setting that the block does not select.
    """

    header: str = Field(default="", description="heading; default: the partition, in a column of each partition")
    group: str = Field(default="", description="header over neighbouring columns of the same group")
    metric: str = Field(description="the quantity that is shown: one of those below")
    analysis: str | None = Field(
        default=None,
        description="name of the analysis with the values; null: the one named like the metric's kind",
    )
    better: Better | None = Field(default=None, description="higher, lower or none; null: as the quantity defines it")
    final: FinalValue | None = Field(default=None, description="the reported value of a run; null: the table's")
    target: float | str | None = Field(
        default=None,
        examples=[80],
        description="for metrics of targets: an accuracy in percent, or the method whose final accuracy is the target",
    )
    smoothed: bool = Field(default=False, description="whether the mean of several evaluations must reach the target")
    relative_to: str | None = Field(
        default=None,
        description="a method of the table (or a list: the first one that the experiment has): values are multiples of "
        "its values, seed by seed; published numbers that are not printed as multiples are divided by its published "
        "number",
    )
    gain_over: dict[str, str] = Field(
        default={},
        description="by method, the method whose values are subtracted, seed by seed; other methods are not shown",
    )
    in_percent: bool = Field(default=False, description="whether gains are in percent of the subtracted values")
    unit: float = Field(default=1, gt=0, allow_inf_nan=False, description="the number by which values are divided")
    decimals: int = Field(default=2, ge=0, le=12, description="digits after the point")
    optional: bool = Field(default=False, description="whether the column is left out if runs lack what it needs")
    select: Selection = Field(default=Selection(), description="the setting of the column")
    mean_of: tuple[Selection, ...] = Field(
        default=(), description="further selections; values are means over their settings, seed by seed"
    )
    published: Keys = Field(
        default={},
        description="keys of the published numbers that differ from those of the cell; null: any value. "
        "value: std means the printed standard deviation",
    )
    reading: Reading | None = Field(
        default=None, description="the reading that the column shows; null: the paper's own setting"
    )

    @field_validator("published")
    @classmethod
    def _known_published_keys(cls, keys: Keys) -> Keys:
        if (part := keys.get("value", "std")) != "std":
            raise unknown("part of published numbers", str(part), ["std"])
        return checked_keys(keys, "value")

    @model_validator(mode="after")
    def _known(self) -> "Column":
        quantity(self.metric)
        return self

    @model_validator(mode="after")
    def _target_where_needed(self) -> "Column":
        needed = quantity(self.metric).file == "convergence"
        if needed != (self.target is not None) or (self.smoothed and not needed):
            needs = "needs a target" if needed else "does not allow target or smoothed"
            raise UserError(f"column {self.name}: {self.metric} {needs}")
        return self

    @model_validator(mode="after")
    def _one_comparison(self) -> "Column":
        if self.relative_to is not None and self.gain_over:
            raise UserError(f"column {self.name}: relative_to and gain_over are not allowed together")
        if self.in_percent and not self.gain_over:
            raise UserError(f"column {self.name}: in_percent needs gain_over")
        return self

    @model_validator(mode="after")
    def _final_where_it_matters(self) -> "Column":
        shown = known_quantities().get(self.metric)
        if self.final is not None and (shown is None or shown.file != "metrics" or shown.deviation_over is not None):
            raise UserError(f"column {self.name}: {self.metric} does not allow final")
        return self

    @property
    def file(self) -> str:
        """The kind of tidy file that has the values."""
        return self.analysis or quantity(self.metric).file

    def adapted_to(self, experiment: Experiment) -> "Column":
        """The column for an experiment: at its scale, with the requested value of a run in place of the column's own.

        A column of deviations over evaluations keeps showing deviations.
        """
        final = self.final
        if (own := self.deviation) is not None:
            shorter = final_at_scale(own, experiment)
            final = None if shorter == own else shorter
        elif experiment.report is not None and final is not None and final.rule != "std_last_n":
            final = None
        return at_scale(self.model_copy(update={"final": final}), experiment)

    @property
    def deviation(self) -> FinalValue | None:
        """The rule of a quantity that is a deviation over evaluations; None for other quantities."""
        n = quantity(self.metric).deviation_over
        return None if n is None else FinalValue(rule="std_last_n", n=n)

    @property
    def follows_protocol(self) -> bool:
        """Whether the column shows the value of each run that the table's protocol reports."""
        shown = known_quantities().get(self.metric)
        is_reported = shown is not None and shown.file == "metrics" and shown.deviation_over is None
        return is_reported and self.final is None

    @property
    def direction(self) -> Better:
        """Whether higher or lower values are better."""
        known = known_quantities().get(self.metric)
        return self.better or ("none" if known is None else known.better)

    @property
    def form(self) -> Form:
        """What the column shows of its metric, which decides the margin of verdicts."""
        if self.relative_to is not None:
            return "multiples"
        if self.gain_over:
            return "gains_in_percent" if self.in_percent else "gains"
        return "values"

    @property
    def divides_published(self) -> bool:
        """Whether the column shows multiples of numbers that are not printed as multiples."""
        return self.relative_to is not None and self.published.get("metric", self.metric) not in MULTIPLES

    def is_multiple_of(self, other: "Column") -> bool:
        """Whether the column shows the other one's values as multiples of a method's value."""
        own = {field: getattr(other, field) for field in ("header", "group", "decimals", "unit", "published")}
        return self.relative_to is not None and self.model_copy(update={**own, "relative_to": None}) == other

    @property
    def name(self) -> str:
        """Group and header, for one-line headings."""
        return ", ".join(part for part in (self.group, self.header) if part)


class TableBlock(Frozen):
    """A group of rows, one per method, with its own ranking; blocks are stacked."""

    header: str = Field(default="", description="a line above the rows")
    methods: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="those of the table's methods that have a row in this block, in the table's order; null: all",
    )
    select: Selection = Field(default=Selection(), description="the setting of the rows")
    instead: dict[str, str] = Field(
        default={}, description="labels in columns' selections, and the labels that replace them in this block"
    )
    published: Keys = Field(default={}, description="like a column's, which takes precedence")

    @field_validator("published")
    @classmethod
    def _known_published_keys(cls, keys: Keys) -> Keys:
        return checked_keys(keys)

    def shows(self, method: str) -> bool:
        """Whether the block has a row for a method of the table."""
        return self.methods is None or method in self.methods

    def of(self, methods: Collection[str], experiment: Experiment) -> "TableBlock":
        """The block with rows for these methods at most; a method that is swept has several."""
        if self.methods is None:
            return self
        labels = [label for method in self.methods for label in experiment.labels_of(method) or [method]]
        return self.model_copy(update={"methods": tuple(label for label in labels if label in methods)})


class TableLayout(Layout):
    """A table: rows (methods) × columns, in one or more blocks."""

    published: str | None = Field(default=None, description="number of the paper's table whose numbers are shown, too")
    rows: dict[str, Keys] = Field(
        default={}, description="by label, keys of the published numbers that differ from those of the label"
    )
    quoted: Quoted | None = Field(default=None, description="the paper whose numbers the table quotes")
    final: FinalValue | None = Field(
        default=None,
        description="the reported value of a run; null: after the last round, or for released variants the value that "
        "their code reports",
    )
    swept: bool = Field(
        default=False,
        description="whether the methods of sweeps are shown in addition to `methods`; if the experiment has none, the "
        "table is left out",
    )
    grid: GridPart = Field(
        default="all",
        description="the settings that are shown where neither columns nor blocks select one: all; partitions: one for "
        "each partition, that with the fewest active clients; main: the one with the most heterogeneous partition",
    )
    columns: tuple[Column, ...] = Field(
        min_length=1, description="repeated for each partition of the grid, if they select none of several"
    )
    blocks: tuple[TableBlock, ...] = Field(
        default=(TableBlock(),), min_length=1, description="default: one for each participation of the grid"
    )

    @field_validator("rows")
    @classmethod
    def _known_keys_of_rows(cls, rows: dict[str, Keys]) -> dict[str, Keys]:
        for keys in rows.values():
            checked_keys(keys)
        return rows

    @model_validator(mode="after")
    def _only_metrics_are_quoted(self) -> "TableLayout":
        if self.quoted is not None and any(column.file != "metrics" for column in self.columns):
            raise UserError("quoted needs columns of metrics, such as test_accuracy")
        return self

    @model_validator(mode="after")
    def _references_shown(self) -> "TableLayout":
        named = list(self.rows)
        for column in self.columns:
            named += [*column.gain_over, *column.gain_over.values()]
            named += [] if column.relative_to is None else [column.relative_to]
        named += [method for block in self.blocks for method in block.methods or ()]
        for method in named:
            if method not in self.methods:
                raise unknown("method of the table", method, self.methods)
        return self

    @model_validator(mode="after")
    def _references_in_blocks(self) -> "TableLayout":
        for block, column in itertools.product(self.blocks, self.columns):
            bases = [other for method, other in column.gain_over.items() if block.shows(method)]
            for reference in [*bases, *([] if column.relative_to is None else [column.relative_to])]:
                if not block.shows(reference):
                    raise UserError(
                        f"block {block.header!r}: column {column.name} is compared with {reference}, which is not in "
                        f"the block's methods ({', '.join(block.methods or ())})"
                    )
        return self

    @classmethod
    def prepared(cls, data: dict[str, Any], experiment: Experiment) -> dict[str, Any]:
        """The content of a file, in which lists of reference methods are replaced by the first one that exists."""
        columns = data.get("columns")
        if not isinstance(columns, list):
            return data
        return {**data, "columns": [_with_references(column, experiment) for column in columns]}

    def fitted(self, experiment: Experiment, others: Collection[str] = ()) -> Self:
        """The layout for an experiment, without comparisons with methods that the experiment lacks.

        A `UserError` names a method in `relative_to` that the experiment lacks.
        """
        layout = super().fitted(experiment, others)
        methods, columns = layout.methods, []
        for column in layout.columns:
            if column.relative_to is not None and column.relative_to not in methods:
                raise unknown(f"method in relative_to of column {column.name}", column.relative_to, methods)
            pairs = column.gain_over.items()
            kept = {method: other for method, other in pairs if method in methods and other in methods}
            if kept or not column.gain_over:
                columns.append(column.model_copy(update={"gain_over": kept}))
        if not columns:
            raise UserError(f"experiment {experiment.name} has none of the methods of its columns")
        rows = {method: keys for method, keys in self.rows.items() if method in methods}
        blocks = _with_rows(layout.blocks, methods, experiment)
        return layout.model_copy(update={"columns": tuple(columns), "rows": rows, "blocks": blocks})

    def _shown_methods(self, experiment: Experiment) -> tuple[str, ...]:
        if not self.swept:
            return super()._shown_methods(experiment)
        if not experiment.swept:
            raise UserError(f"experiment {experiment.name} has no sweep")
        return tuple(dict.fromkeys([*super()._shown_methods(experiment), *experiment.swept]))

    def _over_grid(self, experiment: Experiment) -> Self:
        """The layout with a column for each partition and a block for each participation, where they select none."""
        pairs = [(block, column) for block in self.blocks for column in self.columns if not column.mean_of]
        selections = [block.select.narrowed(column.select) for block, column in pairs]
        named = any(selection.given() for selection in selections) or not selections
        if named and all(selection.completed(experiment) == selection for selection in selections):
            return self
        settings = grid_settings(experiment, self.grid)
        partitions = tuple(dict.fromkeys(setting.partition for setting in settings))
        of_blocks = {(setting.dataset, setting.participation): setting for setting in settings}
        columns, several = self.columns, len(of_blocks) * len(partitions) > len(settings)
        if not several:
            columns = _repeated(columns, partitions)
        blocks = self.blocks
        if "blocks" not in self.model_fields_set:
            shown = settings if several else tuple(of_blocks.values())
            blocks = tuple(_block(experiment, setting, whole=several) for setting in shown)
        return self.model_copy(update={"columns": columns, "blocks": blocks})

    def final_values(self, experiment: Experiment) -> dict[str, FinalValue]:
        """The value of a run that is reported, by method."""
        return {
            method: self.final or final_at_scale(reported(experiment.methods[method].release(method)), experiment)
            for method in self.methods
        }

    def adapted_to(self, experiment: Experiment) -> "TableLayout":
        """The layout for an experiment: its chosen methods, at its scale, with the requested value of a run."""
        columns = tuple(column.adapted_to(experiment) for column in self.columns)
        methods = self.methods
        if experiment.chosen is not None:
            methods = tuple(m for m in methods if m in experiment.methods and experiment.is_chosen(m))
        layout = with_requested_value(at_scale(self, experiment), experiment)
        blocks = _with_rows(self.blocks, methods, experiment)
        return layout.model_copy(update={"columns": columns, "methods": methods, "blocks": blocks})

    def settings_of(self, block: TableBlock, column: Column, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of a column within a block; values are means over them, and most columns have one."""
        base = block.select.narrowed(column.select)
        chosen = (base.narrowed(selection) for selection in column.mean_of or (Selection(),))
        return tuple(_replaced(selection, block).setting(experiment) for selection in chosen)

    def has(self, block: TableBlock, method: str, column: Column, experiment: Experiment) -> bool:
        """Whether the block has a row for the method, and the experiment the cells of the entry: a part of an
        experiment may lack some methods."""
        settings = self.settings_of(block, column, experiment)
        return block.shows(method) and all(experiment.has_cell(CellAddress(setting, method)) for setting in settings)

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """See `Layout`: those of the methods that have a row in a block."""
        every = super().cells(experiment)
        shown = {
            CellAddress(setting, method)
            for block, column in itertools.product(self.blocks, self.columns)
            for setting in self.settings_of(block, column, experiment)
            for method in self.methods
            if block.shows(method)
        }
        return tuple(cell for cell in every if cell in shown)

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings of all columns in all blocks, each once."""
        pairs = itertools.product(self.blocks, self.columns)
        places = (self.settings_of(block, column, experiment) for block, column in pairs)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(places)))


def _with_rows(
    blocks: Sequence[TableBlock], methods: Collection[str], experiment: Experiment
) -> tuple[TableBlock, ...]:
    """The blocks with rows for these methods; those without a row are left out, unless none has one."""
    own = tuple(block.of(methods, experiment) for block in blocks)
    return tuple(block for block in own if block.methods != ()) or own


def _replaced(selection: Selection, block: TableBlock) -> Selection:
    """The selection with the labels that the block gives `instead`."""
    return Selection(**{field: block.instead.get(value, value) for field, value in selection.given().items()})


def _with_references(column: Any, experiment: Experiment) -> Any:
    """A column's data, in which a list of methods in order of preference is replaced by the first that exists."""
    if not isinstance(column, dict):
        return column
    return with_first_known(column, ("relative_to", "target"), experiment.methods)


def _block(experiment: Experiment, setting: Setting, *, whole: bool) -> TableBlock:
    """A block for a participation, or for a `whole` setting of parts whose grids differ."""
    select = {"dataset": setting.dataset, "participation": setting.participation}
    title = participation_phrase(setting.participation)
    if whole:
        select["partition"] = setting.partition
        title = f"{partition_title(setting.partition)}, {title}"
    return TableBlock(header=f"{part_prefix(experiment, setting)}{title}", select=Selection(**select))


def _repeated(columns: Sequence[Column], partitions: Sequence[str]) -> tuple[Column, ...]:
    """The columns that select no partition, once for each partition, which their headings name."""
    free = [column for column in columns if column.select.partition is None and not column.mean_of]
    shown = [column for column in columns if column not in free]
    for partition in partitions:
        group, header = partition_headings(partition)
        for column in free:
            headings = {"group": group, "header": header}
            if column.header or len(free) > 1:
                headings = {"group": partition_title(partition), "header": column.header or column.metric}
            select = column.select.model_copy(update={"partition": partition})
            shown.append(column.model_copy(update={**headings, "select": select}))
    return tuple(shown)


def load_table(experiment_name: str, name: str, experiment: Experiment | None = None) -> TableLayout:
    """A table's layout, validated and fitted to its experiment (None: as its file says)."""
    return load_layout(TableLayout, experiment_name, "tables", name, experiment)
