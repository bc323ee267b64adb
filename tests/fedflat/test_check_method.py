"""The conformance suite: the catalog passes, and each planted fault is found, at its line."""

import re
from pathlib import Path

import pytest

from bench.input.errors import UserError
from bench.methods.catalog import CATALOG
from bench.methods.user_file import recipe_from_file
from fedflat.conformance.finding import (
    COHORT,
    COSTS,
    EDITS,
    EFFECTS,
    EXCEPTIONS,
    FINITE,
    HIDDEN,
    IMPORTS,
    NEUTRAL,
    ORDER,
    RADIUS,
    RANDOM,
    RESUME,
    SHAPES,
    SIGNS,
)
from fedflat.conformance.suite import Report, check_method
from fedflat.conformance.template import TEMPLATE, write_template
from fedflat.methods.description import describe
from tests.commands import fedflat, refused

HEAD = """
from typing import Annotated, ClassVar
import numpy as np
import torch
from pydantic import Field, PrivateAttr
from bench.methods.base import Correction, Loss, Perturbation, Server, norm, unit
from bench.methods.marks import Neutral, Radius
from bench.methods.recipe import Components, Costs, Recipe
from bench.models.network import cross_entropy
seen = []
"""
SAM = """
class Planted(Perturbation):
    name = "planted"
    rho: Annotated[float, Neutral(0), Radius()] = Field(ge=0)

    def delta(self, w, gradient, client):
        return self.rho * unit(gradient(w))
"""
CORRECTION = """
class Planted(Correction):
    name = "planted"
    lam: Annotated[float, Neutral(0)] = Field(ge=0)

    def direction(self, g, w, client):
        return g + self.lam * (w - client.w_global)
"""
MEMORY = """
class Planted(Correction):
    name = "planted"
    client_state = ("memory",)

    def direction(self, g, w, client):
        return g + 0.1 * client.state["memory"]

    def finish(self, w, client):
        client.state["memory"] = w - client.w_global
"""
LOSS = """
class Planted(Loss):
    name = "planted"

    def value(self, model, x, y, weights, variables):
        return cross_entropy(model(x), y, weights)
"""
SERVER = """
class Planted(Server):
    name = "planted"
    server_state = ("m",)

    def step(self, server):
        server.state["m"] = 0.5 * server.state["m"] + server.mean_update
        return server.w + server.state["m"]
"""


def source(body: str, *edits: tuple[str, str], costs: str = "None") -> str:
    """A method file with the class `Planted`, in which the fault has been planted by replacing text."""
    for old, new in edits:
        assert old in body
        body = body.replace(old, new)
    [slot] = re.findall(r"class Planted\((\w+)\)", body)
    components = f"Components({slot.lower()}=Planted)"
    return f'{HEAD}{body}\n\nMETHOD = Recipe("planted", "Planted", "a test", {components}, costs={costs})\n'


RETURN_DELTA = "return self.rho * unit(gradient(w))"
RETURN_Q = "return g + self.lam * (w - client.w_global)"
STEP = 'server.state["m"] = 0.5 * server.state["m"] + server.mean_update'
MEAN = "return server.w + server.state"

REPLACES = """    def broadcast(self, w, state):
        return {"v": w}

    def start(self, client):  # here
        client.received["v"] = 0 * client.w_global

"""

