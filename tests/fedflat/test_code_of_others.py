"""No command and no function executes code that a stored run names: every kind of code, in every spelling and place.

Runs of somebody else lie in the results as if they were the wanted ones. Their code, and code of the same names in the
current folder, leaves a trace when it is executed or imported.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import fedflat
from fedflat.analysis.analyses import ANALYSES
from fedflat.analysis.comparison.tuning.source import TuningSource
from fedflat.analysis.provenance.archive import unpack, write_archive
from fedflat.analysis.provenance.verify import verify_run
from fedflat.bench.code.named_code import NamedCode
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.run_config import CODE, METRICS, RunConfig
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.files.lists import write_list
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model
from fedflat.bench.training.current import finished_run
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from fedflat.cli.app import built
from tests import commands
from tests.annotations import classes_below
from tests.places import ROOT
from tests.strangers import LEAVES_A_TRACE, become_another_user, executed
from tests.tiers import thorough

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"
SMALL = {
    "training.rounds": 1,
    "training.local_epochs": 1,
    "grid.seeds": [0],
    "grid.partition": [{"name": "dirichlet", "alpha": 0.1, "clients": 20}, {"name": "iid", "clients": 20}],
    "grid.participation": [{"active": 4}],
    "evaluation.snapshot_every": 1,
    "evaluation.local_models": "last",
    "engine.backend": "loop",
}
SET = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]

SOURCES = {
    "dataset": """
from sklearn.datasets import load_digits

def build():
    x, y = load_digits(return_X_y=True)
    x = x.astype("float32").reshape(-1, 1, 8, 8)
    return {"x_train": x[:1000], "y_train": y[:1000], "x_test": x[1000:], "y_test": y[1000:]}
""",
    "model": """
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
""",
    "method": """
from fedflat.bench.methods.perturbations.sam import SAM
from fedflat.bench.methods.recipe import Components, Recipe

METHOD = Recipe("mine", "Mine", "a test", Components(SAM))
""",
    METRICS: """
