"""A results folder with the shape of real runs: curves that rise, flatness that differs, two partitions."""

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.analyses import load_analyses, parse_analysis
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.found_runs import find_runs, results_of
from fedflat.analysis.analyses.provenance import analysis_fingerprint, name_value_pairs
from fedflat.analysis.analyses.run_analysis import store_analysis
from fedflat.analysis.analyses.stored import list_row, stored_file, write_analysis_list
from fedflat.analysis.comparison.adding import add
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.csv_json import write_checked_json, write_csv
from fedflat.bench.files.lists import write_list
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.lists import listed_runs
from fedflat.bench.training.run_directory import CONFIG, PROVENANCE, RunDirectory
from fedflat.bench.training.train import train_cell
from tests.places import ROOT

QUICK = ROOT / "paper_tables" / "quick" / "experiments.yaml"
CONFIGURATIONS = {
    (path, run.seed): run for path, cell in load_experiment(str(QUICK)).cells().items() for run in cell.runs
}


def _configurations(experiment: str | Experiment, cell: CellAddress) -> dict[int, RunConfig]:
    """Those of the runs of a cell by seed; empty if quick has no such cell."""
    if experiment == "quick":
        return {seed: run for (path, seed), run in CONFIGURATIONS.items() if path == cell.path}
    experiment = load_experiment(experiment) if isinstance(experiment, str) else experiment
    return {run.seed: run for run in experiment.cell(cell.path).runs}


CONFIGURED = load_analyses(str(QUICK))
HARD = Setting("digits", "dirichlet-0.1", "4-of-20")


@pytest.fixture
def quick() -> Experiment:
    return load_experiment("quick")


def tidy_in(results: Path, experiment: Experiment) -> Tidy:
    """The tidy files of an experiment with quick's analyses."""
    return Tidy(results, experiment, CONFIGURED)


def write(
    results: Path,
    cell: CellAddress,
    file: str,
    frame: pd.DataFrame,
    *,
    experiment: str | Experiment = "quick",
    analysis: Analysis | None = None,
) -> Path:
    """Write rows of one kind as pipelines do: into run directories, with a list. Returns the list, or the split.

    `analysis`: with its options, if it is not that of quick.
    """
    paths, rows, configurations = ResultPaths(results), [], _configurations(experiment, cell)
    path = paths.tidy(experiment if isinstance(experiment, str) else experiment.name, cell.path, file)
    if file == "partition":
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(path, index=False)
        return path
    for seed, own in frame.groupby("seed", sort=False):
        config = configurations.get(seed)
        identity = "0" * 16 if config is None else config.identity
        run = paths.store / cell.path / f"seed-{seed}" if config is None else paths.run(config)
        if file == "metrics":
            write_run(run, identity, own)
            about = {"label": cell.method, "seed": str(seed), "identity": identity}
            rows.append({**about, "path": str(run.relative_to(results)), "training": ""})
        else:
            kind = analysis or CONFIGURED[file]
            stored = stored_file(run, kind)
            stored.parent.mkdir(parents=True, exist_ok=True)
            columns = list(dict.fromkeys([*own.columns, *kind.columns]))  # with those that it has nothing for
            own.reindex(columns=columns).assign(
                identity=identity,
                options=name_value_pairs(kind.options().items()),
                compared_with="",
                code=analysis_fingerprint(kind.name),
            ).to_csv(stored, index=False)
            rows.append(list_row(results, int(seed), identity, stored))
    write_list(path, rows)
    return path


def write_run(run: Path, identity: str, frame: pd.DataFrame) -> None:
    """Write what is read of a run for tables and figures."""
    run.mkdir(parents=True, exist_ok=True)
    missing = frame.get("missing_images", pd.Series([0])).fillna(0).iloc[0]
    code = str(frame["code"].iloc[0]) if "code" in frame else code_fingerprint()
    about = {"outcome": "finished", "identity": identity, "code": {"fingerprint": code}}
    write_checked_json(run / PROVENANCE, {**about, "missing_images": int(missing)})
    own = frame.drop(columns=["seed", "missing_images", "code", "identity"], errors="ignore")
    others = ("active", "lr", "download", "upload", "client_state", "server_state", "gradients")
    unused = [name for name in others if name not in own]
    write_csv(run / "metrics.csv", own.reindex(columns=[*own.columns, *unused]))
    (run / CONFIG).write_text("{}", encoding="utf-8")