PLANTED = {
    # The fault is in the line that ends in "# here"; None: its line is not known.
    "δ descends": (
        source(SAM, (RETURN_DELTA, "return -self.rho * unit(gradient(w))  # here")), SIGNS, "a mean cosine of -1.00",
    ),
    "q ascends": (
        source(CORRECTION, (RETURN_Q, "return -self.lam * g  # here"), ("Neutral(0)", '"lam"')),
        SIGNS, "a mean cosine of -1.00",
    ),
    "the server steps back": (
        source(SERVER, (STEP, 'server.state["m"] = 0.5 * server.state["m"] - server.mean_update'),
               ('"m"]\n', '"m"]  # here\n')),
        SIGNS, "a mean cosine of -0",
    ),
    "δ is not normalised": (
        source(SAM, (RETURN_DELTA, "return self.rho * gradient(w)  # here")), RADIUS, "in 22 of 22 steps",
    ),
    "δ is a number": (source(SAM, (RETURN_DELTA, "return self.rho  # here")), SHAPES, "0.1 of type float"),
    "δ has one entry": (
        source(SAM, (RETURN_DELTA, "return self.rho * norm(gradient(w))  # here")), SHAPES, r"a tensor \[1\] of f",
    ),
    "a number is added to q": (
        source(CORRECTION, (RETURN_Q, "return g + self.lam * (w - client.w_global).norm()  # here"),
               ("def direction", "def start(self, client):\n        pass\n\n    def direction")),
        SHAPES, "in all entries, as if one number had been added",
    ),
    "a number is added to the model": (
        source(SERVER, (f'{MEAN}["m"]', "return server.w + server.updates.mean()  # here")),
        SHAPES, "in all entries, as if one number had been added",
    ),
    "a state becomes a number": (
        source(SERVER, (STEP, 'server.state["m"] = server.updates.mean()  # here'),
               (MEAN, "return server.mean_model + 0 * server.state")),
        SHAPES, r"a tensor \[\] of float64",
    ),
    "the state of every client becomes a number": (
        source(MEMORY, ("= w - client.w_global", "= 0 * w.sum()  # here")), SHAPES, r"seen: a tensor \[\] of float64",
    ),
    "another number format": (
        source(SAM, (RETURN_DELTA, "return (self.rho * unit(gradient(w))).half()  # here")), SHAPES, "of float16",
    ),
    "not all clients send": (
        source(CORRECTION, ("def direction", "def finish(self, w, client):\n        if client.id != 1:\n"
                            '            client.upload["more"] = w  # here\n\n    def direction')),
        SHAPES, r"\[460\] from one client, nothing from another",
    ),
    "the server's state is edited": (
        source(SERVER, (STEP, 'server.state["m"] += server.mean_update  # here')), EDITS, r'`server.state\["m"\] \+= ',
    ),
    "a client's state is edited": (
        source(MEMORY, ('client.state["memory"] = w - client.w_global', 'client.state["memory"].add_(w)  # here')),
        EDITS, r"its values have changed",
    ),
    "a part of the model is edited": (
        source(SAM, (RETURN_DELTA, f"w[:3] = 0  # here\n        {RETURN_DELTA}")), EDITS, r"`w\[:3\] = 0",
    ),
    "the gradient is edited": (
        source(CORRECTION, (RETURN_Q, f"g.data.mul_(2)\n        {RETURN_Q}  # here")), EDITS, "its values have changed",
    ),
    "the uploads are edited": (
        source(SERVER, (STEP, f"server.updates.clamp_(-1e-3, 1e-3)  # here\n        {STEP}")), EDITS, "server.updates",
    ),
    "what was received is replaced": (
        source(MEMORY, ("    def finish", REPLACES + "    def finish")), EDITS, "it is another tensor afterwards",
    ),
    "no guard against a zero gradient": (
        source(SAM, (RETURN_DELTA, "g = gradient(w)\n        return self.rho * g / norm(g)  # here")), FINITE,
        r"NaN or infinity in the result of delta: `return self.rho \* g / norm\(g\)",
    ),
    "the neutral value has an effect": (
        source(CORRECTION, (RETURN_Q, "return g + (self.lam + 0.1) * w"),
               ("= Field(ge=0)", "= Field(ge=0)  # here")),
        NEUTRAL, "models that differ by up to",
    ),
    "the neutral value is not allowed": (
        source(CORRECTION, ("= Field(ge=0)", "= Field(gt=0)  # here")), NEUTRAL, "Input should be greater than 0",
    ),
    "a client is an exception": (
        source(CORRECTION, (RETURN_Q, "return self.lam * g if client.id == 1 else g"), ("Neutral(0)", '"lam"')), COHORT,
        "the model of client 1 in round 1 differs",
    ),
    "a loss of several numbers": (
        source(LOSS, ("return cross_entropy(model(x), y, weights)", "return model(x).logsumexp(1)  # here")), SHAPES,
        r"a tensor of one number; seen: a tensor \[5\]",
    ),
    "a loss without weights": (
        source(LOSS, ("y, weights)\n", "y)\n")), COHORT, "weigh samples by `weights`, which are zero for those",
    ),
    "a variable of the module": (
        source(MEMORY, ('client.state["memory"] = w', 'seen.append(w)\n        client.state["memory"] = w')),
        HIDDEN, "the module's variable seen changes",
    ),
    "a variable of the class": (
        source(CORRECTION, ('name = "planted"', 'name = "planted"\n    calls: ClassVar[dict] = {}  # here'),
               (RETURN_Q, "self.calls[client.id] = client.step\n        return g")),
        HIDDEN, "Planted's variable calls changes",
    ),
    "a list of vectors that is read": (
        source(CORRECTION, ("Neutral(0)", '"lam"'),
               (RETURN_Q, "q = g + 0.1 * seen[-1] if seen else g\n        seen.append(g)\n        return q"))
        .replace("seen = []", "seen = []  # here"),
        HIDDEN, "the module's variable seen changes",
    ),
    "a list next to another module's function": (
        source(CORRECTION, ('name = "planted"', 'name = "planted"\n    other = unit'), ("Neutral(0)", '"lam"'),
               (RETURN_Q, "seen.append(client.step)\n        return g * self.lam")),
        HIDDEN, "the module's variable seen changes",
    ),
    "vectors by client in a class": (
        source(MEMORY, ('("memory",)', '()\n    memory: ClassVar[dict] = {}  # here'),
               ('client.state["memory"] = w - client', "self.memory[client.id] = w - client"),
               ('client.state["memory"]', "self.memory.get(client.id, 0)")),
        HIDDEN, "Planted's variable memory changes",
    ),
    "a private attribute": (
        source(CORRECTION, ('name = "planted"', 'name = "planted"\n    _last: object = PrivateAttr(None)  # here'),
               (RETURN_Q, "self._last = w\n        return g")),
        HIDDEN, "Planted's attribute _last changes",
    ),
    "a variable of a function": (
        source("def counter():\n    count = 0\n\n    def following():\n        nonlocal count\n        count += 1\n"
               "        return count\n\n    return following\n\n\nfollowing = counter()\n" + CORRECTION,
               (RETURN_Q, "return g * (1 + 0.01 * following())"), ("Neutral(0)", '"lam"')),
        HIDDEN, "the model differs",
    ),
    "the first row counts more": (
        source(SERVER, (STEP, 'server.state["m"] = server.updates[0]')), ORDER,
        "the model differs by more than rounding",
    ),
    "torch's random numbers": (
        source(SAM, (RETURN_DELTA, "return self.rho * unit(gradient(w) + 1e-3 * torch.randn(w.shape))  # here")),
        RANDOM, "torch's global generator",
    ),
    "NumPy's random numbers": (
        source(SAM, (RETURN_DELTA, "return np.random.rand() * 0 + self.rho * unit(gradient(w))")),
        RANDOM, "NumPy's global",
    ),
    "more gradients than declared": (
        source(SAM, costs="Costs(gradients=1)").replace("METHOD = Recipe(", "METHOD = Recipe(  # here\n    "),
        COSTS, "; seen: 2; ",
    ),
    "more traffic than declared": (
        source(SERVER, ("def step", 'def broadcast(self, w, state):\n        return {"m": state["m"]}\n\n    def step'),
               costs="Costs(download=1, server_state=1)"),
        COSTS, "expected download = 1, .* seen: 2; ",
    ),
    "a hyper-parameter that is not used": (
        source(SAM, (RETURN_DELTA, "return 0.1 * unit(gradient(w))"), ("Neutral(0), Radius()", '"rho"'),
               ("= Field(ge=0)", "= Field(ge=0)  # here")),
        EFFECTS, "the same models and states with rho = 0.1, 0.2, 0.05, 1",
    ),
    "a hyper-parameter that normalisation removes": (
        source(SAM, (RETURN_DELTA, "return 0.1 * unit(self.rho * gradient(w))"),
               ("Neutral(0), Radius()", '"rho"'), ("= Field(ge=0)", "= Field(gt=0.01)  # here")),
        EFFECTS, "that rho has an effect",
    ),
    "a default that is not used": (
        source(CORRECTION, ("    def", "    more: float = 0.5  # here\n\n    def")),
        EFFECTS, "with more = 0.5, 1, 0.25, ",
    ),
    "a client's state that is not stored": (
        source(MEMORY, ('client.state["memory"] = w', 'client.scratch["memory"] = w'),
               ('("memory",)', '("memory",)  # here')),
        EFFECTS, r"expected that a hook stores client.state\['memory'\]",
    ),
    "a server's state that is not stored": (
        source(SERVER, (STEP, "pass"), ('("m",)', '("m",)  # here'), (MEAN, "return server.mean_model + server.state")),
        EFFECTS, r"expected that a hook stores server.state\['m'\]",
    ),
    "numbers of samples that are not used": (
        source(SERVER, ('name = "planted"', 'name = "planted"\n    weighted_by_samples = True'),
               ("server.mean_update", "server.sent.mean(0)"), ('"m"]\n', '"m"]  # here\n')),
        EFFECTS, "the same models and states with equal weights",
    ),
    "a name that is not there": (
        source(CORRECTION, (RETURN_Q, 'return g + client.received["memory"]  # here')), EXCEPTIONS,
        r"KeyError: 'memory': `return g \+ client.received\[",
    ),
    "an attribute": (
        source(CORRECTION, (RETURN_Q, "self.last = w  # here\n        return g")),
        EXCEPTIONS, "Instance is frozen: .* components hold hyper-parameters only",
    ),
}  # fmt: skip


