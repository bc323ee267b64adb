"""The whole pipeline by Snakemake, on real images at the smallest scale that still has every stage."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest

from fedflat.analysis.provenance.archive import unpack
from fedflat.command_server import SERVER
from tests.analysis.conftest import read_rows, run_of
from tests.commands import SNAKEMAKE, run
from tests.end_to_end.pipeline import CELLS, OWN, command, edited, finished_mini, run_files, snakemake
from tests.places import MINI
from tests.tiers import thorough
from tests.waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture
def finished(once) -> Path:
    """The folder with the finished results, which is only read."""
    return once(finished_mini)


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    """A copy of it, with the same times of files."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_each_job_is_one_line(finished):
    first, *lines = (finished / "printed").read_text(encoding="utf-8").splitlines()[1:]
    lines = [line for line in lines if " running: " not in line]  # on a busy machine
    jobs = int(first.split()[0])
    assert first == f"{jobs} jobs: 1 split, 2 train, 12 analyse, 5 figure, 2 table, 1 explore, 1 page"
    ended = [
        re.fullmatch(rf"(\d+) of {jobs}(?:, (?:about|at least) \d+ (?:s|min) left)?: (\w+ .*) \(\d+ (?:s|min)\)", line)
        for line in lines
    ]
    assert all(ended), lines
    assert [int(line[1]) for line in ended] == list(range(1, jobs + 1))
    assert {f"train {CELLS}/fedavg", f"hessian of {CELLS}/fedsam", "table accuracy of mini", "page of mini"} < {
        line[2] for line in ended
    }


BROKEN = """
from torch import nn


class Broken(nn.Linear):
    def forward(self, x):
        if len(x) > 2:
            raise RuntimeError("a mistake of mine")
        return super().forward(x.flatten(1))


def broken(shape, classes):
    return Broken(64, classes)
"""
"""A model that two images pass, so that its fault is found by the job."""


def test_the_log_of_a_failed_job_is_shown_once(tmp_path):
    """The other jobs are computed."""
    (tmp_path / "net.py").write_text(BROKEN, encoding="utf-8")
    own = tmp_path / "own.yaml"
    own.write_text(
        f"name: own\nextends: {MINI}\nparts:\n  good: {{}}\n  bad: {{model: net.py:broken}}\n", encoding="utf-8"
    )
    done = run(command(tmp_path, "own_runs", experiments=f"[{own}]", methods="[fedavg]", rounds=1, seeds="[0]"))
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    failed = "train bad/dirichlet-0.1/4-of-20/fedavg"
    assert lines.count(f"failed: {failed}") == 1
    assert done.stderr.count("a mistake of mine") == 1
    assert lines[-2] == "1 of 2 jobs failed:"
    assert lines[-1].startswith(f"{failed}: ")
    assert "a mistake of mine" in lines[-1]
    assert lines[-1].endswith(" (results/logs/own/bad/dirichlet-0.1/4-of-20/fedavg/train.log)")
    assert any("train good/dirichlet-0.1/4-of-20/fedavg (" in line for line in lines)


def test_missing_data_are_reported_before_the_first_job(tmp_path):
    """Each data set once, with what to do; a dry run needs no data."""
    env = {**os.environ, "FEDFLAT_DATA": str(tmp_path / "data")}
    arguments = command(tmp_path, "fedgf_table_1", experiments=None, methods="[fedavg]")
    done = run(arguments, env=env)
    assert done.returncode != 0
    *_, head, ten, hundred = done.stderr.splitlines()
    assert head == "fedflat: data sets and weights: 2 problems"
    for name, line in {"cifar10": ten, "cifar100": hundred}.items():
        assert line.startswith(f"  data set {name}: '{tmp_path}/data/")
        assert line.count(f"or run 'fedflat data prepare {name} --download") == 1
    assert not (tmp_path / "results" / "store").exists()
    assert run([*arguments[:1], "-n", *arguments[1:]], env=env).returncode == 0


def test_a_mistyped_target_gets_the_nearest_one(tmp_path):
    done = run(command(tmp_path, "mini_table_acuracy"))
    assert done.returncode != 0
    assert "fedflat: unknown target 'mini_table_acuracy'; did you mean 'mini_table_accuracy'?" in done.stderr


