"""Tuned runs next to untuned ones: only searched cells, of one budget, with the file of their values."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.comparison import adding
from fedflat.analysis.comparison.adding import add, collect
from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.overview import grids, overview
from fedflat.analysis.comparison.tuning.search_budgets import check_budgets
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.comparison.tiny_grid import LR, TINY, TUNED, contents, requested, variant
from tests.analysis.conftest import LITTLE, train_all
from tests.tables import with_sums, without_checksum


def test_untuned_and_tuned_values_stand_side_by_side(little: Path) -> None:
    add([requested(little)], "tiny")
    before = load("tiny")
    add([requested(little, variant(little, "little_tuned", ("lr: 0.1", "lr: 0.2")))], "tiny")
    after = load("tiny")
    assert set(zip(after.runs["variant"], after.runs["trials"], strict=True)) == {("untuned", 0), ("tuned", 7)}
    pd.testing.assert_frame_equal(after.of_variant("untuned").runs.reset_index(drop=True), before.runs)
    assert len(after.of_variant("tuned").runs) == 6
    lines = " ".join(" ".join(overview("tiny")).split())
    for words in (
        "24, 6 of which diverged",
        "little (18 runs), little_tuned (6 runs)",
        "tuned (7 trials)",
        "tuning 7 trials in each setting, rungs 0.5,",
    ):
        assert words in lines
    [line] = [line for line in grids() if line.startswith("tiny")]
    assert line.split()[:5] == ["tiny", "24", "2", "3", "3"]


BUDGETS = [
    ({"trials": 64}, "trials: 7 and 64"),
    ({"rungs": []}, "rungs: 0.5 and none"),
    ({"validation": 0.1}, "validation: 0.2 and 0.1"),
    ({"seed": 5}, "seed: 1000 and 5"),
    ({"score": "last"}, "judged: best and last"),
    ({"set": {"training.rounds": 3}}, "set: none and training.rounds 3"),
    ({"ranges": {"other": {"lr": {"low": 0.1, "high": 0.2}}}}, r"lr: 0.01 to 0.5 \(log\) and 0.1 to 0.2"),
    ({"ranges": {"other": {}}}, r"lr: 0.01 to 0.5 \(log\) and none"),
]


def test_methods_of_different_budgets_are_not_stored_together(little: Path) -> None:
    """The runs of `other` are trained once: the budget of their search does not change them."""
    lr = ("lr: 0.1", "lr: 0.2")
    add([requested(little, variant(little, "little_tuned", lr))], "tiny")
    before = contents()
    for budget, why in BUDGETS:
        other = requested(little, variant(little, "other", lr, "other", **budget))
        with pytest.raises(UserError, match=rf"budgets of tuning in the runs of fedavg and other \(.*{why};") as caught:
            add([other], "tiny")
        assert "\n" not in str(caught.value)
        assert contents() == before
    add([requested(little, variant(little, "same", lr, "same", set={"grid.seeds": [0, 1, 2]}))], "tiny")
    assert len(load("tiny").runs) == 12


def test_ranges_of_one_method_are_the_same_everywhere() -> None:
    rows = [
        {"method": "one", "trials": 7, "tuning": json.dumps({"ranges": {"rho": LR, **more}})}
        for more in ({}, {"lr": LR})
    ]
    with pytest.raises(UserError, match=r"in the runs of one \(range of lr: none and 0.01 to 0.5 \(log\);"):
        check_budgets(pd.DataFrame(rows), "here")
    check_budgets(pd.DataFrame(rows[:1]), "here")
    check_budgets(pd.DataFrame([{**rows[0], "method": "two", "tuning": ""}, *rows[:1]]), "here")


def test_runs_without_a_recorded_budget_hide_no_difference_of_others() -> None:
    """Runs of earlier versions record the number of trials only, and may be the first ones of a grid or of a method."""
    old = {"method": "old", "trials": 7, "tuning": ""}
    one, other = ({**old, "method": name, "tuning": json.dumps({"rungs": r})} for name, r in (("b", [0.5]), ("c", [])))
    for rows in ([old, one, other], [one, old, other], [one, other, old]):
        with pytest.raises(UserError, match=r"in the runs of b and c \(rungs: 0.5 and none;"):
            check_budgets(pd.DataFrame(rows), "here")
    ranges = [{**old, "tuning": json.dumps({"ranges": {"rho": LR, **more}})} for more in ({}, {"beta": LR})]
    with pytest.raises(UserError, match=r"in the runs of old \(range of beta: none and"):
        check_budgets(pd.DataFrame([old, *ranges]), "here")
    check_budgets(pd.DataFrame([old, one, {**other, "tuning": one["tuning"]}]), "here")


def kept(folder: Path, changed: tuple[str, str] = ("", ""), name: str = "kept") -> RequestedExperiment:
    """A file of tuned values that extends an experiment of the repository, with a change, and its runs."""
    text = f"""
name: {name}
extends: quick
model: cnn_gn
training: {{rounds: 1}}
grid: {{partition: [{{name: iid, clients: 20}}], participation: [{{active: 4}}], seeds: [0, 1]}}
methods: {{fedavg: {{name: fedavg, where: {{iid/4-of-20: {{training: {{lr: 0.2}}}}}}}}}}
tuned: {json.dumps({**TUNED, "ranges": {"fedavg": {"lr": LR}}})}
"""
    (folder / f"{name}.yaml").write_text(text.replace(*changed) if any(changed) else text, encoding="utf-8")
    train_all(folder / f"{name}.yaml", folder / "results")
    return requested(folder, f"{name}.yaml")


def test_a_file_of_tuned_values_is_kept_next_to_its_runs(little: Path) -> None:
    """If it extends an experiment of the repository, so that it can be read there."""
    add([kept(little)], "tiny", analyses=False)
    assert sorted(contents()) == with_sums("about.csv", "curves.csv", "kept.yaml", "runs.csv")
    add([requested(little, variant(little, "little_tuned", ("lr: 0.1", "lr: 0.2")))], "other", analyses=False)
    assert sorted(contents(TINY.with_name("other"))) == with_sums("about.csv", "curves.csv", "runs.csv")
    assert load_experiment(str(TINY / "kept.yaml")).cells() == load_experiment(str(little / "kept.yaml")).cells()


OWN = """
import torch
from fedflat.bench.methods.recipe import Components, Recipe

