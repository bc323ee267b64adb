"""What the store has: it is found by values and by experiments, and removed in one piece."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedflat.analysis.store.deleting import delete, experiments_with
from fedflat.analysis.store.listing import as_table
from fedflat.analysis.store.stored import StoredRun, content, short_names, stored_runs
from fedflat.analysis.store.where import conditions, selected
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.train import train_cell
from fedflat.results import runs
from tests.commands import fedflat, refused

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
TINY = {"training.rounds": 1, "grid.seeds": [0, 1]}
RHO = "methods.fedsam.hyperparameters.rho"


@pytest.fixture(scope="module")
def variations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of quick and of its copy, with two radii, another seed and another partition: six configurations."""
    results = tmp_path_factory.mktemp("store") / "results"
    changes: list[tuple[str | None, str, dict[str, object]]] = [
        ("quick", CELL, {}),
        ("copy", CELL, {}),
        (None, CELL, {RHO: 0.01}),
        (None, CELL, {RHO: 0.2}),
        (None, CELL, {"grid.seeds": [7]}),
        ("quick", CELL.replace("fedsam", "fedavg"), {}),
        (None, CELL.replace("0.1", "0.6"), {}),
    ]
    for name, cell, change in changes:
        train_cell(name, load_experiment("quick", {**TINY, **change}).cell(cell), results, torch.device("cpu"), str)
    return results


@pytest.fixture
def paths(variations: Path, tmp_path: Path) -> ResultPaths:
    return ResultPaths(Path(shutil.copytree(variations, tmp_path / "results")))


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("", 11),
        ("method=fedsam", 9),
        ("method = fedsam , rho>0.05", 2),
        ("rho>=0.05", 7),
        ("rho<0.05", 2),
        ("rho!=0.05", 4),
        ("rho!=5e-2", 4),
        ("rho=5e-2", 5),
        ("rho=0.01|0.2", 4),
        ("alpha=0.6", 2),
        ("partition.alpha=0.1, seed=7", 1),
        ("training.rounds=1, model=cnn_gn", 11),
        ("participation=4-of-20, dataset=digits, method=fedavg", 2),
        ("rounds>1", 0),
        ("score>0, days<1, MiB<100", 11),
        ("score>101", 0),
    ],
)
def test_conditions_select_runs(variations: Path, where: str, count: int) -> None:
    assert len(selected(stored_runs(ResultPaths(variations)), where)) == count


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("rh=1", "unknown value of runs 'rh'; did you mean 'rho'.*, rounds, .*, weight_decay"),
        ("hyperparameters.rho=1", "did you mean 'rho'"),
        ("methods.fedsam.hyperparameters.rho>1", "did you mean 'rho'"),
        ("method=fedsam rho=0.1", r"--where 'method=fedsam rho=0.1' \(allowed: .* with commas between them"),
        ("method=fedsm", r"unknown method of runs 'fedsm'; did you mean 'fedsam'\? \(allowed: fedavg, fedsam\)"),
        ("method=fedavg|fed*", r"unknown method of runs 'fed\*'"),
        ("method!=fedsm", "unknown method of runs 'fedsm'"),
        ("model=cnn_gm", "unknown model of runs 'cnn_gm'; did you mean 'cnn_gn'"),
        ("rho", r"--where 'rho' \(allowed: conditions with"),
        ("rho=", r"--where 'rho=' \(allowed"),
        ("rho=1|", r"--where 'rho=1\|' \(allowed"),
        ("rho==1", r"--where .rho==1. \(allowed"),
        ("rho>a", r"--where .rho>a. \(allowed after >: a number\)"),
    ],
)
def test_mistakes_in_conditions_are_one_line(variations: Path, where: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        selected(stored_runs(ResultPaths(variations)), where)


def test_a_hash_is_a_text_even_if_it_looks_like_a_number(variations: Path) -> None:
    [run, *_] = stored_runs(ResultPaths(variations))
    for digits in ("00123456", "1e234567"):
        renamed = StoredRun(run.place.parent.with_name(f"fedsam-{digits}") / "seed-0", run.config)
        renamed.__dict__["about"] = {**run.about, "hash": digits}
        assert selected([renamed], f"hash={digits}") == [renamed]


def test_conditions_are_read_as_yaml() -> None:
    assert conditions("a=0.1, b=null|x") == [("a", "=", (0.1,)), ("b", "=", (None, "x"))]


def test_an_experiment_has_the_runs_of_its_lists_and_no_others(variations: Path) -> None:
    quick, copy = (stored_runs(ResultPaths(variations), name) for name in ("quick", "copy"))
    assert (len(quick), len(copy)) == (4, 2)
    assert {run.place for run in copy} < {run.place for run in quick}, "one folder for both"
    with pytest.raises(UserError, match=r"unknown experiment with lists in .* 'quik'; did you mean 'quick'"):
        stored_runs(ResultPaths(variations), "quik")


def test_a_table_shows_what_differs(variations: Path) -> None:
    header, *lines = (line.split("  ") for line in as_table(stored_runs(ResultPaths(variations))))
    words = [[word.strip() for word in line if word.strip()] for line in (header, *lines)]
    assert words[0] == [
        "dataset",
        "partition",
        "participation",
        "method",
        "rho",
        "seeds",
        "score",
        "MiB",
        "days",
        "hash",
    ]
    assert len(lines) == 5, "a line for each configuration, with all its seeds"
    assert sorted(line[4] for line in words if line[3] == "fedsam" and line[1] == "dirichlet-0.1") == [
        "0.01",
        "0.05",
        "0.2",
    ]
    assert any("0, 1, 7" in line for line in words)


def test_names_of_values_do_not_depend_on_what_the_store_has(variations: Path) -> None:
    [run, *_] = stored_runs(ResultPaths(variations))
    other = StoredRun(run.place, {**run.config, "method": {"hyperparameters": {"alpha": 0.5, "rho": 1}}})
    assert short_names([run])["partition.alpha"] == short_names([run, other])["partition.alpha"] == "alpha"
    assert (short_names([other])["method.alpha"], short_names([other])["method.rho"]) == ("method.alpha", "rho")
    assert selected([other], "alpha=0.5") == []
    assert selected([other], "method.alpha=0.5") == [other]


def test_without_a_store_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "below" / "results").mkdir(parents=True)
    line = refused("runs", "--results", tmp_path / "below" / "results")
    assert line.endswith(f"'{tmp_path}/below/results/store' does not exist: no run is finished here")
    (tmp_path / "results" / "store").mkdir(parents=True)
    line = refused("runs", cwd=tmp_path / "below")
    assert line.endswith(
        f"(the nearest results above are in '{tmp_path}/results'; --results {tmp_path}/results uses them)"
    )


