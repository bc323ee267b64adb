"""Files of users that import FedFlat by the names that its packages had before."""

import ast
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from fedflat.analysis.analyses import base as analyses
from fedflat.bench.code import present_names
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.code.user_code import OwnImportError, refuse_own_imports, run_file
from fedflat.bench.methods import base as methods
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.methods.user_file import recipe_from_file
from tests.places import ROOT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(present_names, "_reported", set())
    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place).resolve() != ROOT])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def executed(file: Path, text: str) -> Any:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    trust(file.read_bytes())
    return run_file(file, file.read_bytes(), "method file")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("from bench.methods.base import Perturbation as found", methods.Perturbation),
        ("from bench.methods import base as found", methods),
        ("import bench.methods.base as found", methods),
        ("import bench.methods.base\nfound = bench.methods.base", methods),
        ("import math, analysis.analyses.base, os\nfound = analysis.analyses.base", analyses),
        ("from __future__ import annotations\nfrom analysis.analyses.base import Analysis as found", analyses.Analysis),
        ("def late():\n    from bench.methods.base import unit\n    return unit\n\nfound = late()", methods.unit),
        ("try:\n    from bench.methods.base import unit as found\nexcept ImportError:\n    found = 0", methods.unit),
    ],
)
def test_earlier_names_are_the_same_objects(text: str, value: Any, folder: Path) -> None:
    assert executed(folder / "mine.py", text).found is value


@pytest.mark.parametrize("text", ["import bench.methodz", "from bench.methodz.base import unit", "import paper_tables"])
def test_what_never_was_there_is_not_found(text: str, folder: Path) -> None:
    with pytest.raises(Exception, match=f"No module named '{text.split()[1].partition('.')[0]}"):
        executed(folder / "mine.py", text)


def test_one_line_per_file_names_the_present_names(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "from bench.methods.recipe import Recipe\nfrom bench.input.errors import UserError\nimport bench.methods.base\n"
    )
    with caplog.at_level(logging.WARNING):
        for name in ("mine", "copy"):
            executed(folder / f"{name}.py", text)
        executed(folder / "new.py", "from fedflat.methods import Recipe, unit\n")
    [line] = caplog.messages
    assert line == (
        f"'{folder / 'mine.py'}' imports bench.input.errors, bench.methods.base, bench.methods.recipe by the earlier "
        "name, which still works; write fedflat.bench.input.errors, fedflat.methods"
    )


def test_errors_have_the_line_of_the_file(folder: Path) -> None:
    text = "import bench.methods.base, math\n\n\nfrom bench.methods.base import absent\n"
    with pytest.raises(Exception, match="fails in line 4: ImportError: cannot import name 'absent'"):
        executed(folder / "mine.py", text)


def test_the_current_folder_does_not_change_what_a_file_imports(folder: Path) -> None:
    """Not even if it has modules of these names, such as an older clone of FedFlat; others are the user's."""
    for name in (
        "bench/__init__",
        "bench/methods/__init__",
        "bench/methods/base",
        "analysis/__init__",
        "analysis/plots",
    ):
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("unit = 3\n", encoding="utf-8")
    assert executed(folder / "elsewhere" / "mine.py", "from bench.methods.base import unit").unit is methods.unit
    assert _present("from analysis.plots import value") == "from analysis.plots import value"
    assert _present("from analysis.analyses.base import x") == "from fedflat.analysis.analyses.base import x"
    file = folder / "mine.py"
    file.write_text("from bench.methods.base import unit\n", encoding="utf-8")
    refuse_own_imports(file, file.read_bytes(), "method file")
    file.write_text("from analysis.plots import value\n", encoding="utf-8")
    with pytest.raises(OwnImportError, match="imports 'analysis' in line 1"):
        refuse_own_imports(file, file.read_bytes(), "method file")


def test_the_names_alone_are_free(folder: Path) -> None:
    """`import bench` is a package of the user; a module that never was in a package of FedFlat is named as it is."""
    assert _present("import bench, analysis as a") == "import bench, analysis as a"
    assert _present("from bench import x") == "from bench import x"
    with pytest.raises(Exception, match=r"No module named 'fedflat\.bench\.methods\.nothere'"):
        executed(folder / "mine.py", "from bench.methods.nothere import x")


def test_the_copy_in_a_run_is_not_to_be_edited(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "config.json").write_text("{}", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        executed(folder / "method.py", "from bench.methods.base import unit")
    assert caplog.messages == []


def test_long_expressions_are_compiled(folder: Path) -> None:
    text = "from bench.methods.base import unit\nfound = " + " + ".join(["1"] * 800)
    assert executed(folder / "mine.py", text).found == 800


@pytest.mark.parametrize(
    ("imported", "write"),
    [
        ("bench.methods.recipe", "fedflat.methods"),
        ("bench.methods.corrections.scaffold", "fedflat.methods"),
        ("bench.methods.catalog", "fedflat.bench.methods.catalog"),
        ("bench.models.dropout", "fedflat.models"),
        ("analysis.analyses.provenance", "fedflat.analysis.analyses.provenance"),
    ],
)
def test_what_to_write_has_the_names(imported: str, write: str) -> None:
    assert present_names._public(imported) == write


def _present(text: str) -> str:
    tree = ast.parse(text)
    present_names.use_present_names(tree)
    return ast.unparse(tree)


def test_a_method_with_earlier_names_is_that_with_present_ones(folder: Path) -> None:
    body = """

class Mine(Perturbation):
    name = "mine"

    def delta(self, w, gradient, client):
        return 0.1 * unit(gradient(w))


METHOD = Recipe("mine", "Mine", "a test", Components(perturbation=Mine))
"""
    imports = {
        "old": "from bench.methods.base import Perturbation, unit\n"
        "from bench.methods.recipe import Components, Recipe\n",
        "new": "from fedflat.methods import Components, Perturbation, Recipe, unit\n",
    }
    found: dict[str, Recipe] = {}
    for name, text in imports.items():
        file = folder / f"{name}.py"
        file.write_text(text + body, encoding="utf-8")
        trust(file.read_bytes())
        found[name] = recipe_from_file(file)
    assert {type(recipe) for recipe in found.values()} == {Recipe}
    assert all(issubclass(recipe.components.perturbation, methods.Perturbation) for recipe in found.values())