METHOD = Recipe("mine", "Mine", "nobody", Components())

def build(image_shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))
"""


@pytest.mark.parametrize(
    "change",
    [
        ("name: fedavg", "file: own.py"),
        ("model: cnn_gn", "model: own.py:build"),
        ("model: cnn_gn", "dataset: digits.npz"),
        ("extends: quick", "extends: base.yaml"),
    ],
    ids=["method", "model", "data", "extends"],
)
def test_a_file_of_tuned_values_that_needs_other_files_is_not_kept(little: Path, change: tuple[str, str]) -> None:
    """With --replace, the earlier file of the experiment is removed."""
    add([kept(little)], "tiny", analyses=False)
    (TINY / "another.yaml").write_text("name: another\n", encoding="utf-8")
    write_own_files(little)
    shutil.rmtree(little / "results" / "store")
    add([kept(little, change)], "tiny", analyses=False, replace=True)
    assert sorted(contents()) == with_sums("about.csv", "another.yaml", "curves.csv", "runs.csv")


def write_own_files(folder: Path) -> None:
    """A method and a model, images, and an experiment of a user."""
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    data = Digits().load()
    train, test = data.train, data.test
    arrays = {"x_train": train.images, "y_train": train.labels, "x_test": test.images, "y_test": test.labels}
    np.savez(folder / "digits.npz", **arrays)
    (folder / "base.yaml").write_text("name: base\nextends: quick\n", encoding="utf-8")


def test_a_file_of_tuned_values_without_runs_is_removed(little: Path) -> None:
    """Those of an experiment whose runs are all replaced by the same runs of another one."""
    add([kept(little)], "tiny", analyses=False)
    add([kept(little, name="again")], "tiny", analyses=False, replace=True)
    assert sorted(contents()) == with_sums("about.csv", "again.yaml", "curves.csv", "runs.csv")


def test_a_kill_leaves_no_tuned_runs_without_their_file(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kept(little)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(adding, "save", killed)
        add([one], "tiny", analyses=False)
    assert sorted(contents()) == with_sums("kept.yaml")
    add([one], "tiny", analyses=False)
    assert len(load("tiny").runs) == 2


def test_only_cells_that_were_searched_are_stored_as_tuned(little: Path) -> None:
    """Also those whose trials have all failed; but no other cells of a searched method, and no other methods."""
    where = json.dumps({"iid/4-of-20": {"training": {"lr": 0.1}}})
    text = LITTLE.replace("name: little", "name: partly").replace("rho: 0.05}", f"rho: 0.05}}, where: {where}")
    failed = {"untuned": {"fedsam": {"dirichlet-0.1/4-of-20": "all trials failed: diverged"}}}
    for section, partitions in (
        ({"ranges": {"fedsam": {"lr": LR}}}, {"iid"}),
        ({"ranges": {"fedsam": {"lr": LR}}, **failed}, {"iid", "dirichlet-0.1"}),
        ({"ranges": {"fedsam": {"lr": LR, "rho": LR}}}, set()),
        ({"ranges": {}}, set()),
        ({"ranges": {"fedsam": {"lr": LR}}, "searched": {"fedsam": ["dirichlet-0.1/4-of-20"]}}, {"dirichlet-0.1"}),
    ):
        (little / "partly.yaml").write_text(f"{text}tuned: {json.dumps({**TUNED, **section})}\n", encoding="utf-8")
        train_all(little / "partly.yaml", little / "results")
        if not partitions:
            with pytest.raises(UserError, match=r"partly has no cell that was tuned \(allowed: at least one") as caught:
                collect(requested(little, "partly.yaml"))
            assert "\n" not in str(caught.value)
            continue
        found = collect(requested(little, "partly.yaml"))
        assert set(zip(found.runs["method"], found.runs["variant"], strict=True)) == {("fedsam", "tuned")}
        assert set(found.runs["partition"]) == partitions
        assert (len(found.runs), set(found.curves["method"])) == (3 * len(partitions), {"fedsam"})


def test_baselines_of_earlier_versions_have_no_budget_and_are_read(little: Path) -> None:
    add([requested(little, variant(little, "little_tuned", ("lr: 0.1", "lr: 0.2")))], "tiny")
    file = TINY / "about.csv"
    without_checksum(file, pd.read_csv(file, dtype=str).drop(columns="tuning"))
    assert set(load("tiny").runs["tuning"]) == {""}
    assert "tuned (7 trials)" in " ".join(overview("tiny"))
    add([requested(little, variant(little, "other", ("lr: 0.1", "lr: 0.2"), "other"))], "tiny")
    assert set(load("tiny").runs.groupby("method")["tuning"].first().str.len() > 0) == {False, True}
    third = requested(little, variant(little, "third", ("lr: 0.1", "lr: 0.2"), "third", trials=8))
    with pytest.raises(UserError, match=r"fedavg and third .*trials: 7 and 8"):
        add([third], "tiny")