def test_removed_runs_are_gone_and_their_experiments_are_named(paths: ResultPaths) -> None:
    found = [run.place for run in selected(stored_runs(paths), "method=fedsam, rho=0.05, alpha=0.1")]
    assert experiments_with(found, paths) == {"copy": 2, "quick": 2}
    with folder_lock(found[0]):
        [line] = delete(found, paths)
    assert line == f"'{found[0]}' is left: another process uses it"
    assert [place.exists() for place in found] == [True, False, False]
    assert delete(found[:1], paths) == []
    assert not found[0].parent.exists(), "no empty folder, and nothing hidden in it"
    assert len(stored_runs(paths)) == 8


def test_the_command(paths: ResultPaths) -> None:
    options = ["--results", paths.root]
    done = fedflat("runs", "--where", "rho=0.01", *options)
    assert done.stdout.splitlines()[-1].endswith("MiB; 9 others not chosen")
    [first, _] = fedflat("runs", "--where", "rho=0.01", "--paths", *options).stdout.splitlines()
    assert (Path(first) / "config.json").is_file()
    done = fedflat("runs", "--where", "alpha=0.1, rho=0.05", "--delete", "--yes", *options)
    assert "experiment quick loses 2 runs" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 runs removed"
    tiny = [f"--set={key}={value}" for key, value in TINY.items()]
    done = fedflat("table", "quick", "accuracy", *tiny, *options)
    assert done.returncode == 0, "the other cell is shown"
    assert "which is missing: write it again with: snakemake" in done.stderr
    table = (paths.report("quick").folder / "tables" / "accuracy.csv").read_text(encoding="utf-8")
    assert "fedavg" in table.lower()


@pytest.fixture
def broken(paths: ResultPaths) -> tuple[ResultPaths, list[Path], list[Path]]:
    """The store with two damaged runs, an unfinished one, and one that a killed process was removing."""
    changed, without, *_ = [run.place for run in selected(stored_runs(paths), "rho=0.05, alpha=0.1")]
    file = changed / "config.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"rho": 0.05', '"rho": 0.5'), encoding="utf-8")
    (without / "config.json").unlink()
    work, removed = changed.with_name("seed-5.partial-01234567"), changed.with_name(".seed-0.replaced-01234567")
    work.mkdir()
    shutil.copytree(without, removed)
    return paths, [changed, without], [removed, work]


def test_damaged_and_unfinished_runs_are_named_and_no_value_of_them_is_believed(broken) -> None:
    paths, damaged, unfinished = broken
    found = content(paths)
    assert (len(found.runs), found.damaged, found.unfinished) == (9, damaged, unfinished)
    assert selected(found.runs, "rho=0.5") == []
    done = fedflat("runs", "--results", paths.root)
    assert done.stdout.splitlines()[-1].endswith("; 2 damaged (--damaged); 2 unfinished (--unfinished)")
    for place in damaged:
        [line] = [line for line in done.stderr.splitlines() if str(place) in line]
        assert line.startswith(f"left out: '{place / 'config.json'}' is damaged (")
    assert runs(results=paths.root)["path"].tolist() == [str(run.place) for run in found.runs]


def test_damaged_and_unfinished_runs_can_be_removed(broken) -> None:
    paths, damaged, unfinished = broken
    options = ["--results", paths.root, "--delete", "--yes"]
    with folder_lock(unfinished[1].with_name("seed-5")):
        done = fedflat("runs", "--damaged", "--unfinished", *options)
    assert "experiment quick loses 2 runs" in done.stdout
    assert f"'{unfinished[1]}' is left: another process uses it" in done.stdout
    assert [place.exists() for place in (*damaged, *unfinished)] == [False, False, False, True]
    assert len(stored_runs(paths)) == 9
    assert fedflat("runs", "--unfinished", *options).stdout.splitlines()[-1] == "1 run removed"


def test_what_is_removed_must_be_said(paths: ResultPaths) -> None:
    options = ["--results", paths.root]
    for nothing in ([], ["--where", " ,"]):
        assert "--delete needs --where, --experiment, " in refused("runs", "--delete", *nothing, *options)
    assert "--where chooses among finished runs" in refused("runs", "--damaged", "--where", "rho=1", *options)
    for answer in ("maybe\n", ""):
        command = [sys.executable, "-m", "fedflat", "runs", "--where", "seed=7", "--delete", *map(str, options)]
        done = subprocess.run(command, input=answer, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stdout.endswith("remove 1 run? [y/N] ")
        assert done.stderr == "fedflat: nothing was removed (allowed: y; --yes removes without asking)\n"
    assert len(stored_runs(paths)) == 11
    assert fedflat("runs", "--all", "--delete", "--yes", *options).stdout.splitlines()[-1] == "11 runs removed"
