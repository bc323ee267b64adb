"""The keys of an experiment's YAML file, as pydantic models; `fedflat schema` prints their JSON schema."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.engine.participation import Participation
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.experiments.sections.method_choice import MethodChoice
from fedflat.bench.experiments.sections.own_analysis import Named, referenced_analysis
from fedflat.bench.experiments.sections.scale import Scale
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.experiments.sections.tuning import SearchRanges, Tuned, Tuning
from fedflat.bench.input.bounds import MOST_ENTRIES, Seed
from fedflat.bench.input.errors import SeveralMistakesError, UserError, all_mistakes
from fedflat.bench.input.frozen import LABEL, NAME, REPORT, Frozen, collected
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.released import Release, release

SWA_SUFFIX = "+swa"
PUBLISHED = "published"


def _checked(where: dict[str, dict[str, Any] | None], info: ValidationInfo) -> dict[str, dict[str, Any] | None]:
    errors = []
    for label in differing(where):
        try:
            Evaluation.parse(where[label] or {}, label)
        except UserError as error:
            errors.append(error)
    if mistakes := all_mistakes(errors):
        several = SeveralMistakesError("evaluation_where", mistakes)
        raise collected(several if len(mistakes) > 1 else UserError(f"evaluation_where.{mistakes[0]}"), info)
    return where


EvaluationWhere = Annotated[dict[str, dict[str, Any] | None], AfterValidator(_checked)]
"""Fields of `evaluation` by the label of a participation; null: none, where others are inherited."""


def differing(where: dict[str, dict[str, Any] | None]) -> tuple[str, ...]:
    """The labels of `evaluation_where` with other evaluations."""
    return tuple(label for label, fields in where.items() if fields is not None)


class PartitionOverrides(Frozen):
    """Values of a method that apply with one of the partitions, or in one of the settings, only."""

    in_words: ClassVar[str] = "an entry of where"

    hyperparameters: dict[str, Any] = Field(default={}, description="hyper-parameters that differ")
    training: dict[str, Any] = Field(default={}, description="fields of training that differ")


class MethodEntry(MethodChoice):
    """One method of an experiment: hyper-parameters as that experiment's paper states them, and exceptions.

    Without a name or a file, a label of the catalog is the name of the method; a label that ends in +swa needs `swa`
    among the hyper-parameters.
    """

    in_words: ClassVar[str] = "a method's entry"

    title: str | None = Field(default=None, description="name in tables and figures; null: the method's title")
    variant: str = Field(default=PUBLISHED, description="published; or released, as in the authors' code")
    training: dict[str, Any] = Field(default={}, description="fields of training that differ")
    where: dict[str, PartitionOverrides] = Field(
        default={},
        description="values that differ with a partition, by its label, or in a setting, by its path, with or without "
        "the data set, such as dirichlet-0.1/4-of-20",
    )
    search: SearchRanges = Field(
        default={}, description="search ranges of values by name, over those of the experiment; null: not searched"
    )
    parts: tuple[str, ...] | None = Field(
        default=None, description="labels of the experiment's parts that have the method; null: all"
    )

    def choice(self, label: str) -> MethodChoice:
        """The method under this label."""
        fields = self.model_dump(exclude={"title", "training", "variant", "where", "search", "parts"})
        named = label.removesuffix(SWA_SUFFIX)
        if self.name is None and self.file is None and (named in CATALOG or not self.slots):
            fields["name"] = named
        if label.endswith(SWA_SUFFIX) and "swa" not in self.hyperparameters:
            raise UserError(f"{label}: its hyperparameters need swa, for example {{cycle: 5}}")
        return MethodChoice.parse(fields)

    def release(self, label: str) -> Release | None:
        """The changes by the variant; None for the published one. Only methods of the catalog have other variants."""
        if self.variant == PUBLISHED:
            return None
        choice = self.choice(label)
        if choice.name is None or choice.slots:
            raise UserError(f"{label}: only methods of the catalog have a variant '{self.variant}'")
        return release(choice.name, self.variant)


class Grid(Frozen):
    """The axes of the grid; every combination of their values is trained with every method."""

    partition: tuple[AnyPartition, ...] = Field(
        min_length=1,
        max_length=MOST_ENTRIES,
        examples=["[{name: dirichlet, clients: 20, alpha: 0.1}]"],
        description="how the images are divided among the clients",
    )
    participation: tuple[Participation, ...] = Field(
        min_length=1,
        max_length=MOST_ENTRIES,
        examples=["[{active: 4}]"],
        description="which clients take part in a round",
    )
    seeds: tuple[Seed, ...] = Field(
        min_length=1, max_length=MOST_ENTRIES, examples=[[0, 1, 2]], description="the seeds of the runs of each cell"
    )

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        repeated = [seed for k, seed in enumerate(seeds) if seed in seeds[:k]]
        if repeated:
            raise collected(UserError(f"seed {repeated[0]} is listed twice in seeds"), info)
        return seeds


FIELDS_OF: Mapping[str, type[Frozen]] = {
    "grid": Grid,
    "training": Training,
    "evaluation": Evaluation,
    "engine": EngineSettings,
    "tuning": Tuning,
}
"""The sections of an experiment's file that have fixed fields; a key without a section is looked for in this order."""


