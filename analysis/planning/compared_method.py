"""A method that Snakemake tunes, trains, analyses and compares with the stored baselines of a grid.

Its experiment is written to results/compare/GRID/LABEL.yaml: the method in all settings of the grid's experiment.
`fedflat tune` adds the experiment with the tuned values, which extends it.
"""

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedflat.analysis.comparison.ablation import variants
from fedflat.analysis.comparison.baselines import load, stored_grids
from fedflat.analysis.comparison.comparable import VERSIONS, other_versions
from fedflat.analysis.comparison.statistics.scores import LEAST_SEEDS
from fedflat.analysis.layouts.run_columns import ANALYSED
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench import __version__
from fedflat.bench.code.named_code import trust_file
from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.experiments.overrides import CONFIG_KEYS
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.experiments.results import ReportPaths, ResultPaths
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import NAME
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.user_file import KIND, recipe_from_file
from fedflat.bench.tuning.protocol.reading import has_protocol
from fedflat.bench.tuning.winners import SUFFIX

REQUIRED = ("method", "grid")
"""The keys of `--config` that request a comparison."""

COMPARED_KEYS = (*REQUIRED, "ablation")

_ALLOWED = {"trials", "seeds", "engine"}
"""The keys of `--config` that leave runs comparable with the stored ones."""


@dataclass(frozen=True)
class ComparedMethod:
    """A method by its `label` in an experiment of its own, and the `grid` of stored baselines.

    `analyses`: those of the stored runs. `is_tuned`: its values are tuned first; with trials=0, those of its file are
    compared.
    """

    label: str
    grid: str
    experiment: RequestedExperiment
    analyses: tuple[str, ...]
    is_tuned: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], results: Path, overrides: Mapping[str, Any]) -> "ComparedMethod | None":
        """The comparison that the keys `method` and `grid` request; None without them.

        A `UserError` if one of them is missing or unknown, or if other keys would make runs that cannot be compared.
        """
        if not any(key in config for key in COMPARED_KEYS):
            return None
        if not all(key in config for key in REQUIRED):
            raise UserError("a comparison needs two keys: --config method=mine.py grid=bench1d")
        if (ablation := str(config.get("ablation", False)).lower()) not in ("true", "false"):
            raise UserError(f"--config ablation={ablation} (allowed: true, false)")
        method, grid = (config[key] for key in REQUIRED)
        if not isinstance(method, str) or not isinstance(grid, str):
            raise UserError(f"--config method={method} grid={grid} (allowed: a file or method, and the name of a grid)")
        for key, overridden in CONFIG_KEYS.items():
            if overridden in overrides and key not in _ALLOWED:
                raise UserError(f"--config {key}: runs with it cannot be compared with stored ones")
        if grid not in (names := experiment_names()) and grid in stored_grids():
            raise UserError(
                f"--config grid={grid}: no experiment of paper_tables has the name of this grid (allowed: "
                f"{', '.join(sorted({*stored_grids()} & {*names}))}); train your runs, and compare them with: fedflat "
                f"compare METHOD --grid {grid} --experiment FILE"
            )
        if has_protocol(grid):
            raise UserError(
                f"--config grid={grid}: the grid has a protocol, by which this searches and compares a method: fedflat "
                f"compare {method} --grid {grid}"
            )
        stored = load(grid).runs  # before hours of training: whether there are baselines, and whether they are whole
        if versions := other_versions([__version__], stored["code"]):
            raise UserError(
                f"--config grid={grid}: new runs of {versions[0]} cannot be compared with the stored runs of "
                f"{versions[1]} ({VERSIONS}); use the stored version, or train and store the grid again"
            )
        _check_seeds(config.get("seeds"), grid, sorted(map(int, stored["seed"].unique())))
        label, entry = entry_of(method, grid)
        file = ResultPaths(results).compared(grid, label)
        known = experiment_data(grid)["methods"].get(label) or {}
        parts = variants(label, entry or known) if ablation == "true" else {}
        _write(file, grid, label, {label: dict(entry) or None, **parts})
        measured = [analysis for column, analysis in ANALYSED.items() if stored[column].notna().any()]
        requested = RequestedExperiment(str(file), results, overrides)
        return cls(label, grid, requested, tuple(dict.fromkeys(measured)), is_tuned=not is_untuned(config))

    @property
    def name(self) -> str:
        """The name of the experiment that is tuned."""
        return self.experiment.experiment.name

    @property
    def checked(self) -> str:
        """The method for `fedflat check-method`, with the values that it has before tuning."""
        return f"{self.experiment.paths.compared(self.grid, self.label)}:{self.label}"

    @property
    def check_log(self) -> Path:
        """The output of `fedflat check-method`."""
        return self.experiment.paths.compared(self.grid, self.label).with_suffix(".check.log")

    @property
    def findings(self) -> list[str]:
        """The lines in the output of `fedflat check-method` that are printed if it has failed."""
        _, title, *lines = self.check_log.read_text(encoding="utf-8").splitlines()
        checks = [line for line in lines if line.startswith("  ")]
        found = [line for line in lines if line not in checks][:-1]  # without the last line, which counts them
        return [f"check-method {title}", *found, f"The comparison goes on. All checks: {self.check_log}"]

    @property
    def judged(self) -> RequestedExperiment:
        """The experiment whose runs are compared: with tuned values, its file is written by the search."""
        if not self.is_tuned:
            return self.experiment
        file = self.experiment.paths.tuned(self.name)
        return RequestedExperiment(str(file), self.experiment.results, self.experiment.overrides, stored=True)

    @property
    def judged_name(self) -> str:
        """The name of the experiment whose runs are compared, also before its file is written."""
        return f"{self.name}{SUFFIX}" if self.is_tuned else self.name

    @property
    def report(self) -> ReportPaths:
        """The files of its report."""
        return self.experiment.paths.report(self.judged_name)

    @property
    def answer(self) -> list[str]:
        """The answer of the report in words, and where the report is."""
        file = self.report.comparison / "report.md"
        _, *paragraphs = file.read_text(encoding="utf-8").split("\n\n")
        return [*itertools.takewhile(lambda text: text[0] not in "-#", paragraphs), f"written to {file}"]


