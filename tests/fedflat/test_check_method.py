"""The conformance suite: the catalog passes, and each planted fault is found, at its line."""

import re
from pathlib import Path

import pytest

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.user_file import recipe_from_file
from fedflat.conformance.finding import (
    COHORT,
    COSTS,
    DIFFERENCE,
    EFFECTS,
    HIDDEN,
    IMPORTS,
    NEUTRAL,
    RADIUS,
    RESUME,
    SIGNS,
)
from fedflat.conformance.suite import Report, check_method
from fedflat.conformance.template import write_template
from fedflat.method_description import describe
from tests.fedflat.planted import (
    CORRECTION,
    LOSS,
    MEMORY,
    PLANTED,
    RETURN_DELTA,
    RETURN_Q,
    SAM,
    SERVER,
    WEIGHTS,
    source,
)
from tests.tiers import METHODS, case

EXPERIMENT = """
name: own
extends: quick
methods:
  fedavg: {}
  combined: {file: own.py, correction: fedcm, hyperparameters: {rho: 0.2, alpha: 0.3, swa: {cycle: 2}}}
"""


@pytest.fixture
def checked(tmp_path):
    """Writes a method file, and checks it."""

    def check(text: str) -> tuple[Report, Path]:
        file = tmp_path / "planted.py"
        file.write_text(text, encoding="utf-8")
        return check_method(str(file)), file

    return check


FIRST = {check: name for name, (_, check, _) in reversed(PLANTED.items())}
"""By check, the first fault that it finds."""
FAULTS = [case(*fault, quick=name in FIRST.values(), name=name) for name, fault in PLANTED.items()]


@pytest.mark.parametrize(("text", "check", "seen"), FAULTS)
def test_a_planted_fault_is_found(text, check, seen, checked):
    """One check reports it in one line, with the line of the fault if it is known."""
    report, file = checked(text)
    assert {finding.check for finding in report.findings} == {check}, list(report.lines())
    [line] = [str(finding) for finding in report.findings]
    assert re.search(seen, line), line
    assert "\n" not in line
    assert all(word in line for word in ("expected ", "; seen: ", "; to mend it: "))
    here = [number for number, code in enumerate(text.splitlines(), start=1) if code.endswith("# here")]
    if here:
        assert line.startswith(f"{file}:{here[0]}: {check}: "), line
    else:
        assert line.startswith(str(file)), line


@pytest.mark.parametrize("body", [SAM, CORRECTION, MEMORY, LOSS, SERVER, WEIGHTS])
def test_what_the_faults_were_planted_in_has_none(body, checked):
    assert checked(source(body))[0].findings == []


@pytest.mark.parametrize("name", METHODS)
def test_the_catalog_passes(name):
    report = check_method(name)
    assert report.findings == []
    some = {RADIUS, NEUTRAL, EFFECTS, COSTS} | ({DIFFERENCE} if name == "fedavg" else set())
    assert set(report.not_checked) <= some, "the others apply to every method"
    unclear = {
        "fedrcl": "k_pos = 1, 2; ",
        "fedgf": "window_rule = available, eq16, alg1; ",
        "fedgloss": "rho_0 = 0, 0.1, 1; .*server_radius = warmup, released; ",
        "fedwmsam": "alpha_max = 0.9, ",
    }
    assert re.search(unclear.get(name, "^$"), report.not_checked.get(EFFECTS, ""))


def test_resuming_is_checked_with_a_file_that_is_executed_again(checked):
    """A variable that is set before training, and differs in the next process."""
    text = source(
        "import itertools\nimport sys\nstarts = sys.modules.setdefault('planted_starts', itertools.count())\n"
        + CORRECTION,
        (RETURN_Q, "return self.lam * g * OFTEN"),
        ("Neutral(0)", '"lam"'),
    ).replace("seen = []", "seen = []\n")
    text = text.replace("class Planted", "OFTEN = 1 + 0.01 * next(starts)\n\n\nclass Planted")
    report, _ = checked(text)
    assert {finding.check for finding in report.findings} == {RESUME}


def test_a_method_that_cannot_be_batched_is_no_fault(checked):
    report, _ = checked(
        source(CORRECTION, (RETURN_Q, "return g / self.lam if float(g.norm()) > 1e-3 else g"), ("Neutral(0)", '"l"'))
    )
    assert report.findings == []
    assert "clients can only be trained one after another, which is slower" in report.not_checked[COHORT]


def test_a_descending_perturbation_may_be_meant(checked):
    edits = (
        (RETURN_DELTA, "return -self.rho * unit(gradient(w))"),
        ('name = "planted"', 'name = "planted"\n    ascends = False'),
    )
    assert checked(source(SAM, *edits))[0].findings == []


MIXIN = """
class Remembers(Component):
    client_state = ("memory",)

    def finish(self, w, client):
        client.state["memory"] = w - client.w_global


class Planted(Remembers, Correction):
    name = "planted"

    def direction(self, g, w, client):
        return g + 0.1 * client.state["memory"]
"""
AVERAGE = """
class Planted(Server):
    name = "planted"
    server_state = ("mean",)

    def step(self, server):
        return server.w + server.server_lr * server.mean_update

    def after_step(self, w, server):
        server.state["mean"] = 0.5 * server.state["mean"] + 0.5 * w

    def also_evaluated(self, state):
        return {"mean": state["mean"]}
"""


