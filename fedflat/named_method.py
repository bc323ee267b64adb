"""The method that a command names: one of the catalog, of a Python file, or of an experiment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedflat.bench.code.named_code import trust_file
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.sections.method_choice import MethodChoice
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.compose import combine
from fedflat.bench.methods.recipe import SCHEDULES, Recipe
from fedflat.bench.methods.user_file import KIND, executed_again


@dataclass(frozen=True)
class NamedMethod:
    """A method, and the hyper-parameters that an experiment gives it."""

    choice: MethodChoice
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str) -> "NamedMethod":
        """The method of a name of the catalog, a Python file, or EXPERIMENT:LABEL, where EXPERIMENT is a name or file.

        A `UserError` if there is no such method. The values are those of the label's entry, without exceptions of
        partitions and parts, and without SWA, which averages the models of any method.
        """
        if name.endswith(".py"):
            trust_file(Path(name), KIND)
            return cls(MethodChoice(file=Path(name)))
        source, colon, label = name.rpartition(":")
        if not colon:
            if name.endswith((".yaml", ".yml")):
                labels = load_experiment(name).methods
                raise UserError(f"'{name}' is an experiment (allowed: {', '.join(f'{name}:{one}' for one in labels)})")
            return cls(MethodChoice(name=name))
        methods = load_experiment(source).methods
        if label not in methods:
            raise unknown(f"method of '{source}'", label, methods)
        entry = methods[label]
        release = entry.release(label)
        values = {**(release.hyperparameters if release else {}), **entry.hyperparameters}
        values |= release.faults if release else {}
        return cls(entry.choice(label), {key: value for key, value in values.items() if key not in ("swa", SCHEDULES)})

    @property
    def file(self) -> Path | None:
        """The Python file of a user-defined method."""
        return self.choice.file

    @property
    def recipe(self) -> Recipe:
        """The method's recipe; a `UserError` if there is no such method, component or file."""
        return self.choice.recipe

    def again(self) -> Recipe:
        """The recipe as a new process would get it: the code of a file is executed again."""
        if self.file is None:
            return self.recipe
        own = executed_again(self.file)
        return combine(own, self.choice.slots) if self.choice.slots else own