def read_rows(list_file: Path) -> pd.DataFrame:
    """The rows of all files that a list names."""
    results, tables = results_of(list_file), []
    for row in pd.read_csv(list_file, dtype={"identity": str}).to_dict("records"):
        place = results / row["path"]
        ids = {"seed": row["seed"], "identity": row["identity"]}
        if place.is_dir():
            ids["code"] = RunDirectory(place).fingerprint
        tables.append(pd.read_csv(place / "metrics.csv" if place.is_dir() else place).assign(**ids))
    return pd.concat(tables, ignore_index=True)


def run_of(results: Path, experiment: str, cell: str, seed: int = 0) -> Path:
    """The directory of a run that an experiment lists."""
    paths = ResultPaths(results)
    return next(one.place for one in listed_runs(paths.runs(experiment, cell), results, "") if one.seed == seed)


def write_rows(list_file: Path, frame: pd.DataFrame) -> None:
    """Write rows, in columns as those of `read_rows`, to the files of a list, by seed; others get no rows."""
    results, rows = results_of(list_file), pd.read_csv(list_file, dtype=str)
    for seed, path in zip(rows["seed"], rows["path"], strict=True):
        own = frame[frame["seed"] == int(seed)]
        if (results / path).is_dir():
            write_run(results / path, str(own["identity"].iloc[0]), own)
        else:
            own.to_csv(results / path, index=False)
    identities = frame.drop_duplicates("seed").set_index("seed")["identity"]
    rows["identity"] = [
        str(identities.get(int(seed), old)) for seed, old in zip(rows["seed"], rows["identity"], strict=True)
    ]
    write_list(list_file, rows.to_dict("records"))


def metrics(
    finals: Sequence[float], *, rounds: int = 4, every: int = 2, diverged: dict[int, int] | None = None
) -> pd.DataFrame:
    """One run per final accuracy, rising linearly to it; `diverged` maps seeds to the round they end in."""
    rows = []
    for seed, final in enumerate(finals):
        end = (diverged or {}).get(seed)
        for r in range(1, (end or rounds) + 1):
            bad, evaluated = r == end, r % every == 0 or r == rounds
            value = final * r / rounds if evaluated and not bad else None
            loss = None if value is None else 2 - value / 100
            rows.append((seed, r, 4, 0.1, None if bad else 2 / r, 0.5 / r, loss, value, loss, value, int(bad)))
    names = "seed round active lr local_loss client_drift train_loss train_accuracy test_loss test_accuracy diverged"
    return pd.DataFrame(rows, columns=names.split())


@pytest.fixture
def realistic(realistic_files: Path, tmp_path: Path, quick: Experiment) -> Tidy:
    """A copy of `realistic_files`, which the test may change."""
    return tidy_in(shutil.copytree(realistic_files, tmp_path / "results"), quick)


@pytest.fixture(scope="session")
def realistic_files(once: Callable[[Callable[[Path], object]], Path]) -> Path:
    """Results of every cell of quick but FedGF's at Dirichlet 0.1; one run of FedDyn diverged."""
    return once(_write_realistic)


def _write_realistic(results: Path) -> None:
    rng, quick = np.random.default_rng(0), load_experiment(str(QUICK))
    for place, (rank, method) in itertools.product(quick.settings, enumerate(quick.methods)):
        if method == "fedgf" and place.partition == "dirichlet-0.1":
            continue
        cell = CellAddress(place, method)
        hard = (place.partition == "dirichlet-0.1") * 6 + (place.participation == "4-of-20") * 3
        write(
            results,
            cell,
            "metrics",
            _metrics(cell, rng, final=96 - hard + 0.25 * rank, speed=4 + hard + rank % 5),
        )
        write(results, cell, "partition", _partition(place))
        if place.participation == "4-of-20":
            _write_analyses(results, cell, rng, sharp=(14 - rank) / 10)


