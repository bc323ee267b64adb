"""Part of the Python API: the results of an experiment as data frames, and single runs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from torch import Tensor, nn

from fedflat.analysis.comparison.run_table import tuning_of
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.store.stored import StoredRun, short_names, stored_run, stored_runs
from fedflat.analysis.store.where import selected
from fedflat.bench.data.root import data_root
from fedflat.bench.engine.objective import Objective
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.stored_config import trust_code
from fedflat.bench.input.arguments import NameOrFile, checked, plain_mapping
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.common.buffers import BUFFERS
from fedflat.bench.models import build_model
from fedflat.bench.training.current import finished_run
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import load_dataset

Overrides = Annotated[Mapping[str, Any], plain_mapping('{"training.rounds": 20}')]
"""Values of an experiment that its runs override, by dotted key, as in {"training.rounds": 20}."""


class Run(RunDirectory):
    """A finished run: `path`, `config`, `identity`, `provenance`, `metrics()`, `client_accuracies()`, `model()`, ..."""

    @checked
    def __init__(self, path: str | Path) -> None:
        super().__init__(Path(path))

    def model(self) -> nn.Module:
        """The final global model on the CPU, in float32; with SWA, the averaged model."""
        dataset = load_dataset(self.config.dataset, data_root())
        model = build_model(self.config.model, dataset.image_shape, dataset.classes, self.config.seed)
        objective, final = Objective(model, buffer_mode=self.config.model.buffer_mode), self.final(torch.device("cpu"))
        if objective.buffers is not None:
            objective.buffers = final.server[BUFFERS]
        return objective.load(final.w).eval()

    @checked
    def data(self, subset: str = "test") -> tuple[Tensor, Tensor]:
        """All normalised inputs `[n, ...]`, such as `[n, channels, height, width]`, and labels `[n]` of a subset."""
        train, test = load_dataset(self.config.dataset, data_root()).on(torch.device("cpu"))
        images = {"train": train, "test": test}
        if subset not in images:
            raise unknown("subset", subset, images)
        return images[subset].batch(torch.arange(len(images[subset])))


@checked
def load_run(path: str | Path, *, trust: bool = False) -> Run:
    """Load the finished run in a run directory; raises `UserError` if there is none.

    Its configuration and model execute the user-defined Python files of the run. If no experiment of yours names these
    files, this is a `UserError`, unless you have read them and give `trust=True`.

    >>> import fedflat
    >>> run = fedflat.load_run(fedflat.runs("quick")["path"][0])
    >>> run.config.training.rounds
    30
    >>> x, y = run.data("test")
    >>> accuracy = (run.model()(x).argmax(1) == y).float().mean()
    >>> bool(abs(100 * accuracy - run.metrics()["test_accuracy"].iloc[-1]) < 1e-3)
    True
    """
    if trust:
        trust_code(Path(path))
    return Run(path)


@checked
def load_model(path: str | Path, *, trust: bool = False) -> nn.Module:
    """The final global model of the finished run in a run directory; arguments and errors as for `load_run`.

    >>> import fedflat, torch
    >>> model = fedflat.load_model(fedflat.runs("quick")["path"][0])
    >>> model(torch.zeros(1, 1, 8, 8)).shape
    torch.Size([1, 10])
    """
    return load_run(path, trust=trust).model()


@checked
def runs(
    experiment: NameOrFile | None = None,
    *,
    where: str = "",
    results: str | Path = "results",
    overrides: Overrides | None = None,
) -> pd.DataFrame:
    """One row per finished run: its cell, seed, metrics of the last round, identity, path, values of its configuration.

    Runs of an experiment also have `variant`, tuned or untuned, and of tuned ones the number of `trials` and the search
    (`tuning`, as JSON).

    `experiment` is a name or a YAML file; without it, all runs of the store are read. `where`: conditions, such as
    "method=fedsam, rho>0.05" (`fedflat runs`). `overrides`: the values that were overridden for the runs of an
    experiment. Accuracies are in percent, losses in nats. A value that some runs do not have is NaN there.

    >>> import fedflat
    >>> table = fedflat.runs("quick")
    >>> table.groupby("method")["round"].max().to_dict()
    {'fedsam': 30}
    >>> fedflat.load_run(table["path"][0]).identity == table["identity"][0]
    True
    >>> fedflat.runs(where="rho=0.05, seed>0")[["method", "seed", "rho"]].values.tolist()
    [['fedsam', 1, 0.05], ['fedsam', 2, 0.05]]

    Raises `UserError` if no run of the experiment is finished, if one of them is damaged, or if there is no store.
    Without an experiment, damaged runs are named in the log and left out.
    """
    if experiment is None:
        known = stored_runs(ResultPaths(Path(results)))
        found = {one.place: (one.ids, dict[str, Any]()) for one in known}
    else:
        found = {run.path: (ids, tuning) for ids, tuning, run in _finished(experiment, results, overrides)}
        known = [stored_run(path) for path in found]
    names = short_names(known)
    rows = [
        {**ids, **_last(RunDirectory(one.place)), "path": str(one.place), **tuning, **_named(one, names)}
        for one in selected(known, where)
        for ids, tuning in [found[one.place]]
    ]
    columns = None if rows else [*RUN_IDS, "round", "diverged", "identity", "path", *names.values()]
    return pd.DataFrame(rows, columns=columns).astype({"round": int, "diverged": bool})


def _last(run: RunDirectory) -> dict[str, Any]:
    """The metrics of the last round, and the identity."""
    last = {str(name): value for name, value in run.metrics().iloc[-1].items()}
    return {**last, "identity": run.identity}


def _named(run: StoredRun, names: Mapping[str, str]) -> dict[str, Any]:
    """Values of the configuration by their short names; by the dotted ones where metrics have such a name."""
    columns = run.last
    return {(full if names[full] in columns else names[full]): value for full, value in run.values.items()}


@checked
def metrics(
    experiment: NameOrFile, *, results: str | Path = "results", overrides: Overrides | None = None
) -> pd.DataFrame:
    """One row per round of each finished run of an experiment; arguments and errors as in `runs`.

    >>> import fedflat
    >>> rounds = fedflat.metrics("quick")
    >>> rounds[rounds["seed"] == 0]["round"].tolist() == list(range(1, 31))
    True
    """
    return _of_runs(RunDirectory.metrics, experiment, results, overrides)


@checked
def client_accuracies(
    experiment: NameOrFile, *, results: str | Path = "results", overrides: Overrides | None = None
) -> pd.DataFrame:
    """One row per evaluated round and client of each finished run of an experiment with `evaluation.by_client`.

    The column `accuracy` is in percent; it is NaN for a client without images on which it could be measured. Arguments
    and errors as in `runs`; a `UserError`, too, if a run did not store them.
    """
    return _of_runs(RunDirectory.client_accuracies, experiment, results, overrides)


def _of_runs(
    read: Callable[[RunDirectory], pd.DataFrame],
    experiment: NameOrFile,
    results: str | Path,
    overrides: Overrides | None,
) -> pd.DataFrame:
    """A table of each finished run of an experiment, one below the other, after the columns that identify the run."""
    tables = ((ids, read(run)) for ids, _, run in _finished(experiment, results, overrides))
    return pd.concat([table.assign(**ids)[[*ids, *table]] for ids, table in tables], ignore_index=True)


@checked
def analysis_values(
    experiment: NameOrFile, name: str, *, results: str | Path = "results", overrides: Overrides | None = None
) -> pd.DataFrame:
    """The results of an analysis of all cells of an experiment: the rows of its tidy files.

    `name`: an analysis that `fedflat analyses` lists, or an entry of the experiment's analyses.yaml.
    Other arguments as in `runs`.

    >>> import fedflat
    >>> fedflat.analysis_values("quick", "convergence")["method"].unique().tolist()
    ['fedsam']

    Raises `UserError` if no cell is analysed, or if a file was computed with other options or from other runs.
    """
    requested = RequestedExperiment(str(experiment), Path(results), overrides or {})
    if name not in requested.analyses:
        raise unknown(f"analysis of experiment {requested.experiment.name}", name, requested.analyses)
    frame = requested.tidy.gather(name, requested.experiment.addresses)
    if frame.empty:
        command = requested.snakemake(f"{requested.target}_analysis_{name}")
        raise UserError(f"no values of analysis {name} under '{results}'; compute them with: {command}")
    return frame


def _finished(
    experiment: NameOrFile, results: str | Path, overrides: Overrides | None
) -> Iterator[tuple[dict[str, Any], dict[str, Any], RunDirectory]]:
    """The finished runs of an experiment, each with its identifying columns, experiment, setting, method and seed, and
    with those about tuning."""
    requested = RequestedExperiment(str(experiment), Path(results), overrides or {})
    name, missing = requested.experiment.name, True
    for cell in requested.experiment.cells().values():
        for config in cell.runs:
            run = finished_run(requested.paths.run(config), config)
            if run is not None and run.config.identity == config.identity:  # else it was edited: an error
                missing = False
                ids = {"experiment": name, **cell.address.columns, "seed": config.seed}
                yield ids, tuning_of(requested.experiment, cell.address), run
    if missing:
        train = requested.snakemake(f"{requested.target}_runs")
        raise UserError(f"no finished run of {experiment} under '{results}'; train them with: {train}")