@pytest.mark.parametrize("body", [MIXIN, AVERAGE])
def test_classes_for_several_components_and_further_models_are_no_faults(body, checked):
    assert checked(source(body))[0].findings == []


def test_a_class_variable_of_another_component_is_found(checked):
    text = source(SAM, ('name = "planted"', 'name = "planted"\n    needs_client_state: ClassVar[tuple[str, ...]] = ()'))
    [finding] = checked(text)[0].findings
    assert "needs_client_state, a class variable of Server, which nothing reads here" in str(finding)


def test_a_factor_that_is_zero_hides_no_hyperparameter(checked):
    """A weight that is zero unless it is given, and what it weighs."""
    text = source(
        CORRECTION,
        (RETURN_Q, "return g + self.lam * (w - client.w_global) ** self.power"),
        ("= Field(ge=0)", "= Field(default=0.0, ge=0)\n    power: int = Field(ge=1, examples=[2])"),
    )
    assert checked(text)[0].findings == []


def test_another_file_of_the_folder_is_not_imported(tmp_path, monkeypatch):
    """Its edits would change runs, but not their identity."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"helper_{name}.py").write_text("LENGTH = 0.1\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path / name)
    file = tmp_path / "one" / "planted.py"
    file.write_text(source(SAM).replace("import torch\n", "import torch\nimport helper_two\n"), encoding="utf-8")
    assert check_method(str(file)).findings == [], "the file of another folder may be part of an installed package"
    later = source(SAM, (RETURN_DELTA, f"from helper_one import LENGTH  # here\n        {RETURN_DELTA}"))
    file.write_text(later, encoding="utf-8")
    line = next(i for i, code in enumerate(later.splitlines(), start=1) if code.endswith("# here"))
    [finding] = check_method(str(file)).findings
    assert str(finding).startswith(f"{file}:{line}: {IMPORTS}: expected ")
    assert finding.seen.startswith("the import of 'helper_one.py'")
    with pytest.raises(UserError, match=rf"the method file '{file}' imports 'helper_one.py' in line {line}: edits of"):
        recipe_from_file(file)


def test_a_cached_property_is_no_hidden_state(checked):
    edits = (
        ("class Planted", "from functools import cached_property\n\n\nclass Planted"),
        (RETURN_DELTA, "return self.length * unit(gradient(w))\n\n    @cached_property\n    def length(self):\n"
         "        return self.rho"),
    )  # fmt: skip
    report, _ = checked(source(SAM, *edits))
    assert (report.findings, set(report.not_checked)) == ([], {COSTS})


def test_signs_need_a_perturbation_that_is_not_zero(checked):
    text = source(SAM, (RETURN_DELTA, "return -self.rho * unit(gradient(w))"), ("ge=0)", "ge=0, examples=[0.0])"))
    report, _ = checked(text)
    assert report.findings == []
    assert report.not_checked[SIGNS] == "δ is zero in all steps; choose other values with --set NAME=VALUE"


def test_a_method_of_an_experiment_is_checked_and_described_with_its_values(tmp_path):
    """A composition of a file and the catalog: hidden state of the file's part is found."""
    file = write_template(tmp_path / "own")
    hidden = {"\n\nclass ": "\n\nseen = []\n\n\nclass ", "        return": "        seen.append(1)\n        return"}
    experiment = tmp_path / "experiments.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    name = f"{experiment}:combined"
    report = check_method(name)
    assert report.findings == []
    assert (report.title, report.values) == ("Own + fedcm (own + fedcm)", {"rho": 0.2, "alpha": 0.3})
    assert check_method(name, {"rho": 0.4}).values["rho"] == 0.4
    said = describe(name)
    assert "correction: fedcm" in said
    assert re.search(r"\n  rho: .*; here 0.2\n  alpha: .*; here 0.3\n", said)
    for old, new in hidden.items():
        file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert HIDDEN in {finding.check for finding in check_method(name).findings}
    for wrong, message in (
        (str(experiment), f"is an experiment (allowed: {experiment}:fedavg, {name})"),
        (f"{experiment}:combine", "unknown method of .* 'combine'; did you mean 'combined'"),
        ("quik:fedavg", "unknown experiment 'quik'; did you mean 'quick'"),
    ):
        for command in (check_method, describe):
            with pytest.raises(UserError, match=message if ".*" in message else re.escape(message)):
                command(wrong)


def test_what_cannot_be_checked_is_one_line(tmp_path):
    with pytest.raises(UserError, match="unknown method 'fedsamm'; did you mean 'fedsam'"):
        check_method("fedsamm")
    with pytest.raises(UserError, match=r"cannot read the method file"):
        check_method(str(tmp_path / "none.py"))
    with pytest.raises(
        UserError, match=r"fedsam: rho = -1.*; values for the check are those of examples=\[...\], or of"
    ):
        check_method("fedsam", {"rho": -1})
    with pytest.raises(UserError, match="unknown hyper-parameter of fedavg 'rho'"):
        check_method("fedavg", {"rho": 0.1})
