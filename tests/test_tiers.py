"""`make test` leaves methods out, and no component class."""

from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.methods.servers.momentum import Momentum
from tests.tiers import COVERING, METHODS, covering, in_turn


def test_the_methods_of_make_test_have_every_component_class():
    every, kept = (
        {component for name in names for component in CATALOG[name].components.by_slot().values()}
        for names in (CATALOG, COVERING)
    )
    assert kept == every
    assert len(COVERING) < len(CATALOG) == len(METHODS)


def test_a_new_component_class_joins_by_itself():
    class OwnMomentum(Momentum):
        name = "own_momentum"

    own = Recipe("own", "Own", "a test", Components(server=OwnMomentum))
    assert "own" in covering({**CATALOG, "own": own})
    assert "twin" not in covering({**CATALOG, "twin": CATALOG["fedsmoo"]})


def test_methods_take_turns_in_the_ways():
    pairs = in_turn(("loop", 1), ("cohort", 2), ("graph", 3))
    assert len(pairs) == len({pair.values for pair in pairs}) == 3 * len(CATALOG)
    quick = [pair.values for pair in pairs if not pair.marks]
    assert sorted(method for method, *_ in quick) == sorted(COVERING)
    assert {tuple(way) for _, *way in quick} == {("loop", 1), ("cohort", 2), ("graph", 3)}
