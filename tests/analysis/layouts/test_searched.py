"""Which cells were searched: those of a real search's file, also with values that the tuned experiment had before."""

from pathlib import Path

import pytest
import yaml

from fedflat.analysis.layouts.searched import is_searched
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.tuning.cell_search import CellSearch
from fedflat.bench.tuning.tune import tune_cell
from fedflat.bench.tuning.winners import write_winners

MINE = """
name: mine
extends: quick
training: {rounds: 1, local_epochs: 1}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}, {name: iid, clients: 20}]
  participation: [{active: 4}]
  seeds: [0]
tuning: {trials: 1, rungs: []}
"""
BEFORE = "where: {iid: {training: {lr: 0.05}}, iid/4-of-20: {training: {clip: 5}, hyperparameters: {rho: 0.1}}}"
METHODS = f"""
methods:
  fedavg:
  fedsam: {{{BEFORE}}}
  wild: {{name: fedavg, training: {{lr: 1.0e+38, weight_decay: 1.0e+4}}}}
  fedavg+swa: {{hyperparameters: {{swa: {{cycle: 1}}}}}}
"""
PARTS = """
parts:
  one: {dataset: digits}
  two: {dataset: digits, methods: {fedsam: {search: {lr_decay: {low: 0.9, high: 1}, rho: null}}}}
"""


def winners_of(text: str, cells: list[str], folder: Path) -> list[str]:
    """The cells that were searched, as the file of a search in these cells shows."""
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    experiment = load_experiment(str(file))
    searches = [CellSearch.of(experiment, cell, folder / cell) for cell in cells or experiment.paths()]
    for search in searches:
        tune_cell(search, prepare_device("cpu", 1), silent)
    write_winners(experiment, str(file), {}, searches, folder / "tuned.yaml")
    tuned = load_experiment(str(folder / "tuned.yaml"))
    assert not any(is_searched(experiment, cell) for cell in experiment.addresses)
    content = yaml.safe_load((folder / "tuned.yaml").read_text(encoding="utf-8"))
    assert content["tuned"].pop("searched").keys() == {search.cell.address.method for search in searches}
    (folder / "earlier.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    earlier = load_experiment(str(folder / "earlier.yaml"))
    assert all(is_searched(earlier, cell) for cell in tuned.addresses if is_searched(tuned, cell))
    return [cell.path for cell in tuned.addresses if is_searched(tuned, cell)]


@pytest.mark.parametrize("method", ["fedavg", "fedsam", "wild", "fedavg+swa"])
def test_a_search_in_one_cell(method: str, tmp_path: Path) -> None:
    """Trial 0 wins, or fails (`wild`)."""
    cell = f"digits/dirichlet-0.1/4-of-20/{method}"
    assert winners_of(MINE + METHODS, [cell], tmp_path) == [cell]


def test_a_search_in_all_cells(tmp_path: Path) -> None:
    assert len(winners_of(MINE + METHODS, [], tmp_path)) == 8


def test_parts_with_ranges_of_their_own(tmp_path: Path) -> None:
    text = MINE + PARTS + "methods: {fedsam: {}}\n"
    assert len(winners_of(text, [], tmp_path)) == 4
    cells = [f"{part}/iid/4-of-20/fedsam" for part in ("one", "two")]
    assert winners_of(text, cells, tmp_path) == cells
