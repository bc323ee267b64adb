"""SWA: means of the collected models, a cyclic rate, and a training that it does not touch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.swa import SWA
from tests.problems import Problem, distance

few = settings(max_examples=10, deadline=None)


@few
@given(seed=st.integers(0, 1000), start=st.integers(0, 5), cycle=st.integers(1, 3))
def test_the_average_is_the_mean_of_the_collected_models(seed, start, cycle):
    """The rate is constant (lr_end = lr), so w^t is that of the method without SWA."""
    problem = Problem(seed, rounds=6)
    plain = problem.run("fedsam", {"rho": 0.1}).global_params
    swa = {"start": start, "cycle": cycle, "lr_end": 0.1}
    wrapped = problem.run("fedsam", {"rho": 0.1, "swa": swa}).global_params
    collected = []
    for t in range(6):
        if t >= start and (t - start + 1) % cycle == 0:
            collected.append(plain[t])
        expected = torch.stack(collected).mean(0) if collected else plain[t]
        assert torch.allclose(wrapped[t], expected, atol=1e-12)


@few
@given(seed=st.integers(0, 1000), start=st.integers(0, 4))
def test_a_cycle_of_one_changes_nothing_in_training(seed, start):
    problem = Problem(seed, rounds=5)
    federations = [
        problem.federation("scaffold", {}),
        problem.federation("scaffold", {"swa": {"start": start, "cycle": 1, "lr_end": 0.0}}),
    ]
    states = [federation.start(federation.objective.initial()) for federation in federations]
    for active in problem.some():
        states = [f.run_round(state, active)[0] for f, state in zip(federations, states, strict=True)]
        assert torch.equal(states[0].w, states[1].w)


@pytest.mark.parametrize("collect", ["end", "release", "alg1"])
def test_constant_weights_stay_what_they_are(collect):
    """A model that cannot move: every average of it is itself."""
    w = torch.tensor([1.0, -2.0], dtype=torch.float64)
    swa = SWA(start=2, cycle=2, collect=collect)
    state = swa.start_server(w)
    for t in range(9):
        state = swa.after_round(t, w, w, state)
        assert torch.allclose(swa.evaluated(w, state), w, atol=1e-15)


def test_the_rate_falls_within_each_cycle():
    """start 4, cycle 2: x = 1/2, 1, 1/2, 1; the release's and Algorithm 1's phases differ."""
    rates = {c: [SWA(start=4, cycle=2, lr_end=0.0, collect=c).learning_rate(t, 1.0) for t in range(3, 8)]
             for c in ("end", "release", "alg1", "none")}  # fmt: skip
    assert rates["none"] == rates["end"]
    assert rates["end"] == [1.0, 0.5, 0.0, 0.5, 0.0]
    assert rates["release"] == [1.0, 0.5, 0.0, 0.5, 0.0]
    assert rates["alg1"] == [1.0, 0.0, 0.5, 0.0, 0.5]
    late = SWA(start=3, cycle=2, lr_end=0.0, collect="release")
    assert [late.learning_rate(t, 1.0) for t in (3, 4)] == [0.0, 0.5]


@few
@given(seed=st.integers(0, 1000), start=st.integers(0, 4), cycle=st.integers(1, 3))
def test_without_averaging_only_the_rate_is_cyclic(seed, start, cycle):
    """w^t is bitwise that of the method with averaging; it is evaluated, and the server has no further state."""
    problem, swa = Problem(seed, rounds=5), {"start": start, "cycle": cycle, "lr_end": 0.01}
    averaged = problem.federation("scaffold", {"swa": swa})
    cyclic = problem.federation("scaffold", {"swa": swa | {"collect": "none"}})
    states = [federation.start(federation.objective.initial()) for federation in (averaged, cyclic)]
    for active in problem.some():
        states = [f.run_round(state, active)[0] for f, state in zip((averaged, cyclic), states, strict=True)]
        assert torch.equal(states[0].w, states[1].w)
        assert cyclic.evaluated(states[1]) is states[1].w
        assert set(states[1].server) == set(states[0].server) - {"w_swa", "n_swa"}


def test_averaging_is_all_that_distinguishes_the_runs():
    """Of the same rounds and rates, a mean of two models, and the last one of them."""
    problem, swa = Problem(5, rounds=4), {"start": 0, "cycle": 2, "lr_end": 0.01}
    mean = problem.run("fedsam", {"rho": 0.1, "swa": swa}).global_params
    cyclic = problem.run("fedsam", {"rho": 0.1, "swa": swa | {"collect": "none"}}).global_params
    assert torch.allclose(mean[3], (cyclic[1] + cyclic[3]) / 2, atol=1e-12)
    assert distance(problem.run("fedsam", {"rho": 0.1}), problem.run("fedsam", {"rho": 0.1, "swa": swa})) > 1e-3


def scripted(collect: str, rounds: int) -> list[float]:
    """What is evaluated when w^t = t."""
    swa = SWA(start=2, cycle=2, collect=collect)
    state = swa.start_server(torch.zeros(1, dtype=torch.float64))
    seen = []
    for t in range(rounds):
        w, w_next = torch.full((1,), float(t)).double(), torch.full((1,), t + 1.0).double()
        state = swa.after_round(t, w, w_next, state)
        seen.append(float(swa.evaluated(w_next, state)))
    return seen


def test_three_rules_of_collecting():
    """By hand, start 2 and cycle 2: `end` takes w^4 and w^6; `release` a copy of w^2, then w^5 and w^7; `alg1` weighs
    the copy of w^2 as t/c = 1 model with w^3, that as 2 with w^5, that as 3 with w^7."""
    assert scripted("end", 7) == pytest.approx([1, 2, 3, 4, 4, 5, 5])
    assert scripted("release", 7) == pytest.approx([1, 2, 2, 2, 5, 5, 6])
    first = (1 * 2 + 3) / 2
    second = (2 * first + 5) / 3
    assert scripted("alg1", 7) == pytest.approx([1, 2, first, first, second, second, (3 * second + 7) / 4])


def test_mistakes_are_one_line():
    with pytest.raises(UserError, match="fedavg: swa: cycle is missing"):
        Problem(0).run("fedavg", {"swa": {"start": 1}})
    with pytest.raises(UserError, match="unknown key of SWA 'period'"):
        Problem(0).run("fedavg", {"swa": {"start": 1, "cycle": 2, "period": 3}})
    with pytest.raises(UserError, match="swa must be a mapping with start, cycle, lr_end, collect, not 3"):
        Problem(0).run("fedavg", {"swa": 3})


def test_a_wrapper_that_starts_after_the_end_does_nothing():
    problem = Problem(4)
    late = problem.run("fedgamma", {"rho": 0.1, "swa": {"start": problem.rounds, "cycle": 1}})
    assert distance(late, problem.run("fedgamma", {"rho": 0.1})) == 0
