"""What the Snakefile asks: options, identities, and which cells a report shows."""

from pathlib import Path

import pytest

from analysis.workflow import Workflow
from bench.errors import UserError

MINI = str(Path(__file__).parents[1] / "end_to_end" / "mini" / "experiments.yaml")
FEDSAM = "digits/dirichlet-0.1/4-of-20/fedsam"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"round": 5}, "unknown --config key 'round'; did you mean 'rounds'?"),
        ({"results": ""}, "--config results=: the name of a folder"),
        ({"replace": "maybe"}, "--config replace=maybe: true or false"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"experiments": [3]}, "a list such as"),
        ({"experiments": [MINI, MINI]}, "two of them are named mini"),
        ({"rounds": "many"}, "training.rounds = 'many'"),
        ({"seeds": 3}, "grid.seeds = 3"),
    ],
)
def test_a_wrong_configuration_is_one_line(config, message):
    with pytest.raises(UserError) as error:
        Workflow.of({"experiments": MINI, **config})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_changes_reach_every_command():
    flow = Workflow.of({"experiments": MINI, "rounds": 5, "seeds": [0], "results": "my results"})
    assert flow.options == "--results 'my results' --set=training.rounds=5 '--set=grid.seeds=[0]'"
    [run] = flow.cells["mini", FEDSAM].runs
    assert run.training.rounds == 5


def test_a_report_depends_on_the_identities_of_the_cells_that_it_reads():
    one, other = (Workflow.of({"experiments": MINI, "rounds": rounds}) for rounds in (4, 5))
    files = [Path("results", "analysis", "mini", FEDSAM, "drift.csv"), Path("layout.yaml")]
    assert one.shown("mini", files) == one.cells["mini", FEDSAM].identity
    assert other.shown("mini", files) == other.cells["mini", FEDSAM].identity != one.shown("mini", files)
    assert one.shown("mini", [Path("layout.yaml")]) == ""
