"""The interactive page of an experiment: it shows the finished runs, and what is analysed."""

import json
import re
from pathlib import Path

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.explore import render_explorer
from fedflat.analysis.comparison.run_table import curve_table, run_table
from fedflat.analysis.report.report import render_page
from tests.analysis.comparison.tiny_grid import requested
from tests.commands import fedflat, refused
from tests.places import ROOT

BENCH1D = ROOT / "results" / "baselines" / "bench1d"


def data_of(page: Path) -> dict:
    """The data that a page contains."""
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text).group(1))


def test_the_command_writes_all_finished_runs_of_an_experiment(little: Path) -> None:
    done = fedflat("explore", "little.yaml", cwd=little)
    assert done.returncode == 0, done.stderr
    page = little / done.stdout.strip()
    assert page == little / "results" / "reports" / "little" / "explore.html"
    data, runs = data_of(page), run_table(requested(little))
    assert data["runs"]["count"] == len(runs)
    columns = data["runs"]["columns"]
    assert set(columns) == {*runs, "experiment"}
    assert columns["experiment"]["levels"] == ["little.yaml"], "so that the page shows the command that trains a run"
    assert columns["identity"]["values"] == runs["identity"].tolist()
    rounds, numbers = data["curves"]["pool"]["round"], data["curves"]["runs"]["round"]
    assert sum(len(rounds[number]) for number in numbers if number is not None) == len(curve_table(requested(little)))
    for outcome, number in zip(runs["outcome"], numbers, strict=True):
        assert (number is None) == (outcome == "diverged"), "a run that diverged in its only round has no curve"
    assert data["surfaces"] == []
    assert set(data["methods"]) == set(runs["method"])
    assert f"{len(runs)} of {len(runs)} runs are finished" in page.read_text(encoding="utf-8")


def test_it_shows_surfaces_that_are_analysed(little: Path) -> None:
    cell = requested(little).experiment.addresses[0]
    options = requested(little).analyses["surface"].options()
    settings = [f"--set={name}={value}" for name, value in options.items()]
    folder = Path("results", "experiments", "little", cell.path)
    done = fedflat("analyse", "surface", folder, "--list", folder / "surface.csv", *settings, cwd=little)
    assert done.returncode == 0, done.stderr
    [surface] = data_of(render_explorer(requested(little)))["surfaces"]
    assert [surface["method"], len(surface["loss"])] == [cell.method, int(options["points"])]


def test_the_two_pages_link_each_other(little: Path) -> None:
    request = requested(little)
    first = render_explorer(request, links_report=True)
    assert '<a href="index.html">' in first.read_text(encoding="utf-8")
    first.unlink()
    assert "explore.html" not in render_page(request).read_text(encoding="utf-8")
    assert '<a href="index.html">' in render_explorer(request).read_text(encoding="utf-8")
    assert '<a href="explore.html">Interactive page</a>' in render_page(request).read_text(encoding="utf-8")
    elsewhere = render_explorer(request, little / "sent.html").read_text(encoding="utf-8")
    assert "index.html" not in elsewhere


def test_without_runs_it_is_one_line(tmp_path: Path) -> None:
    line = refused("explore", "quick", "--results", tmp_path)
    assert line.endswith(f"snakemake --cores 2 quick_runs --config results={tmp_path}")
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_exported(little: Path) -> None:
    line = refused("export", "little_explore", "--experiment", "little.yaml", cwd=little)
    assert "needs no archive" in line


def test_it_shows_stored_baselines(tmp_path: Path) -> None:
    """With the commands that train them: those of the experiment, or of the file of tuned values next to them."""
    done = fedflat("explore", "bench1d", "--stored", "--baselines", BENCH1D, "--results", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = Path(done.stdout.strip())
    assert page == tmp_path / "reports" / "bench1d" / "stored.html"
    data, stored = data_of(page), load("bench1d", BENCH1D)
    assert data["runs"]["count"] == len(stored.runs)
    assert set(data["methods"]) == set(stored.runs["method"])
    assert data["own"] is None
    levels = data["runs"]["columns"]["experiment"]["levels"]
    variants = {"untuned": "bench1d", "tuned": str(BENCH1D / "bench1d_tuned.yaml")}
    assert levels == [variants[variant] for variant in stored.runs["variant"].unique()]
    assert len(data["curves"]["runs"]["round"]) == len(stored.runs)


def test_stored_runs_have_no_report_and_no_other_values() -> None:
    for option in (["--link-report"], ["--set", "training.rounds=3"]):
        assert "--stored excludes --set and --link-report" in refused("explore", "bench1d", "--stored", *option)
    assert "unknown grid of stored baselines 'bench2d'" in refused("explore", "bench2d", "--stored")
    assert "no stored baselines at 'none'" in refused("explore", "bench1d", "--stored", "--baselines", "none")
    assert "--baselines needs --stored" in refused("explore", "quick", "--baselines", "none")


def test_commands_of_a_comparison_train_its_runs(tmp_path: Path, little: Path) -> None:
    """The method's experiment is named by its file; that of the rivals is neither a known one nor stored with them."""
    done = fedflat("baselines", "add", "little.yaml", "--grid", "g", "--baselines", "g", cwd=little)
    assert done.returncode == 0, done.stderr
    label = requested(little).experiment.addresses[0].method
    done = fedflat(
        "compare", label, "--grid", "g", "--baselines", "g", "--experiment", "little.yaml", "--out", "cmp", cwd=little
    )
    assert done.returncode == 0, done.stderr
    columns = data_of(little / "cmp" / "explore.html")["runs"]["columns"]
    assert columns["experiment"]["levels"] == ["little.yaml", ""]
