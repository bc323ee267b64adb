"""What README and docs show is run as it stands there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.experiments.experiment import load_experiment
from bench.methods.compose import SLOTS
from bench.methods.user_file import recipe_from_file
from tests.places import ROOT
from tests.problems import Problem, distance

TUTORIAL = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^(?:`(?P<file>[^`\n]+)`\n\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    "python": [sys.executable],
    "fedflat": [sys.executable, "-m", "fedflat"],
    "snakemake": [
        sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
        "--workflow-profile", str(ROOT / "profiles" / "default"),
    ],
}  # fmt: skip


def blocks(text: str, language: str) -> list[str]:
    return [block["code"] for block in BLOCK.finditer(text) if block["language"] == language]


COMMANDS = [line for block in blocks(TUTORIAL, "sh") for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder outside the package with all files of the tutorial."""
    folder = tmp_path_factory.mktemp("tutorial")
    for block in BLOCK.finditer(TUTORIAL):
        if block["file"]:
            file = folder / block["file"]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block["code"], encoding="utf-8")
    return folder


def run(line: str, folder: Path) -> str:
    program, *arguments = shlex.split(line)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    logs = "\n".join(f"{log}:\n{log.read_text()}" for log in folder.glob("results/**/logs/**/*.log"))
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}\n{logs}"
    return done.stdout + done.stderr


def test_the_tutorial_has_the_files_that_it_speaks_of(folder):
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    assert files == ["mine/experiments.yaml", "mine/more.yaml", "mine/my_method.py", "mine/try_it.py"]
    assert {word for line in COMMANDS for word in line.split() if word.endswith(".py")} <= set(files)
    assert blocks(TUTORIAL, "python") == [(folder / file).read_text() for file in files[2:]], "no code without a file"
    for slot in SLOTS:
        assert f"| `{slot}` |" in TUTORIAL


def test_a_method_is_one_short_file(folder):
    assert len((folder / "mine/my_method.py").read_text().splitlines()) < 60


def test_the_method_is_what_its_docstring_says(folder):
    """Without memories and noise it is FedSAM; each of them matters; and it counts as much traffic as is told."""
    method, problem = recipe_from_file(folder / "mine/my_method.py"), Problem(3)
    plain = {"rho": 0.2, "own": 0.0, "shared": 0.0}
    assert distance(problem.run(method, plain), problem.run("fedsam", {"rho": 0.2})) < 1e-10
    for key in ("own", "shared", "noise"):
        assert distance(problem.run(method, {**plain, key: 0.5}), problem.run(method, plain)) > 1e-4
    noisy = [problem.run(method, {**plain, "noise": 0.5}).global_params[-1] for _ in range(2)]
    assert torch.equal(*noisy)
    last = problem.run(method, plain).history.iloc[-1]
    assert (last["gradients"], last["upload"], last["download"], last["client_state"]) == (2, 2, 2, 1)


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("snakemake")])
def test_the_commands_that_try_it(line, folder):
    said = run(line, folder)
    if line.startswith("fedflat methods"):
        assert "Memory-SAM (memory_sam)" in said
        assert "SAM whose ascent direction remembers" in said
        assert "rho: perturbation radius (≥ 0; required" in said
        assert "received by a client per round: 2.00, sent: 2.00" in said
    else:
        assert "local_loss" in said


def test_the_method_trains_through_snakemake_and_stands_in_a_table(folder):
    """The small run; the command of the real one is the same without the options that make it small."""
    small, real = (line for line in COMMANDS if line.startswith("snakemake"))
    assert small == f"{real} rounds=2 seeds=[0] results=results/try"
    run(small, folder)
    table = (folder / "results/try/reports/mine/tables/accuracy.md").read_text()
    rows = [line for line in table.splitlines() if re.match(r"\| *\**(Memory-SAM|FedAvg)", line)]
    assert len(rows) == 4, "two methods in two blocks"
    assert all(len(re.findall(r"\d+\.\d\d", row)) == 2 for row in rows), "a number for both partitions"
    [copy] = folder.glob("results/try/runs/mine/digits/dirichlet-0.1/4-of-20/my_method/seed-0/method.py")
    assert copy.read_bytes() == (folder / "mine/my_method.py").read_bytes()
    assert sorted(path.name for path in (folder / "mine").iterdir() if path.is_file()) == [
        "experiments.yaml", "more.yaml", "my_method.py", "try_it.py",
    ]  # fmt: skip


def test_the_experiment_without_code(folder):
    cells = load_experiment(str(folder / "mine/more.yaml")).cells()
    runs = {cell.address.method: cell.runs[0] for cell in cells.values()}
    assert runs["my_method"].method.hyperparameters["rho"] == 0.05, "as the experiment that it extends says"
    assert runs["my_method+swa"].method.hyperparameters["swa"]["start"] == 22, "3/4 of 30 rounds"
    assert runs["asam_dyn"].method.slots == {"perturbation": "asam", "correction": "feddyn", "server": "feddyn"}
    built = runs["mixed_momentum"].method.recipe.build(runs["mixed_momentum"].method.hyperparameters)
    assert (built.perturbation.alpha, built.correction.alpha) == (0.5, 0.3)
    assert runs["fedlesam_s"].method.hyperparameters["estimate"] == "released_literal"


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_python_in_the_readme(code):
    names = {"__name__": "readme"}
    with torch.random.fork_rng(devices=[]):
        exec(code, names)
    if "run" in names:
        assert len(names["run"].global_params) == 2
    else:
        part = names["SAM"](rho=0.5)
        w = torch.tensor([3.0, 4.0])
        assert torch.allclose(part.delta(w, lambda w: w, None), torch.tensor([0.3, 0.4]))
