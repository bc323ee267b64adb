"""Analyses of users: their names, mistakes in one line, and who may execute their files."""

import re
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.analyses import analysis_class, load_analyses
from fedflat.analysis.analyses.user_analysis import failed, rows_of
from fedflat.bench.code.trusted_code import UntrustedCodeError, trust
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from tests.commands import fedflat
from tests.places import MINI

HEAD = """
from typing import ClassVar
import pandas as pd
from fedflat.analyses import Analysis, Quantity
"""
HESSIAN = (
    HEAD
    + """
class Hessian(Analysis):
    '''The number of the run.'''
    columns: ClassVar = ("metric", "value")
    quantities: ClassVar = {"number": Quantity("number")}
    k: int = 3

    def of_run(self, run):
        return pd.DataFrame({"metric": ["number"], "value": [self.k]})
"""
)


def own(folder: Path, code: str) -> str:
    """The reference of the only class in a file that is trusted."""
    file = folder / "mine.py"
    file.write_text(code, encoding="utf-8")
    trust(file.read_bytes())
    (name,) = re.findall(r"class (\w+)", code)
    return f"{file}:{name}"


def test_a_name_of_fedflats_analyses_is_another_one(tmp_path: Path) -> None:
    kind = analysis_class(own(tmp_path, HESSIAN))
    assert kind.name == "own_hessian"
    assert kind().options() == {"k": "3"}
    assert kind.parse({"k": 4}).inputs() == {"k": "4", "code": f'"{kind.own.code}"'}
    assert kind().in_commands == f"{tmp_path}/mine.py:Hessian"
    rows = rows_of(kind(), kind().of_run(None))
    assert rows["definition"].tolist() == ["The number of the run."]


def test_commands_take_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HESSIAN, encoding="utf-8")
    shown = fedflat("analyses", "mine.py:Hessian", cwd=tmp_path).stdout
    assert shown.splitlines() == [
        "own_hessian: The number of the run.",
        "columns: metric, value",
        "options:",
        "  k = 3: None",
    ]


MISTAKES = {
    "class A: ...": "A is no analysis .*allowed: a class below Analysis",
    "class A(Analysis):\n    columns: ClassVar = ('value',)": "A is no analysis, it lacks of_run",
    HESSIAN.replace('("metric", "value")', '"value"'): "columns = 'value' .*names in a tuple",
    HESSIAN.replace('{"number"', '{"lambda_max"'): "the quantity 'lambda_max' has the name of one of FedFlat's",
    HESSIAN.replace("k: int = 3", "k: int"): "the option 'k' has no default",
    HESSIAN.replace("k: int = 3", "code: int = 3"): "an option is named 'code'",
    "class A(Analysis):\n    1 / 0": "fails in line 7: ZeroDivisionError",
}


@pytest.mark.parametrize("code", MISTAKES)
def test_mistakes_are_one_line_before_anything_is_computed(code: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=MISTAKES[code]) as caught:
        analysis_class(own(tmp_path, code if code.startswith("\n") else f"{HEAD}\n{code}\n"))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1], "of_run returns list .allowed: a pandas DataFrame"),
        (pd.DataFrame({"metric": ["number"]}), "returns no column 'value'"),
        (pd.DataFrame({"metric": ["n"], "value": [1], "mood": ["good"]}), "'mood' contains no numbers .allowed with"),
    ],
)
def test_rows_that_cannot_be_stored_are_refused(table: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        rows_of(analysis_class(own(tmp_path, HESSIAN))(), table)


def test_an_error_of_its_code_names_the_line(tmp_path: Path) -> None:
    kind = analysis_class(own(tmp_path, HESSIAN.replace("[self.k]", "[1 / 0]")))
    with pytest.raises(ZeroDivisionError) as caught:
        kind().of_run(None)
    assert str(failed(kind.own, caught.value)).endswith(
        "mine.py' fails in line 13: ZeroDivisionError: division by zero"
    )


def experiment(folder: Path, analyses: str) -> str:
    file = folder / "experiments.yaml"
    file.write_text(f"name: mine\nextends: {MINI}\nanalyses: {analyses}\n", encoding="utf-8")
    return str(file)


def test_an_experiment_gives_options_by_name(tmp_path: Path) -> None:
    own(tmp_path, HESSIAN)
    file = experiment(tmp_path, "[mine.py:Hessian]")
    (tmp_path / "analyses.yaml").write_text("four: {analysis: own_hessian, k: 4}\n", encoding="utf-8")
    found = load_analyses(file, own=load_experiment(file).analyses)
    assert [found[name].options() for name in ("own_hessian", "four")] == [{"k": "3"}, {"k": "4"}]


@pytest.mark.parametrize(
    ("analyses", "message"),
    [
        ("hessian", r"analyses = 'hessian' \(allowed: a list of your own, such as \[mine.py:WeightNorm\]"),
        ("[hessian]", "a user-defined analysis must be path/to/file.py:function"),
        ("[absent.py:A]", "cannot read the analysis file"),
    ],
)
def test_other_values_are_refused(analyses: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_experiment(experiment(tmp_path, analyses))


def test_the_file_of_somebody_else_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HESSIAN}\n# {tmp_path}", encoding="utf-8")  # trusted nowhere
    file = experiment(tmp_path, "[mine.py:Hessian]")
    with pytest.raises(UntrustedCodeError):
        load_experiment(file, stored=True)
    with pytest.raises(UntrustedCodeError):
        analysis_class(f"{tmp_path}/mine.py:Hessian")
