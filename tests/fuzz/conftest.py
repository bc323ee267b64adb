"""How inputs are tried."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.answers import Answers


@pytest.fixture
def fuzz(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """Try inputs of a strategy: a share of all cases that the option --fuzz-cases requests."""
    monkeypatch.chdir(tmp_path)

    def tried(
        share: float,
        inputs: st.SearchStrategy[Any],
        answer: Callable[[Answers, Any], None],
        *refusals: type[BaseException],
    ) -> Answers:
        answers = Answers(*refusals)

        @settings(
            max_examples=max(1, round(share * request.config.getoption("--fuzz-cases"))),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs)
        def check(case: Any) -> None:
            answer(answers, case)

        check()
        print(f"\n{request.node.name}: {answers}")
        return answers

    return tried