def _metrics(cell: CellAddress, rng: np.random.Generator, final: float, speed: float) -> pd.DataFrame:
    gone = {2: 35} if cell.setting == HARD and cell.method == "feddyn" else {}
    frame = metrics([0, 0, 0], rounds=60, diverged=gone)
    r = frame["round"].to_numpy()
    end = final + rng.normal(0, 0.6, 3)[frame["seed"]]
    accuracy = end - (end - 10) * np.exp(-r / speed) + rng.normal(0, 3, len(r)) * np.exp(-r / 30)
    return frame.assign(test_accuracy=np.where(frame["test_accuracy"].isna(), np.nan, accuracy))


def _partition(place: Setting) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    alpha = float(place.partition.removeprefix("dirichlet-"))
    rows = []
    for client, p in enumerate(rng.dirichlet(np.full(10, alpha), 20)):
        rows += [(client, client * 72 + i, label) for i, label in enumerate(rng.choice(10, 72, p=p))]
    return pd.DataFrame(rows, columns=["client", "index", "label"])


def _write_analyses(results: Path, cell: CellAddress, rng: np.random.Generator, sharp: float) -> None:
    seeds, axis = range(3), np.linspace(-1, 1, 21)
    centres = {
        "hessian": {"lambda_max": 40 * sharp, "lambda_ratio_1_5": 1.4 + sharp, "lambda_residual": 1e-6},
        "flatness": {"lpf": 0.2 * sharp, "sharpness": 0.1 * sharp},
        "discrepancy": {"flatness_discrepancy": 0.5 * sharp},
    }
    for file, centre in centres.items():
        flat = [(s, name, value * rng.normal(1, 0.05), None) for s in seeds for name, value in centre.items()]
        write(results, cell, file, pd.DataFrame(flat, columns=["seed", "metric", "value", "stderr"]))

    costs = {
        "transmissions_per_round": 2,
        "gradients_per_step": 1,
        "seconds_per_round": 3,
        "train_seconds_per_round": 2,
    }
    of_runs = [(s, name, value * (1 + s / 20)) for s in seeds for name, value in costs.items()]
    write(results, cell, "cost", pd.DataFrame(of_runs, columns=["seed", "metric", "value"]))

    perturbs = cell.method not in {"fedavg", "scaffold", "feddyn"}
    drift = []
    for s, r in itertools.product(seeds, (1, 10, 20, 30, 40, 50, 60)):
        distance = 0.3 + 0.4 * sharp * (1 - np.exp(-r / 20)) + rng.normal(0, 0.02) if perturbs else None
        cosine, length = (1 - 2 * distance**2, 0.1) if distance is not None else (None, None)  # of unit vectors
        sharpness = sharp * (0.1 + 0.5 * np.exp(-r / 15)) * rng.normal(1, 0.05)
        drift.append((s, r, distance, cosine, length, length, sharpness))
    columns = ["seed", "round", "perturbation_drift", "cosine", "local_norm", "gradient_norm", "sharpness"]
    write(results, cell, "drift", pd.DataFrame(drift, columns=columns))

    line = [
        (s, "random", x, d, 0.05 + sharp * x**2 * abs(rng.normal(0.15, 0.02)))
        for s, x, d in itertools.product(seeds, np.linspace(0, 4, 9), range(5))
    ]
    line += [(s, "gradient", x, 0, 0.2 + sharp * (x / 4 + x**2)) for s, x in itertools.product(seeds, (-1, 0, 1, 2))]
    write(results, cell, "perturbation", pd.DataFrame(line, columns=["seed", "direction", "radius", "draw", "loss"]))
    balls = [(s, r, sharp * r * (1 + r) * rng.normal(1, 0.05), sharp * r) for s in seeds for r in (0.1, 0.5, 1)]
    write(results, cell, "sharpness", pd.DataFrame(balls, columns=["seed", "radius", "sharpness", "first_order"]))

    plane = [
        (s, a, b, 0.05 + sharp * (4 * a**2 + 2.5 * b**2 + a * b + 0.6 * np.sin(5 * a) * b**2))
        for s, a, b in itertools.product(seeds, axis, axis)
    ]
    surface = pd.DataFrame(plane, columns=["seed", "a", "b", "loss"])
    write(results, cell, "surface", surface.assign(error=10 * surface["loss"]))


