"""Experiments, layouts, analyses, claims, options of methods and command lines, right or wrong, all get an answer."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.analyses import ANALYSES, load_analyses
from analysis.claims.schema import PaperClaims
from analysis.report.figures import Figures
from analysis.report.requested import RequestedExperiment
from analysis.report.tables import Tables
from bench.experiments.experiment import Experiment, load_experiment
from bench.experiments.files import PAPER_TABLES, read_yaml
from tests.documents import PAGES
from tests.fuzz.answers import Answers
from tests.fuzz.strategies import ODD, changed, experiments, junk, text_of

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
FILE = "experiments.yaml"
EXTENDS = "name: mine\nextends: quick\n"


def texts(pattern: str) -> list[str]:
    """The texts of the real files of a pattern."""
    return [file.read_text(encoding="utf-8") for file in sorted(PAPER_TABLES.glob(pattern))]


def blocks(needed: str) -> list[str]:
    """The YAML blocks of the documentation that have a line which begins with this text."""
    found = [block for page in PAGES.values() for block in re.findall(r"```yaml\n(.*?)```", page.text, re.DOTALL)]
    return [block for block in found if re.search(f"^{needed}", block, re.MULTILINE)]


def renamed(text: str) -> str:
    """An experiment that does not have the name of a folder in paper_tables, which is not allowed."""
    return re.sub(r"^name: \w+$", "name: mine", text, flags=re.MULTILINE)


@pytest.fixture
def fuzz(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Try inputs of a strategy: a share of all cases that the option --fuzz-cases requests."""
    monkeypatch.chdir(tmp_path)

    def tried(share: float, inputs: st.SearchStrategy[str], answer: Callable[[Answers, str], None]) -> None:
        answers = Answers()

        @settings(
            max_examples=max(1, round(share * request.config.getoption("--fuzz-cases"))),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs)
        def check(text: str) -> None:
            answer(answers, text)

        check()
        print(f"\n{request.node.name}: {answers}")

    return tried


def written(place: str, text: str) -> str:
    file = Path(place)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return place


def planned(experiment: Experiment) -> None:
    """Configure cells as a plan does: the first ones, because large grids take long."""
    for address in experiment.addresses[:3]:
        assert experiment.cell(address.path).identity
        for run in experiment.cell(address.path).runs[:1]:
            assert run.evaluated_rounds


def test_experiments_of_the_schema(fuzz):
    fuzz(0.1, experiments(), lambda answers, text: answers.of(lambda: planned(load_experiment(written(FILE, text)))))


def test_changed_experiments(fuzz):
    real = [renamed(text) for text in texts("*/experiments.yaml") if len(text) < 5000] + blocks("extends:")
    fuzz(0.25, changed(real), lambda answers, text: answers.of(lambda: planned(load_experiment(written(FILE, text)))))


@pytest.mark.parametrize(("folder", "kind"), [("tables", Tables), ("figures", Figures)])
def test_changed_layouts(fuzz, folder, kind):
    def answer(answers: Answers, text: str) -> None:
        written(f"{folder}/one.yaml", text)
        requested = RequestedExperiment(FILE, Path("results"))
        answers.of(lambda: kind(requested).inputs("one"))

    written(FILE, EXTENDS)
    fuzz(0.15, changed(texts(f"quick/{folder}/*.yaml")), answer)


def test_changed_analyses(fuzz):
    def answer(answers: Answers, text: str) -> None:
        written("analyses.yaml", text)
        answers.of(lambda: [analysis.options() for analysis in load_analyses(FILE).values()])

    written(FILE, EXTENDS)
    every = "".join(f"{name}: {{seed: 0, images: 3, steps: 2, rho: 0.1}}\n" for name in ANALYSES)
    fuzz(0.1, changed([*texts("*/analyses.yaml"), every]), answer)