@pytest.fixture
def checked(tmp_path):
    """Writes a method file, and checks it."""

    def check(text: str) -> tuple[Report, Path]:
        file = tmp_path / "planted.py"
        file.write_text(text, encoding="utf-8")
        return check_method(str(file)), file

    return check


@pytest.mark.parametrize(("text", "check", "seen"), PLANTED.values(), ids=PLANTED)
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


@pytest.mark.parametrize("body", [SAM, CORRECTION, MEMORY, LOSS, SERVER])
def test_what_the_faults_were_planted_in_has_none(body, checked):
    assert checked(source(body))[0].findings == []


@pytest.mark.parametrize("name", CATALOG)
def test_the_catalog_passes(name):
    report = check_method(name)
    assert report.findings == []
    assert set(report.not_checked) <= {RADIUS, NEUTRAL, EFFECTS, COSTS}, "the others apply to every method"
    unclear = {"fedrcl": "k_pos = 1, 2; ", "fedgf": "window_rule = available, eq16, alg1; "}.get(name, "^$")
    assert re.search(unclear, report.not_checked.get(EFFECTS, ""))


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


@pytest.mark.parametrize("name", ["recipe", "costs", "perturbation", "none", "true"])
def test_the_template_runs_under_names_that_it_needs_itself(name, tmp_path):
    made = recipe_from_file(write_template(tmp_path / name))
    assert made.build({"rho": 0.1}).perturbation.name == made.name == name


