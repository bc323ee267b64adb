"""The transcripts state enough to judge by: the settings of each published cell, unless the paper is silent."""

import pytest

from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.published.numbers import papers
from fedflat.analysis.published.transcript import COUNTS, statements_of
from fedflat.analysis.tables.layout import load_table
from fedflat.bench.experiments.experiment import load_experiment

STATED = {
    "dataset.name",
    "model.name",
    "training.rounds",
    "training.lr",
    "training.batch_size",
    "training.local_epochs",
    "partition.name",
    "participation",
}

NOT_STATED = {
    **{
        ("fedsam_qu", part): {"training.rounds"}
        for part in ("emnist", "cifar10", "cifar100", "cifar10_cifar_stem", "cifar100_cifar_stem")
    },
    ("fedsam_caldarola", "centralized"): STATED - {"dataset.name", "partition.name"},
    ("fedsam_caldarola", "landmarks"): {"training.rounds"},
    ("fedsam_caldarola", "landmarks_centralized"): STATED - {"dataset.name", "model.name", "partition.name"},
}
"""By paper and part, what the paper does not state; messages are counted on data of our own."""


@pytest.mark.parametrize("paper", papers())
def test_each_published_cell_has_its_settings_stated(paper: str) -> None:
    experiment = load_experiment(paper)
    layouts = [load_table(paper, name) for name in layout_names(paper, "tables")]
    cells = {cell for layout in layouts if layout.published for cell in layout.cells(experiment)}
    assert cells
    silent: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        keys = {one.key for one in statements_of(paper, cell)}
        missing = STATED - keys - {key.partition(".")[0] for key in keys}
        if missing and cell.setting.dataset != COUNTS:
            silent.setdefault((paper, cell.setting.dataset), set()).update(missing)
    assert silent == {place: keys for place, keys in NOT_STATED.items() if place[0] == paper}
