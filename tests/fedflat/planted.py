"""Methods without a fault, and the faults that are planted in them."""

import re

from fedflat.conformance.finding import (
    COHORT,
    COSTS,
    DIFFERENCE,
    EDITS,
    EFFECTS,
    EXCEPTIONS,
    FINITE,
    HIDDEN,
    HOOKS,
    NEUTRAL,
    ORDER,
    RADIUS,
    RANDOM,
    SHAPES,
    SIGNS,
)

HEAD = """
from typing import Annotated, ClassVar
import numpy as np
import torch
from pydantic import Field, PrivateAttr
from fedflat.bench.methods.base import Component, Correction, Loss, Perturbation, Server, norm, unit
from fedflat.bench.methods.marks import Neutral, Radius
from fedflat.bench.methods.recipe import Components, Costs, Recipe
from fedflat.bench.models.network import cross_entropy
seen = []
"""
DIRECTION = "def direction(self, g, w, client):"
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
        return 1.5 * cross_entropy(model(x), y, weights)
"""
SERVER = """
class Planted(Server):
    name = "planted"
    server_state = ("m",)

    def step(self, server):
        server.state["m"] = 0.5 * server.state["m"] + server.mean_update
        return server.w + server.state["m"]
"""
WEIGHTS = """
class Planted(Server):
    name = "planted"

    def client_weights(self, server):
        weights = server.weights * (1 + norm(server.sent)[:, 0])
        return weights / weights.sum()

    def step(self, server):
        return server.w + server.mean_update
"""

RETURN_DELTA = "return self.rho * unit(gradient(w))"
RETURN_Q = "return g + self.lam * (w - client.w_global)"
STEP = 'server.state["m"] = 0.5 * server.state["m"] + server.mean_update'
MEAN = "return server.w + server.state"
REPLACES = """    def broadcast(self, w, state):
        return {"v": w}

    def start(self, client):  # here
        client.received["v"] = 0 * client.w_global

"""


def source(body: str, *edits: tuple[str, str], costs: str = "None") -> str:
    """A method file with the class `Planted`, in which the fault has been planted by replacing text."""
    for old, new in edits:
        assert old in body
        body = body.replace(old, new)
    [slot] = re.findall(r"class Planted\((?:\w+, )?(\w+)\)", body)
    components = f"Components({slot.lower()}=Planted)"
    return f'{HEAD}{body}\n\nMETHOD = Recipe("planted", "Planted", "a test", {components}, costs={costs})\n'


PLANTED = {
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
    "weights that do not sum to 1": (
        source(WEIGHTS, ("weights / weights.sum()", "2 * weights / weights.sum()  # here")), SHAPES, "a sum of 2;",
    ),
    "weights in a column": (
        source(WEIGHTS, ("weights / weights.sum()", "(weights / weights.sum())[:, None]  # here")), SHAPES,
        r"a tensor \[\d, 1\] of float64",
    ),
    "weights that are not numbers": (
        source(WEIGHTS, ("weights / weights.sum()", "weights / (0 * weights.sum())  # here")), FINITE,
        "NaN or infinity in the result of client_weights",
    ),
    "weights that are edited": (
        source(WEIGHTS, ("weights = server.weights * ", "weights = server.weights.mul_(2) / "),
               ("(1 + norm(server.sent)[:, 0])", "(1 + norm(server.sent)[:, 0])  # here")),
        EDITS, "server.weights",
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
        source(LOSS, ("1.5 * cross_entropy(model(x), y, weights)", "model(x).logsumexp(1)  # here")), SHAPES,
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
    "a misspelt hook": (
        source(CORRECTION, (DIRECTION, "def directions(self, g, w, client):  # here")),
        HOOKS, "expected the hook direction; seen: directions, which nothing calls",
    ),
    "a misspelt hook of the server": (
        source(SERVER, ("def step", "def broadcast_mode(self, w, state):  # here\n        return w\n\n    def step")),
        HOOKS, "expected the hook broadcast_model; seen: broadcast_mode",
    ),
    "a hook of another component": (
        source(SAM, ("def delta", f"{DIRECTION}  # here\n        return g\n\n    def delta")),
        HOOKS, "direction, a hook of Correction, which nothing calls here; to mend it: move it to a Correction",
    ),
    "arguments in another order": (
        source(CORRECTION, (DIRECTION, "def direction(self, w, g, client):  # here"),
               (RETURN_Q, "return w + self.lam * (g - client.w_global)")),
        HOOKS, r"expected direction\(self, g, w, client\); seen: direction\(self, w, g, client\)",
    ),
    "a misspelt class variable": (
        source(WEIGHTS, ('"planted"\n', '"planted"\n    weighted_by_sample: ClassVar[bool] = True  # here\n')),
        HOOKS, "expected the class variable weighted_by_samples; seen: weighted_by_sample",
    ),
    "a method that is FedAvg": (
        source(CORRECTION, (RETURN_Q, "return g + 0 * (w - client.w_global)"),
               ("    lam: Annotated[float, Neutral(0)] = Field(ge=0)\n", "")),
        DIFFERENCE, "expected other models than those of FedAvg; seen: the same bits",
    ),
    "a default that has no effect": (
        source(CORRECTION, ("= Field(ge=0)", "= Field(ge=0)\n    power: int = Field(default=2, ge=1)  # here"),
               (RETURN_Q, "return g + self.lam * (w - client.w_global) * (self.power / self.power)")),
        EFFECTS, "expected that power has an effect; seen: the same models and states with power = 2, 4, 3, 1",
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
"""Method files, the check that finds the fault of each, and what it reports (a pattern).

The fault is in the line that ends in "# here"; without one, the check does not know its line.
"""