class ExperimentPart(Frozen):
    """A part of an experiment, such as one data set of a paper: the values that differ from the experiment's."""

    in_words: ClassVar[str] = "a part of an experiment"

    dataset: str | dict[str, Any] | None = None
    model: str | dict[str, Any] | None = None
    training: dict[str, Any] = Field(default={}, description="fields that differ")
    evaluation: dict[str, Any] = Field(default={}, description="fields that differ")
    evaluation_where: EvaluationWhere = Field(default={}, description="labels that differ, like the experiment's")
    engine: dict[str, Any] = Field(default={}, description="fields that differ")
    grid: dict[str, Any] = Field(
        default={}, description="axes that differ; seeds must be the first ones of the experiment's seeds"
    )
    methods: dict[str, dict[str, Any]] = Field(default={}, description="by label, the values of a method that differ")
    only: tuple[str, ...] | None = Field(default=None, description="labels of the only methods of the part; null: all")
    stands_for: str | None = Field(
        default=None,
        description="in an experiment that extends a paper's: the part whose claims the runs of this part decide",
    )


class ExperimentFile(Frozen):
    """All keys of an experiment's file."""

    in_words: ClassVar[str] = "an experiment"

    @field_validator("analyses", mode="before")
    @classmethod
    def _referenced(cls, given: Any, info: ValidationInfo) -> Any:
        """Each with its fields instead of its short form."""
        if given is None or (isinstance(given, list | tuple) and all(isinstance(one, str | Mapping) for one in given)):
            return None if given is None else [referenced_analysis(one) for one in given]
        allowed = "a list of your own, such as [mine.py:WeightNorm]; null: none"
        raise collected(UserError(f"{info.field_name} = {given!r} (allowed: {allowed})"), info)

    @classmethod
    def meant(cls, key: str) -> str | None:
        """The key of a section, such as training.rounds for rounds; the grid's come first."""
        name = "seeds" if key == "seed" else key
        return next((f"{section}.{name}" for section, model in FIELDS_OF.items() if name in model.model_fields), None)

    name: str = Field(pattern=NAME)
    scale: Scale = Field(default="paper", description="smoke: the same grid on scikit-learn's digits, with few rounds")
    chosen: tuple[str, ...] | None = Field(
        default=None, description="the only methods to run, by label or by name (all variants); null: all"
    )
    report: str | None = Field(
        default=None,
        pattern=REPORT,
        description="the value of a run that tables show: last, best, or mean_last_N; null: as each table says",
    )
    extends: str | None = Field(
        default=None, description="an experiment, by name or file, whose other keys and layouts this one inherits"
    )
    description: str = ""
    analyses: tuple[Named, ...] | None = Field(
        default=None,
        description="analyses of your own, such as [mine.py:WeightNorm], in addition to those that fedflat analyses "
        "lists; null: none",
    )
    dataset: str | dict[str, Any] | None = Field(default=None, description="of all parts that do not name one")
    model: str | dict[str, Any] | None = Field(default=None, description="of all parts that do not name one")
    training: Training
    evaluation: Evaluation = Evaluation()
    evaluation_where: EvaluationWhere = Field(
        default={},
        description="by the label of a participation, such as 5-of-100, fields of evaluation that differ with it; "
        "null: none",
    )
    engine: EngineSettings = EngineSettings()
    search: SearchRanges = Field(
        default={},
        description="search ranges of values by name, over those that stand with the values; null: not searched",
    )
    tuning: Tuning = Tuning()
    tuned: Tuned | None = Field(default=None, description="written by fedflat tune: what was searched")
    grid: Grid
    methods: dict[Annotated[str, Field(pattern=LABEL)], MethodEntry] = Field(min_length=1)
    parts: dict[Annotated[str, Field(pattern=LABEL)], ExperimentPart] = Field(
        default={}, description="by label, which replaces the label of the data set in the paths of cells"
    )
