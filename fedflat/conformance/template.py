"""The file with which a new method begins."""

import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.bounds import LONGEST_NAME
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG

TEMPLATE = '''"""TITLE: what the method does, in one sentence.

    δ = ρ unit(∇F_i(w))        the equations, as in a paper

`fedflat methods FILE.py` prints this text and the counted costs, `fedflat check-method FILE.py` checks the method.
"""

from typing import Annotated

from pydantic import Field

from fedflat.methods import Components, Costs, Neutral, Perturbation, Radius, Recipe, Search, unit

# A method consists of components: a Perturbation, a Correction, a Server and a Loss, all in fedflat.methods.
# Those that it does not define are FedAvg's. This file defines a perturbation; for a correction, derive from Correction
# and write direction(self, g, w, client), for a server, derive from Server and write step(self, server). Vectors such
# as w have one number per parameter of the network. docs/experiments/methods.md lists what client and server contain.


class CLASS(Perturbation):
    """‖δ‖ = ρ; two gradients per step."""

    name = "NAME"

    # Hyper-parameters are fields. Neutral(0): with the value 0, the component does what FedAvg's does, here nothing.
    # Radius(): ‖δ‖ has this value. check-method tests both; remove a mark that is not true.
    # Search(...): the range in which `fedflat tune` searches; Search(values=(10, 30)) lists the only values.
    rho: Annotated[float, Neutral(0), Radius(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, description="perturbation radius", examples=[0.1]
    )

    def delta(self, w, gradient, client):
        """δ, a vector like w. The gradient is then taken at w + δ. Do not change w in place."""
        return self.rho * unit(gradient(w))

    # What lasts from round to round is kept by name: vectors of the model's length, zero at first. Nothing else of this
    # file may change while it trains. Remove the marks of comment from what you need:
    #
    # client_state = ("memory",)
    # server_state = ("mean_memory",)
    #
    # def broadcast(self, w, state):
    #     """What the server sends in addition to the model; clients read client.received["mean_memory"]."""
    #     return {"mean_memory": state["mean_memory"]}
    #
    # def start(self, client):
    #     """Before a client's first local step. client.scratch lasts for one round."""
    #     client.scratch["memory"] = client.state["memory"]
    #
    # def finish(self, w, client):
    #     """After a client's last local step: what it stores, and what it sends in addition to its model."""
    #     client.state["memory"] = client.upload["memory"] = w - client.w_global
    #
    # def aggregate(self, server):
    #     """When all uploads have arrived, one row for each client."""
    #     server.state["mean_memory"] = server.mean(server.uploads["memory"])


METHOD = Recipe(
    "NAME",
    "TITLE",
    "where the method is described",
    Components(perturbation=CLASS),
    # What you expect: gradients per local step; vectors per client and round, including the model; stored vectors.
    costs=Costs(gradients=2, download=1, upload=1, client_state=0, server_state=0),
)
'''


def write_template(path: Path) -> Path:
    """Write the template to `path`, whose name is the method's, with or without .py; returns the file.

    A `UserError` if the file exists, or the name is not possible.
    """
    file = path if path.suffix == ".py" else path.with_name(f"{path.name}.py")
    name = file.stem
    if not re.fullmatch(rf"[a-z][a-z0-9_]{{0,{LONGEST_NAME - 1}}}", name):
        raise UserError(
            f"the name of a method '{name}' (allowed: lower-case letters, digits and '_', at most {LONGEST_NAME}, the "
            "first one a letter)"
        )
    if name in CATALOG:
        raise UserError(f"the name {name} belongs to a method of the catalog; choose another name")
    if file.exists():
        raise UserError(f"'{file}' exists; choose another name, or remove it")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, template(name))
    return file


def template(name: str) -> str:
    """The text of the template for a method of this name."""
    words = name.split("_")
    title = " ".join(filter(None, words))
    text = TEMPLATE.replace("CLASS", _class_name(words))
    return text.replace("FILE", name).replace("NAME", name).replace("TITLE", title[0].upper() + title[1:])


def _class_name(words: Sequence[str]) -> str:
    """A name for the class that is neither a keyword nor a name that the template itself needs, such as Recipe."""
    name = "".join(word.title() for word in words)
    return f"{name}Method" if keyword.iskeyword(name) or re.search(rf"\b{name}\b", TEMPLATE) else name
