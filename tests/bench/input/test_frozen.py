"""Messages name configurations by words that users know, not by the classes of the code."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen


class TwoWordsAB(Frozen):
    level: Literal["low", "high"] | None = None


class Named(Frozen):
    name: Literal["its_name"] = "its_name"


class Outer(Frozen):
    inner: TwoWordsAB = TwoWordsAB()
    several: str | dict[str, int] | None = None
    path: Path | None = None
    many: tuple[int, ...] = Field(default=(0,), min_length=1, max_length=2)


@pytest.mark.parametrize(
    ("model", "words"),
    [(TwoWordsAB, "two words AB"), (Named, "its_name"), (EngineSettings, "engine"), (Evaluation, "evaluation")],
)
def test_an_unknown_key(model, words):
    with pytest.raises(UserError, match=f"^unknown key of {words} 'x'"):
        model.parse({"x": 1})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("high", "inner = 'high'; did you mean inner.level = high? (allowed: a mapping with the keys level)"),
        ("medium", "inner = 'medium' (allowed: a mapping with the keys level)"),
        (["high"], "inner (allowed: a mapping with the keys level)"),
    ],
)
def test_a_value_instead_of_a_mapping(given, message):
    with pytest.raises(UserError) as error:
        Outer.parse({"inner": given})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"several": 3}, "several = 3 (allowed: text or a mapping of keys and values)"),
        ({"several": {"a": "x"}}, "several.a = 'x': Input should be a whole number"),
        ({"path": 3}, "path = 3: Input should be the path of a file or folder"),
        ({"many": "x"}, "many = 'x': Input should be a list"),
        ({"many": None}, "many = null: Input should be a list"),
        ({"many": [1, 2.5]}, "many.1 = 2.5: Input should be a whole number"),
        ({"many": []}, "many: it should have at least 1 entry"),
        ({"many": [1, 2, 3]}, "many: it should have at most 2 entries"),
    ],
)
def test_types_are_named_in_words(given, message):
    with pytest.raises(UserError) as caught:
        Outer.parse(given)
    assert str(caught.value) == message