def is_untuned(config: Mapping[str, Any]) -> bool:
    """Whether the values of the file are compared: with the keys `method` and trials=0."""
    if "method" not in config or "trials" not in config:
        return False
    trials = config["trials"]
    if type(trials) is not int or trials < 0:
        raise UserError(f"trials={trials} (allowed: a whole number of at least 1, or 0 for no tuning)")
    return trials == 0


def _check_seeds(seeds: list[int | str] | None, grid: str, stored: Collection[int]) -> None:
    """A `UserError` if no stored run has one of the seeds, or if a verdict needs more and the grid has enough."""
    if seeds is None:
        return
    given, allowed = f"--config seeds=[{','.join(map(str, seeds))}]", ", ".join(map(str, stored))
    chosen = dict.fromkeys(map(int, seeds))
    if missing := [str(seed) for seed in chosen if seed not in stored]:
        raise UserError(f"{given}: grid {grid} has no runs with seed {', '.join(missing)} (allowed: {allowed})")
    if len(chosen) < LEAST_SEEDS <= len(stored):
        least = f"at least {LEAST_SEEDS}"
        raise UserError(f"{given}: a verdict needs {least} seeds (allowed: {least} of {allowed})")


def entry_of(method: str, grid: str | Path) -> tuple[str, dict[str, Any]]:
    """Label and entry of a Python file, of EXPERIMENT:LABEL, or of a method that the grid or the catalog names."""
    known = experiment_data(str(grid))["methods"]
    if method.endswith(".py"):
        label = Path(method).stem.lower().replace("-", "_")
        if not re.fullmatch(NAME, label):
            raise UserError(f"--config method={method} (allowed: a file named with letters, digits, '_' and '-')")
        if label in known:
            raise UserError(f"--config method={method}: grid {grid} has a method named {label}; rename the file")
        if not Path(method).is_file():
            raise UserError(f"--config method={method}: there is no such file")
        file = Path(method).absolute()
        trust_file(file, KIND)
        return label, {"file": str(file), "hyperparameters": example(recipe_from_file(file))}
    source, colon, label = method.rpartition(":")
    if colon:
        methods = experiment_data(source).get("methods") or {}
        if label not in methods:
            raise unknown(f"method of '{source}'", label, methods)
        return label, dict(methods[label])
    if method not in known and method not in CATALOG:
        raise unknown("method", method, {*known, *CATALOG})
    return method, {} if method in known else {"hyperparameters": example(CATALOG[method])}


def _write(file: Path, grid: str, label: str, methods: Mapping[str, Any]) -> None:
    """Write the experiment's file, unless it has this content."""
    name = f"{grid}_{re.sub('[^a-z0-9_]', '_', label.lower())}"
    content = {
        "name": name,
        "extends": grid,
        "description": f"{label} in the settings of {grid}.",
        "methods": dict(methods),
    }
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=118, allow_unicode=True)
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        write_text(file, text)
