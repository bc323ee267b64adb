"""The modules that a user's files import: what they have, and that the docs list it."""

import re
import subprocess
import sys
from importlib import import_module

import pytest

from tests.places import ROOT

MODULES = ("methods", "models", "datasets", "evaluation", "analyses")


@pytest.mark.parametrize("name", MODULES)
def test_the_docs_list_what_a_module_has(name: str) -> None:
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    [row] = re.findall(rf"^\| `fedflat\.{name}` \| (.*) \|$", text, re.M)
    assert set(re.findall(r"`(\w+)`", row)) == set(import_module(f"fedflat.{name}").__all__)


def test_each_is_there_in_a_new_process() -> None:
    """Also the name that was a function, and is a package now."""
    code = """
import fedflat
for name in ("methods", "models", "datasets", "evaluation", "analyses"):
    assert getattr(fedflat, name).__all__
try:
    fedflat.analysis("quick", "hesian")
except fedflat.UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "unknown analysis of experiment quick 'hesian'; did you mean 'hessian'?" in done.stdout
    assert done.stderr == "fedflat.analysis(...) is fedflat.analysis_values(...) now\n"