def test_the_template_passes_as_it_is_and_with_all_of_its_hooks(tmp_path):
    file = write_template(tmp_path / "mine" / "two_step")
    report = check_method(str(file))
    assert (report.findings, report.not_checked) == ([], {})
    text = re.sub(
        r"^    # ?((def |    |client_state|server_state).*)?$", r"    \1", file.read_text("utf-8"), flags=re.MULTILINE
    )
    assert "# def" not in text
    costs = "costs=Costs(gradients=2, download=2, upload=2, client_state=1, server_state=1)"
    file.write_text(re.sub(r"costs=Costs\(.*\)", costs, text), encoding="utf-8")
    report = check_method(str(file))
    assert (report.findings, report.not_checked) == ([], {})
    assert report.title == "Two step (two_step)"
    assert max(map(len, TEMPLATE.splitlines())) <= 120


def test_new_method_and_check_method(tmp_path):
    file = tmp_path / "mine" / "two_step.py"
    made = fedflat("new-method", tmp_path / "mine" / "two_step")
    assert made.returncode == 0, made.stderr
    assert f"fedflat check-method {file}" in made.stdout
    text = file.read_text(encoding="utf-8")
    assert "exists; choose another name" in refused("new-method", file)
    assert file.read_text(encoding="utf-8") == text
    for name in ("Two", "2step", "two-step"):
        with pytest.raises(UserError, match=rf"the name of a method '{name}' \(allowed: lower-case"):
            write_template(tmp_path / name)
    with pytest.raises(UserError, match="the name fedsam belongs to a method of the catalog"):
        write_template(tmp_path / "fedsam")
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]

    passed = fedflat("check-method", file, "fedsam", "--set", "rho=0.05")
    assert passed.returncode == 0, passed.stderr
    assert "Two step (two_step) with rho = 0.05" in passed.stdout
    file.write_text(text.replace("return self.rho", "return -self.rho"), encoding="utf-8")
    failed = fedflat("check-method", file)
    assert failed.returncode == 2
    assert failed.stderr == "fedflat: Two step (two_step): 1 finding\n"
    [line] = [line for line in failed.stdout.splitlines() if line.startswith(str(file))]
    assert re.match(rf"{re.escape(str(file))}:\d+: signs: expected ", line)


EXPERIMENT = """
name: own
extends: quick
methods:
  fedavg: {}
  combined: {file: own.py, correction: fedcm, hyperparameters: {rho: 0.2, alpha: 0.3, swa: {cycle: 2}}}
"""


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
    with pytest.raises(UserError, match="unknown method 'fedsan'; did you mean 'fedsam'"):
        check_method("fedsan")
    with pytest.raises(UserError, match=r"cannot read the method file"):
        check_method(str(tmp_path / "none.py"))
    with pytest.raises(
        UserError, match=r"fedsam: rho = -1.*; values for the check are those of examples=\[...\], or of"
    ):
        check_method("fedsam", {"rho": -1})
    with pytest.raises(UserError, match="unknown hyper-parameter of fedavg 'rho'"):
        check_method("fedavg", {"rho": 0.1})
