"""Any experiment, layout, analysis, claim, rule of verdicts, plan, method or command line is answered."""

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import strategies as st

from fedflat.analysis.analyses import ANALYSES, load_analyses
from fedflat.analysis.claims.schema import PaperClaims
from fedflat.analysis.planning.plan import CellCosts, as_text, total
from fedflat.analysis.planning.targets import targets_of
from fedflat.analysis.published.numbers import PUBLISHED_METRICS
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.verdicts.margins import Form, read_rules
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES, read_yaml
from fedflat.bench.experiments.overrides import config_overrides
from fedflat.bench.input.errors import unknown
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
        answers.of(lambda: kind(requested).inputs("one"))

    requested = RequestedExperiment(written(FILE, EXTENDS), Path("results"))  # is read once
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

    shortest = min(texts("*/claims.yaml"), key=len)  # reading YAML takes most of the time
    fuzz(0.05, changed([shortest]), answer)


def test_changed_rules_of_verdicts(fuzz):
    def answer(answers: Answers, text: str) -> None:
        file = Path(written("verdicts.yaml", text))
        answers.of(lambda: [str(read_rules(file).margin(*place)) for place in places])

    places = [*itertools.product(PUBLISHED_METRICS, get_args(Form))]
    fuzz(0.05, changed(texts("verdicts.yaml")), answer)


def one_second(_: object) -> float:
    return 1.0


ENDINGS = ["_runs", "_table_accuracy", "_table_flatness", "_figure_drift", "_figure_surfaces", "_analysis_hessian", ""]
CONFIG = {
    "rounds": st.integers(1, 9),
    "until": st.integers(1, 100),
    "seeds": st.just([0]),
    "scale": st.just("smoke"),
    "methods": st.just(["fedsam"]),
    "report": st.just("best"),
}


def test_plans(fuzz):
    """The costs that `fedflat plan` prints. Each gradient counts as a second: measuring them takes long."""

    def planned_cost(file: str, ending: str, config: dict[str, object]) -> str:
        requested = RequestedExperiment(file, Path("results"), config_overrides(config))
        known, name = targets_of(requested), requested.target + ending
        if name not in known:
            raise unknown("target", name, known)
        costs = CellCosts.of_experiments([requested], one_second).of(requested, known[name].inputs())
        return as_text({"mine": total(costs.values())})

    def answer(answers: Answers, case: tuple[str, str, dict[str, object]]) -> None:
        text, *options = case
        file = written(FILE, text)
        answers.of(lambda: planned_cost(file, *options))

    real = [renamed(text) for text in texts("quick/experiments.yaml")]
    files = st.one_of(st.just(EXTENDS), changed([EXTENDS, *real]), experiments())
    config = st.fixed_dictionaries({}, optional={key: st.one_of(value, value, junk) for key, value in CONFIG.items()})
    fuzz(0.05, st.tuples(files, st.sampled_from(ENDINGS), config), answer)


KEYS = [
    "training.rounds", "training", "rounds", "grid.seeds", "grid.partition", "grid.participation", "methods",
    "methods.fedsam", "methods.fedsam.hyperparameters", "methods.fedsam.hyperparameters.rho", "evaluation",
    "evaluation.until", "evaluation.around", "evaluation.local_models", "evaluation_where", "scale", "report", "chosen",
    "parts", "parts.x", "dataset", "model", "engine.backend", "engine.client_memory", "extends", "name", "description",
    "methods.fedsam.where.dirichlet-0.1.training.lr", "methods.fedsam.variant", "methods.fedsam.hyperparameters.swa",
    "training.augmentation", "search", "search.lr", "search.rho", "tuning",
    "tuning.trials", "tuning.rungs", "tuned", "methods.fedsam.search",
    "a." * 3000, "", ".", "..", "methods..x", "evaluation_where.4-of-20",
]  # fmt: skip
WORDS = [
    "quick", "fedgf", CELL, "fedsam", "accuracy", "drift", "hessian", "--seed", "--set", "--out", "--results", "--root",
    "--threads", "--device", "cpu", "0", "-1", "9" * 5000, "", " ", "a\nb", "\udcff", "x" * 300, "/dev/zero", FILE,
    "--help", "--", "-x", "=", "training.rounds=3", "digits", "dirichlet-0.1", "nowhere", "../..", "\0",
]  # fmt: skip
COMMANDS = [
    ["run", "quick", CELL], ["table", "quick"], ["figure", "quick"], ["report", "quick"], ["summary", "quick"],
    ["methods"], ["analyses"], ["schema"], ["published"], ["analyse", "sharpness", "nowhere"], ["data", "check"],
    ["compare", "fedsam"], ["claims", "none"], ["data", "split", "none"], ["data", "partition", "none"],
    ["plan", "quick_runs"], ["tune", "quick"], [],
]  # fmt: skip
"""Commands that neither train nor measure with these words."""

assignments = st.builds(
    lambda key, value: f"{key}={value}",
    st.sampled_from(KEYS),
    st.one_of(junk.map(lambda value: text_of(value).removesuffix("...\n").strip()), st.sampled_from(["[", "&a [*a]"])),
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command line. Commands that compute get a device that does not exist: nothing is trained or measured."""
    command = list(draw(st.sampled_from(COMMANDS)))
    for word in draw(st.lists(st.one_of(st.sampled_from(WORDS), assignments.map("--set={}".format)), max_size=3)):
        command.insert(draw(st.integers(min(1, len(command)), len(command))), word)
    return [*command, "--device", "nowhere"] if command[:1] in (["run"], ["tune"], ["analyse"], ["plan"]) else command


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
