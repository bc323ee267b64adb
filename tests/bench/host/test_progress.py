"""Timers of repeated work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedflat.bench.host import progress
from fedflat.bench.host.progress import Timer


@given(st.floats(0, 100), st.lists(st.floats(0, 50), max_size=30))
def test_a_timer_is_due_when_its_seconds_have_passed_since_it_was_due(seconds, steps):
    now = last = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress.time, "monotonic", lambda: now)
        timer = Timer(seconds)
        for step in steps:
            now += step
            due = now - last >= seconds
            assert timer.is_due() == due
            last = now if due else last
