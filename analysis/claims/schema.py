"""The file `paper_tables/PAPER/claims.yaml`: a paper's claims, each a statement about cells that numbers can decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from fedflat.analysis.claims.decide import AtLeast, Statement, every
from fedflat.analysis.claims.statements import Change, Level, MethodComparison, Rank, StatementForm, Unit
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.tables.layout import Column
from fedflat.bench.experiments.address import Setting
from fedflat.bench.experiments.files import PAPER_TABLES, read_yaml
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import NAME, Frozen

StandsFor = Mapping[str, str]
NONE: StandsFor = {}

FORMS = ("higher", "lower", "highest", "lowest", "rises", "falls", "level")
"""The keys of a statement; each claim has one of them."""


class Select(Frozen):
    """The settings of a claim: those of the experiment with one of these labels in each given field."""

    dataset: tuple[str, ...] | None = None
    partition: tuple[str, ...] | None = None
    participation: tuple[str, ...] | None = None

    def fits(self, setting: Setting) -> bool:
        """Whether a setting is selected."""
        return all(labels is None or getattr(setting, field) in labels for field, labels in self)

    def among(self, settings: Sequence[Setting], stands_for: StandsFor = NONE) -> list[Setting]:
        """The selected settings, by the labels of the data sets for which theirs stand.

        If none stands for another, an experiment that has none of the selected data sets is on other data: then all its
        data sets are meant. The same holds for participation, whose labels contain the number of clients.
        """
        if stands_for:
            theirs = {one: replace(one, dataset=stands_for.get(one.dataset, one.dataset)) for one in settings}
            return [setting for setting in settings if self.fits(theirs[setting])]
        select = self
        for field in ("dataset", "participation"):
            labels = {getattr(setting, field) for setting in settings}
            if labels.isdisjoint(getattr(self, field) or labels):
                select = select.model_copy(update={field: None})
        return [setting for setting in settings if select.fits(setting)]


class Claim(Frozen):
    """One claim: a quantity, the settings, and one statement about methods."""

    id: str = Field(pattern=NAME)
    place: str = Field(description="section, line of the paper's text, tables and figures")
    about: str = Field(description="what is stated, in our words")
    metric: str
    analysis: str | None = Field(default=None, description="as in a column of a table")
    target: float | str | None = Field(default=None, examples=[80], description="as in a column of a table")
    smoothed: bool = Field(default=False, description="as in a column of a table")
    final: FinalValue | None = Field(default=None, description="the reported value of a run; null: the paper's")
    select: Select = Select()
    higher: MethodComparison | None = None
    lower: MethodComparison | None = None
    highest: Rank | None = None
    lowest: Rank | None = None
    rises: Change | None = None
    falls: Change | None = None
    level: Level | None = None
    over: Literal["each", "most", "any", "mean"] = Field(
        default="each",
        description="whether it is stated of each setting and method, of more than half of them, of at least one, or "
        "of the mean over the settings",
    )
    doubt: str | None = Field(default=None, description="what the paper leaves open, and how the statement settles it")

    @model_validator(mode="after")
    def _one_statement(self) -> "Claim":
        given = [form for form in FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise UserError(
                f"claim {self.id} has {', '.join(given) or 'no statement'} (exactly one of {FORMS} is allowed)"
            )
        self.column  # noqa: B018 - raises if the quantity does not exist
        return self

    @cached_property
    def column(self) -> Column:
        """Its quantity as the column of a table."""
        shown = {"metric", "analysis", "target", "smoothed", "final"}
        return Column(header=self.id, **self.model_dump(include=shown))

    @property
    def form(self) -> StatementForm:
        """Its statement."""
        forms: list[StatementForm | None] = [getattr(self, name) for name in FORMS]
        return next(form for form in forms if form is not None)

    def statement(self, settings: Sequence[Setting], stands_for: StandsFor = NONE) -> Statement | None:
        """What must hold of the cells of an experiment with these settings; None if none of them is selected.

        `stands_for`: by the label of a part of the experiment, that of the paper's part for which it stands.
        """
        units = self._units(self.select.among(settings, stands_for))
        if not units:
            return None
        sign = -1 if self.lower or self.lowest or self.falls else 1
        form, each_unit = self.form, [units] if self.over == "mean" else [[unit] for unit in units]
        parts = [form.about(subject, chosen, sign) for chosen in each_unit for subject in form.subjects]
        if self.over in ("each", "mean") or len(parts) == 1:
            return every(parts)
        return AtLeast(1 if self.over == "any" else len(parts) // 2 + 1, tuple(parts))

    def _units(self, chosen: Sequence[Setting]) -> list[Unit]:
        """The chosen settings, each alone; for a change, those with the labels along which it is.

        The settings of a change agree in its other fields, unless a field has one value for each label: the number of
        clients may go with the data set.
        """
        change = self.rises or self.falls
        if change is None:
            return [(setting,) for setting in chosen]
        by_label = [[one for one in chosen if getattr(one, change.along) == label] for label in change.through]
        others = [field for field in Select.model_fields if field != change.along]
        same = [field for field in others if any(len({getattr(s, field) for s in found}) > 1 for found in by_label)]
        units = []
        for first in by_label[0]:
            fits = [[s for s in found if all(getattr(s, f) == getattr(first, f) for f in same)] for found in by_label]
            units += [tuple(found[0] for found in fits)] if all(fits) else []
        return units


class NotDecided(Frozen):
    """A claim that is listed without a statement, and why."""

    place: str
    about: str
    why: str


class PaperClaims(Frozen):
    """All claims of a paper."""

    final: FinalValue = Field(default=FinalValue(), description="the value of a run that the paper reports")
    groups: dict[str, tuple[str, ...]] = Field(default={}, description="names for lists of methods")
    claims: tuple[Claim, ...] = Field(min_length=1)
    contradicted: dict[str, str] = Field(
        default={}, description="by id, claims that the paper's own printed numbers contradict, and which ones"
    )
    not_decided: tuple[NotDecided, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_groups(cls, data: Any) -> Any:
        """The statements with the methods of a group in place of its name."""
        if not isinstance(data, Mapping):
            return data
        groups, claims = data.get("groups") or {}, data.get("claims")
        if not isinstance(groups, Mapping) or not isinstance(claims, list):
            return data  # refused by the fields' types
        claims = [_with_methods(claim, groups) if isinstance(claim, Mapping) else claim for claim in claims]
        return {**data, "claims": claims}

    @model_validator(mode="after")
    def _ids(self) -> "PaperClaims":
        ids = [claim.id for claim in self.claims]
        if twice := [one for one in ids if ids.count(one) > 1]:
            raise UserError(f"two claims have the id {twice[0]}")
        for one in self.contradicted:
            if one not in ids:
                raise unknown("claim in contradicted", one, ids)
        return self


def _with_methods(claim: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    replace: Callable[[Any], Any] = lambda value: groups.get(value, value) if isinstance(value, str) else value  # noqa: E731
    return {
        key: {name: replace(value) for name, value in of_key.items()}
        if key in FORMS and isinstance(of_key, Mapping)
        else of_key
        for key, of_key in claim.items()
    }


def claims_file(paper: str) -> Path:
    """The file of a paper's claims."""
    return PAPER_TABLES / paper / "claims.yaml"


def papers_with_claims() -> list[str]:
    """The papers whose claims are transcribed."""
    return sorted(file.parent.name for file in PAPER_TABLES.glob("*/claims.yaml"))


def claims_of(paper: str) -> PaperClaims:
    """The claims of a paper; a `UserError` says what is wrong with its file."""
    if paper not in (papers := papers_with_claims()):
        raise unknown("paper with claims", paper, papers)
    return PaperClaims.parse(read_yaml(claims_file(paper)), where=str(claims_file(paper)))
