"""Messages name configurations by words that users know, not by the classes of the code."""

from typing import Literal

import pytest

from bench.engine.settings import EngineSettings
from bench.experiments.run_config import Evaluation
from bench.input.errors import UserError
from bench.input.frozen import Frozen


class TwoWordsAB(Frozen):
    level: Literal["low", "high"] | None = None


class Named(Frozen):
    name: Literal["its_name"] = "its_name"


class Outer(Frozen):
    inner: TwoWordsAB = TwoWordsAB()


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