def test_a_run_of_two_experiments_is_trained_once(tmp_path):
    """In one call of Snakemake: the second experiment adds a method, and waits for the other cells, or finds them."""
    own = tmp_path / "own.yaml"
    own.write_text(
        f"name: own\nextends: {MINI}\nmethods: {{fedavg: {{}}, fedsam: {{}}, scaffold: {{}}}}\n", encoding="utf-8"
    )
    snakemake(tmp_path, "mini_runs", "own_runs", experiments=f"[{MINI},{own}]", seeds="[0]")
    assert len(list((tmp_path / "results" / "store").rglob("config.json"))) == 3
    assert len(list((tmp_path / "results" / "experiments").rglob("runs.csv"))) == 5
    assert not list((tmp_path / "results").rglob(".*.lock"))


def test_every_output_is_there(finished):
    report = finished / "results" / "reports" / "mini"
    for table in ("accuracy", "flatness"):
        for extension in ("md", "tex", "csv"):
            assert (report / "tables" / f"{table}.{extension}").stat().st_size > 100
    for figure in ("convergence", "drift", "surfaces", "perturbation", "labels"):
        assert (report / "figures" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert (report / "figures" / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        assert f"]({figure}.png)" in (report / "figures" / f"{figure}.md").read_text(encoding="utf-8")
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "FedSAM" in page
    assert "Not drawn yet" not in page


def test_the_table_holds_the_runs_own_numbers(finished):
    results = finished / "results"
    metrics = read_rows(results / "experiments" / "mini" / CELLS / "fedsam" / "runs.csv")
    last = metrics[metrics["round"] == 4].sort_values("seed")["test_accuracy"]
    assert len(last) == 2
    table = pd.read_csv(results / "reports" / "mini" / "tables" / "accuracy.csv")
    [row] = table[table["row"].str.contains("FedSAM|fedsam")].to_dict("records")
    assert row["mean"] == pytest.approx(last.mean())
    assert row["std"] == pytest.approx(last.std(ddof=1))
    assert (row["n_seeds"], row["source"]) == (2, "run")


def test_splits_that_are_drawn_without_training_are_those_of_the_runs(finished):
    drawn = list((finished / "results" / "partitions").rglob("partition.csv.gz"))
    assert drawn
    for file in drawn:
        _, *cell, seed, name = file.relative_to(finished / "results" / "partitions").parts
        of_run = run_of(finished / "results", "mini", "/".join(cell), int(seed.removeprefix("seed-"))) / name
        assert file.read_bytes() == of_run.read_bytes()


def test_an_analysis_with_a_name_of_its_own(copy):
    snakemake(copy, "mini_analysis_wide", experiments=OWN)
    folder = copy / "results" / "experiments" / "mini" / CELLS / "fedsam"
    wide, usual = (read_rows(folder / f"{name}.csv") for name in ("wide", "flatness"))
    assert wide["options"].str.contains("rho=0.5").all()
    values = [frame.set_index(["metric", "seed"])["value"] for frame in (wide, usual)]
    assert (values[0]["sharpness"] > values[1]["sharpness"]).all()
    assert (values[0]["lpf"] == values[1]["lpf"]).all(), "the same draws"


def test_analyses_say_what_they_measured(finished):
    folder = finished / "results" / "experiments" / "mini" / CELLS / "fedsam"
    names = ("hessian", "flatness", "discrepancy")
    flatness = pd.concat([read_rows(folder / f"{name}.csv") for name in names]).set_index(["seed", "metric"])
    assert flatness["value"].notna().all()
    assert (flatness.xs("lambda_residual", level="metric")["value"] < 1e-2).all()
    assert (flatness.xs("lambda_max", level="metric")["value"] > 0).all()
    assert "60 training images" in flatness.xs("lpf", level="metric")["definition"].iloc[0]
    drift = read_rows(folder / "drift.csv")
    assert drift["perturbation_drift"].between(0, 1).all()
    assert sorted(drift["round"].unique()) == [2, 4]
    without = read_rows(folder.with_name("fedavg") / "drift.csv")
    assert without["perturbation_drift"].isna().all()
    surface = read_rows(folder / "surface.csv").set_index(["a", "b"])["loss"]
    line = read_rows(folder / "perturbation.csv")
    at_model = line[(line["radius"] == 0) & (line["seed"] == 0)]["loss"].iloc[0]
    assert surface[0.0, 0.0] == pytest.approx(at_model)
    metrics = read_rows(folder / "runs.csv")
    trained = metrics[(metrics["seed"] == 0) & (metrics["round"] == 4)]["train_loss"].iloc[0]
    assert at_model == pytest.approx(trained)


def test_a_second_run_has_nothing_to_do(copy):
    assert "Nothing to be done" in snakemake(copy, experiments=OWN)


def jobs(plan: str) -> dict[str, int]:
    """The job counts of a dry run, by rule; target rules are left out."""
    rows = [line.split() for line in plan.splitlines()]
    counts = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return {rule: n for rule, n in counts.items() if rule in ("train", "analyse", "table", "figure", "page")}


def test_a_deleted_table_is_all_that_is_rebuilt(copy):
    results = copy / "results"
    tables = results / "reports" / "mini" / "tables"
    before = (tables / "accuracy.md").read_text(encoding="utf-8")
    for extension in ("md", "tex", "csv"):
        (tables / f"accuracy.{extension}").unlink()
    others = {f: f.stat().st_mtime_ns for part in ("store", "experiments") for f in (results / part).rglob("*")}
    assert "1 jobs: 1 table" in snakemake(copy, "mini_table_accuracy", experiments=OWN)
    assert (tables / "accuracy.md").read_text(encoding="utf-8") == before
    assert {f: f.stat().st_mtime_ns for f in others} == others


def test_an_archive_is_rendered_without_training_and_analyses(finished, tmp_path):
    """Whatever the order in which its files were unpacked."""
    own, results = finished / "own" / "experiments.yaml", tmp_path / "unpacked" / "results"
    archive = ["mini", "mini_figure_drift", "--without-reports", "--out", str(tmp_path / "a.zip")]
    done = run(["fedflat", "export", *archive, "--experiment", str(own), "--results", str(finished / "results")])
    assert done.returncode == 0, done.stderr
    unpack(tmp_path / "a.zip", tmp_path / "unpacked")
    assert not (results / "reports").exists()
    assert (results / "experiments" / "mini" / CELLS / "fedsam" / "drift.csv").is_file()
    for file in (results / "experiments").rglob("runs.csv"):
        file.touch()
    planned = jobs(snakemake(tmp_path, "-n", experiments=f"[{own}]", results=results))
    assert planned["page"] == 1
    assert not {"train", "analyse"} & planned.keys()


def test_what_is_edited_is_all_that_is_redone(copy):
    """One edit after the other in a user-defined experiment, and the jobs that Snakemake plans for it."""
    own, lists = copy / "own", copy / "results" / "experiments" / "mini" / CELLS

    edited(own, "tables/accuracy.yaml", "caption: Digits.", "caption: Small digits.")
    assert jobs(snakemake(copy, "-n", experiments=OWN)) == {"table": 1, "page": 1}
    edited(own, "analyses.yaml", "draws: 5", "draws: 6")
    assert jobs(snakemake(copy, "-n", experiments=OWN)) == {"analyse": 2, "table": 2, "page": 1}

    edited(own, "experiments.yaml", "seeds: [0, 1]", "seeds: [0, 1, 2]")
    old = {f: f.stat().st_mtime_ns for f in (copy / "results" / "store").rglob("seed-*/*") if f.is_file()}
    snakemake(copy, experiments=OWN)
    assert {f: f.stat().st_mtime_ns for f in old} == old, "finished seeds are left alone"
    assert set(pd.read_csv(lists / "fedsam" / "runs.csv")["seed"]) == {0, 1, 2}

    edited(own, "experiments.yaml", "rho: 0.05", "rho: 0.06")
    plan = jobs(snakemake(copy, "-n", experiments=OWN))
    assert plan == {"train": 1, "analyse": 6, "table": 2, "figure": 4, "page": 1}
    snakemake(copy, "mini_runs", experiments=OWN)
    assert {f: f.stat().st_mtime_ns for f in old} == old, "runs with other values stay"
    edited(own, "experiments.yaml", "rho: 0.06", "rho: 0.05")
    assert "trained" not in snakemake(copy, "mini_runs", experiments=OWN)
    assert {f: f.stat().st_mtime_ns for f in old} == old, "and are taken again"


def test_a_list_is_outdated_without_its_runs_and_files(copy):
    """Whatever Snakemake has recorded of the job that wrote it; afterwards there is nothing to do."""
    store = copy / "results" / "store"
    shutil.rmtree(next(store.glob(f"{CELLS}/fedavg-*/seed-1")))
    next(store.glob(f"{CELLS}/fedavg-*/seed-0/metrics.csv")).unlink()
    damaged = next(store.glob(f"{CELLS}/fedsam-*/seed-1/final.safetensors"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    plan = jobs(snakemake(copy, "-n", "mini_table_accuracy", experiments=OWN))
    assert plan == {"train": 2, "table": 1}
    snakemake(copy, experiments=OWN)
    assert damaged.read_bytes() == whole
    assert "Nothing to be done" in snakemake(copy, experiments=OWN)
    next(store.glob(f"{CELLS}/fedsam-*/seed-0/analyses/drift-*.csv")).unlink()
    assert jobs(snakemake(copy, "-n", experiments=OWN)) == {"analyse": 1, "figure": 1, "page": 1}


@thorough
def test_a_killed_retraining_does_not_leave_old_reports_as_current(copy):
    """Its cells have no metrics yet, and the reports of the old runs are newer than nothing: they must not stay."""
    options = {"experiments": OWN, "replace": "true"}
    edited(copy / "own", "experiments.yaml", "rounds: 4", "rounds: 200")
    kill_while_training(command(copy, **options), copy)
    snakemake(copy, "--unlock", **options)
    assert jobs(snakemake(copy, "-n", "mini_table_accuracy", **options)) == {"train": 2, "table": 1}


def test_snakemakes_own_report(copy):
    snakemake(copy, "--report", str(copy / "report.html"), experiments=OWN)
    assert "convergence" in (copy / "report.html").read_text(encoding="utf-8")


def kill_while_training(arguments: list[str], folder: Path, victim: str = "everything") -> None:
    """Start a command, wait for the first checkpoint under `folder`, and kill it, or the training process only.

    Nothing goes on after that: the command server, whose forks are the jobs, ends with Snakemake.
    """
    new_process = [sys.executable, "-m", "snakemake", *SNAKEMAKE, *arguments[1:]]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(new_process, start_new_session=True, **silent)
    checkpoints = f"results/store/{CELLS}/*/*/checkpoint.safetensors"
    wait_for(lambda: list(folder.glob(checkpoints)), 90, alive=lambda: process.poll() is None)
    children = psutil.Process(process.pid).children(recursive=True)
    servers = [child for child in children if child.name() == SERVER.decode()]
    training = [fork for server in servers if server.ppid() == process.pid for fork in server.children()]
    assert training or sys.platform != "linux"
    if victim == "everything":
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not psutil.wait_procs(children, timeout=60)[1]
        return
    for child in training or children:
        child.kill()
    assert process.wait(timeout=60) != 0


TARGET, ROUNDS = f"results/experiments/mini/{CELLS}/fedsam/runs.csv", 40


def undisturbed(folder: Path) -> None:
    """The folder with the run that is killed elsewhere."""
    snakemake(folder, TARGET, rounds=ROUNDS)


@thorough
@pytest.mark.parametrize("victim", ["everything", "the training process"])
def test_kill_9_and_the_same_command_again(victim, tmp_path, once):
    """A run is killed in its middle; the same command resumes it and ends with the same bits.

    If Snakemake itself is killed, its lock must be removed first, as it says.
    """
    kill_while_training(command(tmp_path, TARGET, rounds=ROUNDS), tmp_path, victim)
    if victim == "everything":
        snakemake(tmp_path, "--unlock")
    assert not (tmp_path / TARGET).exists()
    snakemake(tmp_path, TARGET, rounds=ROUNDS)
    log = run_of(tmp_path / "results", "mini", f"{CELLS}/fedsam") / "run.log"
    assert "resumed after round" in log.read_text(encoding="utf-8")
    assert run_files(tmp_path) == run_files(once(undisturbed))


def test_a_mistake_in_the_experiment_is_reported_before_anything_runs(tmp_path):
    broken = tmp_path / "experiments.yaml"
    broken.write_text(Path(MINI).read_text(encoding="utf-8").replace("rounds: 4", "rounds: 0"), encoding="utf-8")
    done = run(command(tmp_path, experiments=f"[{broken}]"))
    assert done.returncode != 0
    assert "training.rounds = 0: Input should be greater than or equal to 1" in done.stdout + done.stderr
    assert not (tmp_path / "results" / "store").exists()


def test_the_target_of_all_runs_trains_every_cell_and_nothing_else(tmp_path):
    output = snakemake(tmp_path, "mini_runs", "--dry-run")
    assert sorted(line.split()[-1] for line in output.splitlines() if "train digits" in line) == [
        f"{CELLS}/{method}" for method in ("fedavg", "fedsam")
    ]
    assert "table" not in output


@thorough
def test_a_mistake_in_the_configuration_of_snakemake_is_reported(tmp_path):
    done = run(command(tmp_path, round=5))
    assert done.returncode != 0
    assert "unknown --config key 'round'; did you mean 'rounds'?" in done.stdout + done.stderr


def test_a_results_folder_with_a_space(tmp_path):
    target = f"{tmp_path / 'my results'}/experiments/mini/{CELLS}/fedavg/runs.csv"
    snakemake(tmp_path, target, results=tmp_path / "my results", experiments=MINI)
    assert Path(target).is_file()
