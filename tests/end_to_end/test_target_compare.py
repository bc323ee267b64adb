"""The target compare, from a template to the report: tuning, training, and the comparison with stored baselines."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from fedflat.conformance.template import write_template
from tests.commands import run
from tests.tiers import thorough

pytestmark = pytest.mark.long


def compared_template(folder: Path) -> None:
    """A folder with the template of a method, and the results of its comparison with installed baselines."""
    write_template(folder / "idea.py")
    done = compare(folder)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (folder / "printed").write_text(done.stdout, encoding="utf-8")


@pytest.fixture
def finished(once) -> Path:
    """That folder, which is only read."""
    return once(compared_template)


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def compare(folder: Path, *values: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """Compare with one seed and two trials."""
    values = ("method=idea.py", "grid=quick", "trials=2", "seeds=[0]", *values)
    command = ["snakemake", "--directory", str(folder), "--cores", "2", *options, "compare", "--config", *values]
    return run(command, cwd=folder)


def test_a_template_is_tuned_trained_and_compared(finished):
    report = finished / "results" / "reports" / "quick_idea_tuned" / "comparison"
    printed = (finished / "printed").read_text(encoding="utf-8")
    lines = r"No verdict: 1 seed; .*\nBest rivals: Idea is .*\nBudgets of tuning differ: .*\nwritten to .*"
    assert re.fullmatch(rf"\n{lines}\n", printed), printed
    assert printed.endswith(f"written to {(report / 'report.md').relative_to(finished)}\n")
    text = (report / "report.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# Idea and the untuned baselines of quick\n\nNo verdict: 1 seed; a verdict needs at least 6."
    )
    assert "Budgets of tuning differ: Idea 2 trials, rivals no tuning" in text
    assert "Idea" in (report / "explore.html").read_text(encoding="utf-8")
    rivals = pd.read_csv(report / "tables" / "verdicts.csv")
    assert (rivals["dataset"] == "all").sum() == 26
    trials = list((finished / "results" / "tuning" / "quick_idea").rglob("trials.csv"))
    runs = list((finished / "results" / "experiments" / "quick_idea_tuned").rglob("runs.csv"))
    assert (len(trials), len(runs)) == (4, 4)


def test_what_is_there_is_not_computed_again(folder):
    done = compare(folder)
    assert done.returncode == 0
    assert "jobs:" not in done.stderr, done.stderr
    assert done.stdout == (folder / "printed").read_text(encoding="utf-8"), "the answer is printed again"


@thorough
def test_an_edited_file_is_not_mixed_with_the_trials_of_the_old_one(folder):
    method = folder / "idea.py"
    text = method.read_text(encoding="utf-8")
    method.write_text(text.replace("return self.rho * unit", "return 0.5 * self.rho * unit"), encoding="utf-8")
    done = compare(folder)
    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if line.startswith("fedflat: ")]
    assert "--config replace=true" in line
    assert "jobs:" not in done.stderr, "reported before any job starts"
    planned = compare(folder, "replace=true", options=("-n",))
    assert "tune     4" in planned.stderr.splitlines(), "the tuned values of the old file are not used"
    shutil.rmtree(folder / "results" / "tuning")
    done = compare(folder)
    assert done.returncode == 0, done
    results = folder / "results"
    lists = (results / "experiments" / "quick_idea_tuned").rglob("runs.csv")
    listed = [place for file in lists for place in pd.read_csv(file)["path"]]
    copies = [(results / path / "method.py").read_text(encoding="utf-8") for path in listed]
    assert copies and all("0.5 * self.rho" in copy for copy in copies), "compared are the runs of the new file"
    kept = {copy.read_text(encoding="utf-8") for copy in (results / "store").rglob("seed-*/method.py")}
    assert text in kept, "those of the old file stay"


FAILURES = {
    "raises": ("raise ValueError('a mistake of mine')", r"in line \d+: ValueError: a mistake of mine"),
    "nan": ("return w * float('nan')", "diverged in round 3"),
    "shape": ("return w[:-1]", "size of tensor"),
}


def write_failing(folder: Path, name: str) -> None:
    """The template with a mistake in the third round."""
    step = "        return self.rho * unit(gradient(w))\n"
    template = (folder / "idea.py").read_text(encoding="utf-8")
    assert step in template
    mistake = f"        if client.round >= 2:\n            {FAILURES[name][0]}\n"
    (folder / f"{name}.py").write_text(template.replace(step, mistake + step), encoding="utf-8")


@pytest.mark.parametrize("name", ["raises", pytest.param("nan", marks=thorough), pytest.param("shape", marks=thorough)])
def test_if_all_trials_fail_one_line_says_why_before_any_training(folder, name):
    write_failing(folder, name)
    done = compare(folder, f"method={name}.py")
    assert done.returncode != 0
    assert done.stdout == ""
    *_, ended, failed, count, line = done.stderr.splitlines()
    assert ended.startswith("4 of 6"), done.stderr
    assert (failed, count) == (f"failed: tuned values of quick_{name}", "1 of 6 jobs failed:")
    assert line.startswith(f"tuned values of quick_{name}: all trials failed in digits/dirichlet-0.")
    assert re.search(FAILURES[name][1], line)
    assert line.endswith(f" (results/logs/quick_{name}/tuned.log)")
    assert not (folder / "results" / "tuning" / f"quick_{name}" / "tuned.yaml").exists()
    assert not (folder / "results" / "experiments" / f"quick_{name}_tuned").exists()


def test_untuned_training_that_fails_is_one_line_per_job(folder):
    write_failing(folder, "raises")
    done = compare(folder, "method=raises.py", "trials=0")
    assert done.returncode != 0
    check, finding, *_ = done.stderr[done.stderr.index("check-method") :].splitlines()
    assert check == "check-method Idea (idea) with rho = 0.1", "before the first job"
    assert "exceptions: expected no exception" in finding
    assert "The comparison goes on. All checks: results/compare/quick/raises.check.log" in done.stderr
    count, *lines = done.stderr.splitlines()[-5:]
    assert count == "4 of 5 jobs failed:"
    for line in lines:
        assert re.fullmatch(r"train digits/\S+/raises: .* ValueError: a mistake of mine \(results/logs/.*\)", line)


@thorough
def test_findings_are_printed_before_the_first_job(folder):
    template = (folder / "idea.py").read_text(encoding="utf-8")
    (folder / "longer.py").write_text(template.replace("return self.rho * unit", "return 2 * self.rho * unit"))
    done = compare(folder, "method=longer.py", "trials=0")
    assert done.returncode == 0
    check, finding, log, *jobs = done.stderr[done.stderr.index("check-method") :].splitlines()
    assert check == "check-method Idea (idea) with rho = 0.1"
    assert "length of the perturbation: expected" in finding
    assert log == "The comparison goes on. All checks: results/compare/quick/longer.check.log"
    assert len(jobs) == 5