def tenth(accuracies):
    return sorted(accuracies)[len(accuracies) // 10]
""",
}
"""By section of a run's configuration, code of each kind."""

NAMED = {
    "dataset": "dataset: code.py:build",
    "model": "model: code.py:build",
    "method": "methods: {mine: {file: code.py, hyperparameters: {rho: 0.1}}}",
    METRICS: "evaluation: {metrics: [macro_f1, code.py:tenth]}",
}
"""By section, how an experiment names it."""

Fields = Any
Spelling = Callable[[dict[str, Any], Path], Fields]

SPELLINGS: Mapping[str, Mapping[str, Spelling]] = {
    "dataset": {
        "as it is stored": lambda fields, run: fields,
        "file, short": lambda fields, run: {"name": f"{run}/dataset.py:build"},
        "module, short": lambda fields, run: {"name": "evil.dataset:build"},
        "module": lambda fields, run: {"name": "function", "module": "evil_dataset", "function": "build"},
        "module without function": lambda fields, run: {"module": "evil.dataset"},
        "no hash": lambda fields, run: {**fields, "code": None},
    },
    "model": {
        "as it is stored": lambda fields, run: fields,
        "file, short": lambda fields, run: f"{run}/model.py:build",
        "module, short": lambda fields, run: "evil.model:build",
        "module": lambda fields, run: {"module": "evil_model", "function": "build"},
    },
    "method": {
        "as it is stored": lambda fields, run: fields,
        "other file": lambda fields, run: {**fields, "file": "evil_method.py", "code": None},
    },
    METRICS: {
        "as it is stored": lambda fields, run: fields,
        "file, short": lambda fields, run: [f"{run}/metric_tenth.py:tenth"],
        "module, short": lambda fields, run: ["macro_f1", "evil.metrics:tenth"],
        "module": lambda fields, run: [{"module": "evil_metrics", "function": "tenth"}],
    },
}
"""By section, what a stored configuration may have there. All have the identity of the run that was trained."""

FORGED = [(section, spelling) for section, spellings in SPELLINGS.items() for spelling in spellings]


def wanted() -> Experiment:
    return load_experiment("quick", SMALL)


@pytest.fixture(scope="module")
def made_elsewhere(tmp_path_factory) -> Path:
    """A folder with a cell of each kind of code, with one run, that another user has trained."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        become_another_user(folder / "cache", patch)
        for section in CODE:
            own = folder / "own" / section  # such as evaluation.metrics
            own.mkdir(parents=True)
            (own / "code.py").write_text(LEAVES_A_TRACE + SOURCES[section], encoding="utf-8")
            file = own / "experiments.yaml"
            file.write_text(f"name: of_{word(section)}\nextends: quick\n{NAMED[section]}\n", encoding="utf-8")
            experiment = load_experiment(str(file), SMALL)
            method = "mine" if section == "method" else "fedavg"
            path, *_ = [path for path in experiment.paths() if path.endswith(f"/{method}")]
            results = folder / f"results-{section}"
            train_cell(experiment.name, experiment.cell(path), results, CPU, lambda line: None).rename(folder / section)
    return folder


@pytest.fixture(scope="module")
def sent(made_elsewhere, tmp_path_factory) -> Path:
    """A folder with forged runs, and with modules that they name.

    Those in theirs/ have their own identity. In results/, they have that of the wanted run in this place. The winners
    of a search name code, too.
    """
    folder = tmp_path_factory.mktemp("sent")
    (folder / "evil").mkdir()
    (folder / "evil" / "__init__.py").write_text(LEAVES_A_TRACE, encoding="utf-8")
    for section, source in SOURCES.items():
        for file in (folder / f"evil_{word(section)}.py", folder / "evil" / f"{word(section)}.py"):
            file.write_text(LEAVES_A_TRACE + source, encoding="utf-8")
    cells = list(wanted().cells().values())
    assert len(cells) >= len(FORGED), "one cell for each spelling"
    for cell, (section, spelling) in zip(cells, FORGED, strict=False):
        for results in ("results", "theirs"):
            paths, instead_of = ResultPaths(Path(results)), cell.runs[0] if results == "results" else None
            place = paths.run(cell.runs[0])
            shutil.copytree(made_elsewhere / section / "seed-0", folder / place)
            forge(folder, place, section, SPELLINGS[section][spelling], instead_of)
            about = {"label": cell.address.method, "seed": "0", "identity": cell.runs[0].identity, "training": ""}
            write_list(folder / paths.runs("quick", cell.path), [{**about, "path": str(place.relative_to(paths.root))}])
    for place in sorted((folder / "theirs" / "store").glob("*/*/*/*")):  # and in the earlier layout
        setting, method = place.relative_to(folder / "theirs" / "store").parent, place.name.rpartition("-")[0]
        shutil.copytree(place, folder / "earlier" / "runs" / "quick" / setting / method, dirs_exist_ok=True)
    searched = ResultPaths(folder / "results").search("flat1d")
    searched.mkdir(parents=True)
    (searched / "code.py").write_text(LEAVES_A_TRACE + SOURCES["method"], encoding="utf-8")
    winners = f"name: flat1d_t1000\nextends: quick\n{NAMED['method']}\n"
    (searched / "flat1d_t1000.yaml").write_text(winners, encoding="utf-8")
    return folder


@pytest.fixture
def received(sent, tmp_path, monkeypatch) -> Path:
    """That folder as the current one of a user who has received it, and has trusted nothing."""
    become_another_user(tmp_path / "cache", monkeypatch)
    folder = Path(shutil.copytree(sent, tmp_path / "received"))
    executed(folder)
    monkeypatch.chdir(folder)
    return folder


def word(section: str) -> str:
    """The name of a section for files and experiments."""
    return section.rpartition(".")[2]


def changed(config: Mapping[str, Any], section: str, change: Callable[[Fields], Fields]) -> dict[str, Any]:
    """A configuration with another section, which may be below one: evaluation.metrics."""
    outer, _, inner = section.partition(".")
    return {**config, outer: changed(config[outer], inner, change) if inner else change(config.get(outer))}


def forge(folder: Path, run: Path, section: str, spelling: Spelling, instead_of: RunConfig | None) -> None:
    """Write the code of a run in this spelling, and make it look like the run of another configuration, if any."""
    config = read_checked_json(folder / run / "config.json", "")
    write_checked_json(folder / run / "config.json", changed(config, section, lambda fields: spelling(fields, run)))
    if instead_of is not None:
        about = read_checked_json(folder / run / "provenance.json", "")
        write_checked_json(folder / run / "provenance.json", {**about, "identity": instead_of.identity})


def one_of_each_kind(turn: int) -> list[str]:
    """Paths of forged cells: a spelling of each kind of code, another one in the next turn."""
    of_kind = [[spelling for spelling in FORGED if spelling[0] == section] for section in SPELLINGS]
    chosen = [spellings[turn % len(spellings)] for spellings in of_kind]
    return [path for path, spelling in zip(paths(), FORGED, strict=True) if spelling in chosen]


def paths() -> list[str]:
    return wanted().paths()[: len(FORGED)]


def folders(paths: Sequence[str]) -> list[str]:
    """The cells of the runs that look like those of others."""
    return [str(ResultPaths(Path("theirs")).run(wanted().cell(path).runs[0]).parent) for path in paths]


BASELINES = ["--baselines", str(ROOT / "results" / "baselines" / "bench1d")]

OF_RUNS: Mapping[str, Callable[[Sequence[str]], Sequence[Sequence[str]]]] = {
    "run": lambda paths: [
        *(["run", "quick", path, *SET, "--device", "cpu"] for path in paths),
        *(["run", "quick", path, *SET, "--device", "cpu", "--replace", "--results", "new"] for path in paths[:1]),
        *(["run", "quick", path, *SET, "--device", "cpu", "--list", "--results", "theirs"] for path in paths),
    ],
    "tune": lambda paths: [["tune", "quick", paths[0], *SET, "--trials", "2", "--device", "cpu"]],
    "search": lambda paths: [["search", "flat1d", "main/fedavg/1000", "--device", "cpu", "--hours", "0.000001"]],
    "tuning-report": lambda paths: [["tuning-report", "quick", "--runs", *SET]],
    "analyse": lambda paths: [
        *(["analyse", "sharpness", folder, "--device", "cpu"] for folder in folders(paths)),
        *(["analyse", name, folders(paths)[1], "--device", "cpu"] for name in ANALYSES),
        ["analyse", "interpolation", folders(paths)[0], "--compare-with", folders(paths)[1], "--device", "cpu"],
    ],
    "table": lambda paths: [["table", "quick", "accuracy", *SET]],
    "figure": lambda paths: [["figure", "quick", "convergence", *SET]],
    "report": lambda paths: [["report", "quick", *SET]],
    "explore": lambda paths: [["explore", "quick", *SET]],
    "summary": lambda paths: [["summary", "quick", *SET]],
    "study": lambda paths: [["study", "quick", "--runs", *SET]],
    "compare": lambda paths: [
        *(["compare", path.rpartition("/")[2], "--grid", "quick", *SET, *BASELINES] for path in paths),
        *(
            ["compare", path.rpartition("/")[2], "--grid", "quick", *SET, *BASELINES, "--results", "theirs"]
            for path in paths
        ),
    ],
    "verify": lambda paths: [["verify", folder, "--device", "cpu"] for folder in ("results/store", *folders(paths))],
    "runs": lambda paths: [["runs"], ["runs", "--results", "theirs", "--experiment", "quick"]],
    "take-over": lambda paths: [["take-over", "--results", "earlier"]],
    "export": lambda paths: [["export", "quick_table_accuracy", "quick_runs", *SET, "--models"]],
    "import": lambda paths: [["import", "archive.zip"]],
    "plan": lambda paths: [["plan", "quick_table_accuracy", "--rounds", "1", "--seed", "0", "--device", "cpu"]],
    "claims": lambda paths: [["claims", "fedgf", "--set", "training.rounds=1"]],
    "baselines add": lambda paths: [
        ["baselines", "add", "quick", "--grid", "quick", *SET, "--without-analyses", "--baselines", "stored"]
    ],
    "baselines add-trials": lambda paths: [
        ["baselines", "add-trials", "quick", "--grid", "quick", *SET, "--baselines", "stored"]
    ],
    "baselines add-search": lambda paths: [["baselines", "add-search", "flat1d", "--baselines", "stored"]],
    "data split": lambda paths: [["data", "split", "quick", paths[0], *SET]],
}
"""By command that may read runs, the command lines that are tried with forged cells."""

READS_NO_RUNS = {
    "analyses": "lists the analyses",
    "baselines show": "reads the tables of stored runs",
    "baselines verify": "see test_stored_baselines_name_no_code",
    "check-method": "executes the method that is its argument",
    "data check": "executes the data set that is its argument",
    "data list": "reads the folder of data sets",
    "data partition": "draws partitions of an experiment",
    "data prepare": "executes the data set that is its argument",
    "init": "writes files",
    "methods": "executes the method that is its argument",
    "new-method": "writes a file",
    "published": "reads published numbers",
    "schema": "prints a schema",
    "versions": "reads no file of a user",
    "weights download": "reads the folder of data sets",
    "weights list": "reads the folder of data sets",
}
"""Every other command, and why no run matters to it."""


def leaves(group: Any, name: str = "") -> Iterator[str]:
    """The names of all commands."""
    for word, command in group.commands.items():
        inner = f"{name} {word}".strip()
        yield from leaves(command, inner) if hasattr(command, "commands") else [inner]


def test_every_command_is_tried_or_reads_no_runs():
    assert sorted(leaves(built())) == sorted([*OF_RUNS, *READS_NO_RUNS])


@pytest.mark.long
@pytest.mark.parametrize("every_spelling", [False, pytest.param(True, marks=thorough)])
@pytest.mark.parametrize("command", OF_RUNS)
def test_no_command_executes_code_of_stored_runs(command, every_spelling, received):
    """It ends well or with a line; it is tried on the received folder and on the same in an archive."""
    chosen = paths() if every_spelling else one_of_each_kind(list(OF_RUNS).index(command))
    if command == "import":
        files = {str(file.relative_to(received)): file for file in sorted(received.rglob("*")) if file.is_file()}
        write_archive(received / "archive.zip", {name: file for name, file in files.items() if name != "archive.zip"})
    for words in OF_RUNS[command](chosen):
        done = commands.fedflat(*words)
        assert done.returncode in (0, 2), done
        assert "Traceback" not in done.stderr + done.stdout, done
        assert executed(received) == [], words


@pytest.mark.long
def test_no_snakemake_job_executes_code_of_stored_runs(received):
    words = ["snakemake", "--cores", "1", "--dry-run", "quick_table_accuracy", "--config", "rounds=1", "seeds=[0]"]
    done = commands.run(words)
    assert done.returncode in (0, 1, 2), done
    assert executed(received) == []


OF_PYTHON: Mapping[str, Callable[[], object]] = {
    "runs": lambda: fedflat.runs("quick", overrides=SMALL),
    "metrics": lambda: fedflat.metrics("quick", overrides=SMALL),
    "client_accuracies": lambda: fedflat.client_accuracies("quick", overrides=SMALL),
    "analysis_values": lambda: fedflat.analysis_values("quick", "sharpness", overrides=SMALL),
    "load_run": lambda: [tried(lambda run=run: fedflat.load_run(run).config) for run in stored_runs()],
    "load_model": lambda: [tried(lambda run=run: fedflat.load_model(run)) for run in stored_runs()],
    "Run": lambda: [tried(lambda run=run: fedflat.Run(run).data()) for run in stored_runs()],
}
TAKES_NO_RUNS = {
    "EngineChoice", "SimulationResult", "UserError", "__version__",
    "hessian", "sharpness", "simulate", "surface", "tensorboard",
}  # fmt: skip
"""Names of the Python API that take no experiment and no path of a run."""


def stored_runs() -> list[Path]:
    return [Path(folder) / "seed-0" for folder in folders(paths())]


def tried(read: Callable[[], object]) -> str:
    """The line with which a function refuses."""
    try:
        read()
    except UserError as error:
        return str(error)
    return ""


def test_every_function_is_tried_or_takes_no_runs():
    assert sorted(fedflat.__all__) == sorted([*OF_PYTHON, *TAKES_NO_RUNS])


@pytest.mark.parametrize("name", OF_PYTHON)
def test_no_function_executes_code_of_stored_runs(name, received):
    tried(OF_PYTHON[name])
    assert executed(received) == []


def test_no_reader_of_runs_executes_their_code(received):
    """Each run is refused in one line."""
    for run, cell, (_, spelling) in zip(stored_runs(), wanted().cells().values(), FORGED, strict=False):
        expected = "verified in part" if spelling == "as it is stored" else "differs"
        other = cell.runs[0].with_seed(1)
        for read in (
            lambda run=run: RunDirectory(run).config,
            lambda run=run, other=other: finished_run(run, other),
        ):
            assert len(tried(read).splitlines()) == 1
        verdict = str(verify_run(run, 1, lambda _: CPU))
        assert len(verdict.splitlines()) == 1
        assert f"{run}: {expected}" in verdict
        assert "rounds" not in verdict.partition("not verified")[0]
    assert executed(received) == []


@pytest.mark.parametrize("section", CODE)
def test_trusted_runs_are_read(section, made_elsewhere, tmp_path, monkeypatch):
    """With `trust`, or if an own experiment has named a file with the same content."""
    become_another_user(tmp_path / "cache", monkeypatch)
    run = Path(shutil.copytree(made_elsewhere / section, tmp_path / "cell")) / "seed-0"
    assert "is code that no experiment here has named" in tried(lambda: fedflat.load_run(run).config)
    load_experiment(str(made_elsewhere / "own" / section / "experiments.yaml"), SMALL)
    executed(made_elsewhere)
    assert fedflat.load_run(run).config.seed == 0
    become_another_user(tmp_path / "another cache", monkeypatch)
    assert fedflat.load_run(run, trust=True).config.seed == 0
    assert executed(made_elsewhere) == []


# New kinds of code


def test_every_configuration_that_names_code_is_a_section_of_a_run():
    """So the gate for stored configurations, which goes through the sections, knows it; and it is tried above."""
    assert {cls for cls in classes_below(RunConfig) if issubclass(cls, NamedCode)} == set(CODE.values())
    assert set(SOURCES) == set(NAMED) == set(SPELLINGS) == set(CODE)


# Stored experiments, and modules that code imports


def test_a_stored_search_executes_no_code(received):
    """Snakemake and the report on tuning read results/tuning/EXPERIMENT/tuned.yaml, which may be somebody else's."""
    tuned = ResultPaths(Path("new")).tuned("quick")
    tuned.parent.mkdir(parents=True)
    method = f"mine: {{file: {received}/evil_method.py, hyperparameters: {{rho: 0.1}}}}"
    tuned.write_text(f"name: quick_tuned\nextends: quick\nmethods: {{{method}}}\n", encoding="utf-8")
    table = ResultPaths(Path("new")).runs("quick_tuned", f"{SETTING}/mine")
    done = commands.run(["snakemake", "--cores", "1", "--dry-run", str(table), "--config", "results=new"])
    assert done.returncode == 2, done
    assert "evil_method.py' is code that no experiment here has named: read it, and allow it with a comm" in done.stderr
    source = TuningSource("quick", Path("new"), {}, from_runs=True)
    with pytest.raises(UserError, match="is code that no experiment here has named"):
        _ = source.tuned_experiment.experiment
    assert executed(received) == []
    commands.fedflat("summary", tuned)  # the user names the experiment
    assert executed(received) == ["evil_method.py"]
    assert source.tuned_experiment.experiment.name == "quick_tuned"


def test_stored_baselines_name_no_code(received):
    from fedflat.analysis.provenance.stored_runs import configuration

    for section, spelling in FORGED:
        run = next(Path().glob("results/store/*/*/*/*/seed-0"))
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        clean = json.loads(wanted().cell(paths()[0]).runs[0].canonical_json())
        metric = {"file": f"{run}/metric_tenth.py", "function": "tenth", "code": "0" * 16}
        own = [metric] if section == METRICS else config[section]
        fields = SPELLINGS[section][spelling](own, run) if isinstance(own, dict | list) else None
        forged = changed(clean, section, lambda _, fields=fields: fields)
        stored = {"configuration": json.dumps(forged), "seed": 0, "identity": "any"}
        assert tried(lambda stored=stored: configuration(stored))
    assert executed(received) == []


def test_trusted_code_imports_no_other_code_of_the_current_folder(tmp_path, monkeypatch):
    """The user trusts a model that imports a module; the folder of somebody else has another module of this name."""
    become_another_user(tmp_path / "cache", monkeypatch)
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder, parts in ((mine, "WIDTH = 9\n"), (theirs, LEAVES_A_TRACE + "WIDTH = 8\n")):
        (folder / "nets").mkdir(parents=True)
        (folder / "nets" / "__init__.py").touch()
        (folder / "nets" / "parts.py").write_text(parts, encoding="utf-8")
        source = SOURCES["model"].replace("from torch", "from .parts import WIDTH\nfrom torch")
        (folder / "nets" / "net.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(mine)
    config = load_experiment("quick", {**SMALL, "model": "nets.net:build"}).cell(paths()[0]).runs[0]
    build_model(config.model, (1, 8, 8), 10, 0)
    monkeypatch.chdir(theirs)
    for module in ("nets", "nets.parts"):
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UserError, match=r"the module '.*parts.py' is code that no experiment here has named"):
        build_model(config.model, (1, 8, 8), 10, 0)
    assert executed(theirs) == []


def test_an_archive_is_unpacked_without_executing_anything(received, tmp_path):
    write_archive(tmp_path / "one.zip", {"results/dataset.py": received / "evil_method.py"})
    unpack(tmp_path / "one.zip", tmp_path / "unpacked")
    assert executed(tmp_path) == []