def test_changed_claims(fuzz):
    used = [*load_experiment("quick").settings]

    def answer(answers: Answers, text: str) -> None:
        written("claims.yaml", text)
        answers.of(
            lambda: [
                claim.statement(used) for claim in PaperClaims.parse(read_yaml(Path("claims.yaml")), "claims").claims
            ]
        )

    fuzz(0.05, changed([text for text in texts("*/claims.yaml") if len(text) < 20_000]), answer)


KEYS = [
    "training.rounds", "training", "rounds", "grid.seeds", "grid.partition", "grid.participation", "methods",
    "methods.fedsam", "methods.fedsam.hyperparameters", "methods.fedsam.hyperparameters.rho", "evaluation",
    "evaluation.until", "evaluation.around", "evaluation.local_models", "evaluation_where", "scale", "report", "chosen",
    "parts", "parts.x", "dataset", "model", "engine.backend", "engine.client_memory", "extends", "name", "description",
    "methods.fedsam.where.dirichlet-0.1.training.lr", "methods.fedsam.variant", "methods.fedsam.hyperparameters.swa",
    "training.augmentation", "a." * 3000, "", ".", "..", "methods..x", "evaluation_where.4-of-20",
]  # fmt: skip
WORDS = [
    "quick", "fedgf", CELL, "fedsam", "accuracy", "drift", "hessian", "--seed", "--set", "--out", "--results", "--root",
    "--threads", "--device", "cpu", "0", "-1", "9" * 5000, "", " ", "a\nb", "\udcff", "x" * 300, "/dev/zero", FILE,
    "--help", "--", "-x", "=", "training.rounds=3", "digits", "dirichlet-0.1", "nowhere", "../..", "\0",
]  # fmt: skip
COMMANDS = [
    ["run", "quick", CELL], ["table", "quick"], ["figure", "quick"], ["report", "quick"], ["summary", "quick"],
    ["methods"], ["analyses"], ["schema"], ["published"], ["analyse", "sharpness", "nowhere"], ["data", "check"],
    ["compare", "fedsam"], ["claims", "none"], ["data", "split", "none"], ["data", "partition", "none"], [],
]  # fmt: skip
"""Commands that neither train nor measure with these words."""

assignments = st.builds(
    lambda key, value: f"{key}={value}",
    st.sampled_from(KEYS),
    st.one_of(junk.map(lambda value: text_of(value).removesuffix("...\n").strip()), st.sampled_from(["[", "&a [*a]"])),
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command line. `run` gets a device that does not exist: all other words are read, but nothing is trained."""
    command = list(draw(st.sampled_from(COMMANDS)))
    for word in draw(st.lists(st.one_of(st.sampled_from(WORDS), assignments.map("--set={}".format)), max_size=3)):
        command.insert(draw(st.integers(min(1, len(command)), len(command))), word)
    return [*command, "--device", "nowhere"] if command[:1] in (["run"], ["analyse"]) else command


def test_command_lines(fuzz):
    written(FILE, EXTENDS)
    fuzz(0.1, lines(), lambda answers, words: answers.of_command(words))


def test_options_of_methods(fuzz):
    def answer(answers: Answers, given: str) -> None:
        answers.of_command(["run", "quick", CELL, f"--set={given}", "--device", "nowhere"])

    fuzz(0.1, assignments, answer)


def test_method_files(fuzz):
    """Python files that fail, end the process, or define something else than a method."""
    real = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    source = re.search(r"```python\n(from pydantic.*?)```", real, re.DOTALL)[1]
    ends = [
        "import sys; sys.exit(7)",
        "raise SystemExit",
        "1 / 0",
        "METHOD = 3",
        "del METHOD",
        "raise MemoryError",
        "x =",
    ]
    changes = st.tuples(st.sampled_from([*ends, *map(repr, ODD)]), st.integers(0, source.count("\n")))

    def answer(answers: Answers, change: tuple[str, int]) -> None:
        rows = source.splitlines()
        rows.insert(change[1], change[0])
        answers.of_command(["methods", written("mine.py", "\n".join(rows))])

    fuzz(0.05, changes, answer)