LITTLE = """
name: little
dataset: digits
model: cnn_gn
training: {rounds: 1, local_epochs: 1, batch_size: 45, lr: 0.1}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}, {name: iid, clients: 20}]
  participation: [{active: 4}]
  seeds: [0, 1, 2]
engine: {seeds: apart}
methods:
  fedavg: {}
  fedsam: {hyperparameters: {rho: 0.05}}
  wild: {name: fedavg, training: {lr: 1.0e+38, weight_decay: 1.0e+4}}
"""
"""One round of one local step per client; `wild` diverges in all its runs.

Whether seeds are trained together does not depend on measured times.
"""


def train_all(source: Path, results: Path) -> None:
    """Train every cell of an experiment where the pipeline would."""
    experiment = load_experiment(str(source))
    for cell in experiment.cells().values():
        train_cell(experiment.name, cell, results, prepare_device("cpu", 1), silent)


def analyse(folder: Path, experiment: str, cell: str, name: str, options: dict[str, object]) -> pd.DataFrame:
    """Analyse the runs of a cell as the pipeline would; return the rows."""
    paths = ResultPaths(folder / "results")
    return analysed(paths, experiment, cell, name, parse_analysis(name, options))


def analysed(
    paths: ResultPaths, experiment: str, cell: str, name: str, analysis: Analysis, compared: Sequence[str] = ()
) -> pd.DataFrame:
    """Store an analysis of the listed runs of a cell, and list it under `name`, as the pipeline does; its rows."""
    runs, others = (
        find_runs(paths.lists(experiment, cell)),
        [find_runs(paths.lists(experiment, one)) for one in compared],
    )
    files = store_analysis(analysis, runs, prepare_device("cpu", 1), silent, others)
    write_analysis_list(paths.analysis(experiment, cell, name), runs, files)
    return pd.concat([pd.read_csv(file) for file in files.values()], ignore_index=True)


@pytest.fixture(scope="session")
def little_files(once: Callable[[Callable[[Path], object]], Path]) -> Path:
    """A folder with little.yaml and the results of its 18 runs."""
    return once(_train_little)


def _train_little(folder: Path) -> None:
    (folder / "little.yaml").write_text(LITTLE, encoding="utf-8")
    train_all(folder / "little.yaml", folder / "results")


@pytest.fixture(scope="session")
def stored_little_files(little_files: Path, once: Callable[[Callable[[Path], object]], Path]) -> Path:
    """The same with its runs as the stored grid `tiny`."""

    def store(folder: Path) -> None:
        shutil.copytree(little_files, folder, dirs_exist_ok=True)
        experiment = RequestedExperiment(str(folder / "little.yaml"), folder / "results")
        add([experiment], "tiny", folder / "results" / "baselines" / "tiny")

    return once(store)


@pytest.fixture
def little(little_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `little_files`, which the test may change, and which is the current folder."""
    folder = Path(shutil.copytree(little_files, tmp_path / "little"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def tidy(tmp_path: Path, quick: Experiment) -> Tidy:
    """By hand: FedAvg and FedSAM with equal means; FedLESAM-S lower; FedDyn higher, but one run diverged; no FedGF."""
    runs = {
        "fedavg": metrics([80, 82, 84]),
        "fedsam": metrics([84, 84, 78]),
        "fedlesam_s": metrics([70, 70]),
        "feddyn": metrics([99, 99, 99], diverged={2: 3}),
    }
    for method, frame in runs.items():
        write(tmp_path, CellAddress(HARD, method), "metrics", frame)
    return tidy_in(tmp_path, quick)


def words(caption: Caption) -> str:
    """A caption and its notes as one text."""
    return " ".join([caption.whole, *caption.notes])
