"""Stored baselines: the files of a grid hold what the tables of runs hold, or there is a clear refusal."""

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.comparison import adding, baselines
from analysis.comparison.adding import add, collect
from analysis.comparison.baselines import Baselines, load, save, stored_grids
from analysis.comparison.overview import grids, overview
from analysis.comparison.run_table import ANALYSED, RATED, protocol
from analysis.comparison.tuning.search_budgets import check_budgets
from analysis.report.requested import RequestedExperiment
from bench.data.sources.digits import Digits
from bench.experiments.experiment import load_experiment
from bench.experiments.run_config import RunConfig
from bench.input.errors import UserError
from tests.analysis.conftest import LITTLE, analyse, train_all
from tests.commands import fedflat, refused
from tests.places import ROOT

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
METHODS = ("fedavg", "fedsam", "wild")
TINY = Path("results/baselines/tiny")
LR = {"low": 0.01, "high": 0.5, "log": True}
FOUND = {f"{partition}/4-of-20": {"training": {"lr": 0.2}} for partition in ("dirichlet-0.1", "iid")}
TUNED = {"experiment": "little", "trials": 7, "seed": 1000, "validation": 0.2, "score": "best", "rungs": [0.5]}


def requested(folder: Path, name: str = "little.yaml") -> RequestedExperiment:
    return RequestedExperiment(str(folder / name), folder / "results")


def quick_run(cell: str = CELL, **changes: object) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return load_experiment("quick", keys).cell(cell).runs[0]


def contents(folder: Path = TINY) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def variant(folder: Path, name: str, change: tuple[str, str], method: str = "fedavg", **budget: object) -> str:
    """A file with other, tuned values of FedAvg in little.yaml, under this label, and its runs."""
    text = LITTLE.replace("name: little", f"name: {name}").replace(*change).partition("  fedsam:")[0]
    text = text.replace("fedavg: {}", f"{method}: {json.dumps({'name': 'fedavg', 'where': FOUND})}")
    tuned = {**TUNED, "ranges": {method: {"lr": LR}}, **budget}
    (folder / f"{name}.yaml").write_text(f"{text}tuned: {json.dumps(tuned)}\n", encoding="utf-8")
    train_all(folder / f"{name}.yaml", folder / "results")
    return f"{name}.yaml"


def test_what_is_read_again_is_what_was_stored(little: Path) -> None:
    assert add([requested(little)], "tiny") == TINY
    assert sorted(contents()) == ["about.csv", "curves.csv", "runs.csv"]
    before, after = collect(requested(little)), load("tiny")
    exact = [column for column in before.runs if column not in ("seconds", "communicated_mb")]
    pd.testing.assert_frame_equal(after.runs[exact], before.runs[exact], check_exact=True)
    pd.testing.assert_frame_equal(after.runs, before.runs, check_exact=False, rtol=1e-5)
    pd.testing.assert_frame_equal(after.curves, before.curves, check_exact=False, rtol=1e-5)
    assert len(after.runs) == 18
    assert set(after.runs.loc[after.runs["method"] == "wild", "outcome"]) == {"diverged"}


def test_measured_columns_say_what_is_better(little: Path) -> None:
    metrics = collect(requested(little)).metrics
    assert {name for name, better in metrics.items() if better == "higher"} == {"test_accuracy", "train_accuracy"}
    assert {*RATED, *ANALYSED, "rounds_to_80", "communicated_mb", "gradients", "seconds"} < {*metrics}
    assert "last_round" not in metrics


def test_long_curves_are_thinned_with_both_ends(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_EVALUATIONS", 3)
    one = collect(requested(little))
    runs = one.runs[one.runs["method"] == "fedavg"].head(2)
    ids = runs[baselines.CURVE_IDS]
    curves = pd.concat(
        [ids.assign(round=r, test_accuracy=r, test_loss=1.0, communicated_mb=r, gradients=r) for r in range(1, 10)]
    )
    save(TINY, Baselines(runs, curves))
    assert load("tiny").curves["round"].tolist() == [1, 5, 9] * 2


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
    [_, line] = grids()
    assert line.split()[:5] == ["tiny", "24", "2", "3", "3"]


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({"trials": 64}, "trials: 7 and 64"),
        ({"rungs": []}, "rungs: 0.5 and none"),
        ({"validation": 0.1}, "validation: 0.2 and 0.1"),
        ({"seed": 5}, "seed: 1000 and 5"),
        ({"score": "last"}, "judged: best and last"),
        ({"set": {"training.rounds": 3}}, "set: none and training.rounds 3"),
        ({"ranges": {"other": {"lr": {"low": 0.1, "high": 0.2}}}}, r"lr: 0.01 to 0.5 \(log\) and 0.1 to 0.2"),
        ({"ranges": {"other": {}}}, r"lr: 0.01 to 0.5 \(log\) and none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_methods_of_different_budgets_are_not_stored_together(little: Path, budget: dict, why: str) -> None:
    lr = ("lr: 0.1", "lr: 0.2")
    add([requested(little, variant(little, "little_tuned", lr))], "tiny")
    before, other = contents(), requested(little, variant(little, "other", lr, "other", **budget))
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
    assert sorted(contents()) == ["about.csv", "curves.csv", "kept.yaml", "runs.csv"]
    add([requested(little, variant(little, "little_tuned", ("lr: 0.1", "lr: 0.2")))], "other", analyses=False)
    assert sorted(contents(TINY.with_name("other"))) == ["about.csv", "curves.csv", "runs.csv"]
    assert load_experiment(str(TINY / "kept.yaml")).cells() == load_experiment(str(little / "kept.yaml")).cells()


OWN = """
import torch
from bench.methods.recipe import Components, Recipe

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
    shutil.rmtree(little / "results" / "runs")
    add([kept(little, change)], "tiny", analyses=False, replace=True)
    assert sorted(contents()) == ["about.csv", "another.yaml", "curves.csv", "runs.csv"]


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
    assert sorted(contents()) == ["about.csv", "again.yaml", "curves.csv", "runs.csv"]


def test_a_kill_leaves_no_tuned_runs_without_their_file(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kept(little)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(adding, "save", killed)
        add([one], "tiny", analyses=False)
    assert sorted(contents()) == ["kept.yaml"]
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
    pd.read_csv(file, dtype=str).drop(columns=["checksum", "tuning"]).to_csv(file, index=False)
    assert set(load("tiny").runs["tuning"]) == {""}
    assert "tuned (7 trials)" in " ".join(overview("tiny"))
    add([requested(little, variant(little, "other", ("lr: 0.1", "lr: 0.2"), "other"))], "tiny")
    assert set(load("tiny").runs.groupby("method")["tuning"].first().str.len() > 0) == {False, True}
    third = requested(little, variant(little, "third", ("lr: 0.1", "lr: 0.2"), "third", trials=8))
    with pytest.raises(UserError, match=r"fedavg and third .*trials: 7 and 8"):
        add([third], "tiny")


def test_stored_runs_are_replaced_only_on_request(little: Path) -> None:
    add([requested(little)], "tiny")
    before = contents()
    with pytest.raises(UserError, match=r"18 runs are there already, such as fedavg \(untuned\) in .*--replace"):
        add([requested(little)], "tiny")
    assert contents() == before
    text = LITTLE.replace("rho: 0.05", "rho: 0.07").replace("  wild:", "  # wild:")
    (little / "little.yaml").write_text(text, encoding="utf-8")
    shutil.rmtree(little / "results/runs")
    train_all(little / "little.yaml", little / "results")
    add([requested(little)], "tiny", replace=True)
    runs = load("tiny").runs
    assert set(runs["method"]) == {"fedavg", "fedsam"}
    assert set(runs.loc[runs["method"] == "fedsam", "hyperparameters"]) == {'{"rho":0.07}'}
    assert not any(b"wild" in content for content in contents().values())


def test_a_kill_leaves_the_old_baselines_or_the_new_ones(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add([requested(little)], "tiny")
    old = load("tiny")
    new = Baselines(*(frame.assign(variant="tuned") for frame in (old.runs.assign(trials=7), old.curves)))
    written = baselines.write_checked_csv
    seen = []
    for survived in range(5):
        save(TINY, old)
        left = [survived]

        def killed(file: Path, table: pd.DataFrame, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            written(file, table)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(baselines, "write_checked_csv", killed)
            save(TINY, new)
        found = load("tiny").runs
        assert len(found) == 18
        seen.append(found["variant"].iloc[0])
        pd.testing.assert_frame_equal(found, load("tiny").runs)
    assert seen == ["untuned"] * 3 + ["tuned"] * 2
    save(TINY, new)
    assert not any(b"untuned" in content for content in contents().values())


@contextmanager
def full_disk() -> Iterator[None]:
    """A limit on the size of files stands in for a full disk: both are an error of a write in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_baselines_or_none(little: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write 'results/baselines/tiny/about.csv'"), full_disk():
        add([requested(little)], "tiny")
    assert not TINY.exists()
    add([requested(little)], "tiny")
    before, other = contents(), requested(little, variant(little, "little_tuned", ("lr: 0.1", "lr: 0.2")))
    with pytest.raises(UserError, match="cannot write"), full_disk():
        add([other], "tiny")
    assert contents() == before


def test_hashes_that_look_like_numbers_stay_text(little: Path) -> None:
    one = collect(requested(little))
    runs = one.runs.assign(data_hash="12e4567890123456", partition_hash="1234567890123456")
    save(TINY, Baselines(runs, one.curves))
    again = load("tiny").runs
    assert set(again["partition_hash"]) == {"1234567890123456"}
    assert set(again["data_hash"]) == {"12e4567890123456"}


def test_missing_runs_are_counted_with_the_command_that_produces_them(little: Path) -> None:
    add([requested(little)], "tiny")
    before = contents()
    shutil.rmtree(little / "results" / "runs" / "little" / CELL / "seed-1")
    shutil.rmtree(little / "results" / "runs" / "little" / "digits" / "iid" / "4-of-20" / "wild")
    with pytest.raises(UserError, match=r"4 of 18 runs of experiment little are missing") as caught:
        add([requested(little)], "tiny", replace=True)
    assert "snakemake --cores 2 little_runs --config" in str(caught.value)
    assert contents() == before


def test_missing_analyses_are_counted_with_the_command_that_computes_them(little: Path) -> None:
    """An analysis is complete if all cells have it; it is required if analyses.yaml names it or a cell has it."""
    (little / "analyses.yaml").write_text("flatness: {images: 20, draws: 2}\n", encoding="utf-8")
    cells = [f"digits/{partition}/4-of-20/{method}" for partition in ("dirichlet-0.1", "iid") for method in METHODS]
    files = {cell: little / "results/analysis/little" / cell / "flatness.csv" for cell in cells}
    with pytest.raises(UserError, match=r"flatness of experiment little is missing in 6 of 6 cells .*_analysis_flatn"):
        collect(requested(little))
    for cell in cells:
        analyse(little, "little", cell, "flatness", {"images": 20, "draws": 2})
    runs = collect(requested(little)).runs
    assert runs.loc[runs["outcome"] == "finished", "lpf"].notna().all()
    assert json.loads(runs["analyses"][0])["flatness"]["draws"] == 2
    save(TINY, collect(requested(little)))
    assert load("tiny").runs["lpf"].tolist() == pytest.approx(runs["lpf"].tolist(), rel=1e-5, nan_ok=True)
    (little / "analyses.yaml").write_text("hessian: {images: 20}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"hessian of experiment little is missing in 6 of 6 cells"):
        collect(requested(little))
    (little / "analyses.yaml").unlink()
    files[cells[1]].unlink()
    with pytest.raises(UserError, match=r"flatness of experiment little is missing in 1 of 6 cells"):
        collect(requested(little))
    without = collect(requested(little), analyses=False).runs
    assert without[list(ANALYSED)].isna().all(axis=None)
    assert set(without["analyses"]) == {"{}"}


def test_runs_of_another_configuration_are_not_stored(little: Path) -> None:
    (little / "little.yaml").write_text(LITTLE.replace("rho: 0.05", "rho: 0.06"), encoding="utf-8")
    with pytest.raises(UserError, match=r"another configuration \(method.hyperparameters.rho: 0.05 there, 0.06 here\)"):
        collect(requested(little))


def test_methods_that_do_not_share_the_protocol_are_not_stored_together(little: Path) -> None:
    text = LITTLE.replace(
        "wild: {name: fedavg, training: {lr: 1.0e+38, weight_decay: 1.0e+4}}",
        "wild: {name: fedavg, training: {local_steps: 2}}",
    )
    assert text != LITTLE
    (little / "little.yaml").write_text(text, encoding="utf-8")
    shutil.rmtree(little / "results")
    train_all(little / "little.yaml", little / "results")
    why = r"\(local_epochs: 1 in fedavg, none in wild\)"
    with pytest.raises(UserError, match=f"fedavg and wild cannot be compared .* {why}"):
        collect(requested(little))


def test_runs_of_another_protocol_replace_nothing(little: Path) -> None:
    add([requested(little)], "tiny")
    before, file = contents(), little / "longer.yaml"
    text = LITTLE.replace("name: little", "name: longer").replace("rounds: 1", "rounds: 2")
    file.write_text(text.replace("  wild:", "  # wild:"), encoding="utf-8")
    train_all(file, little / "results")
    for replace, where in ((False, "little, 2 in longer"), (True, "wild, 2 in fedavg")):
        with pytest.raises(UserError, match=rf"cannot be compared .* \(rounds: 1 in {where}\)"):
            add([requested(little, "longer.yaml")], "tiny", replace=replace)
    assert contents() == before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("rounds: 1", "rounds: 2"), r"cannot be compared in .*seed-0 \(rounds: 1 in little, 2 in other\)"),
        (
            ("methods:", "report: best\nmethods:"),
            r"reported value: last in little, best, evaluated every 1 rounds in",
        ),
        (("seeds: [0, 1, 2]", "seeds: [0, 1]"), r"has 2 seeds in .*, and fedavg \(untuned\) has 3"),
        (("seeds: [0, 1, 2]", "seeds: [0]"), r"fedavg \(tuned\) has 1 seed in .* \(allowed: at least 2 seeds\)"),
    ],
    ids=["protocol", "report", "other seeds", "too few seeds"],
)
def test_runs_that_do_not_fit_the_stored_ones_are_refused(little: Path, change: tuple[str, str], why: str) -> None:
    add([requested(little)], "tiny")
    before, other = contents(), requested(little, variant(little, "other", change))
    with pytest.raises(UserError, match=why):
        add([other], "tiny")
    assert contents() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"training__lr": 0.2},
        {"training__lr_decay": 0.5},
        {"training__server_lr": 0.5},
        {"training__aggregation": "uniform"},
        {"training__clip": 3},
        {"training__weight_decay": 0.5},
        {"training__prox_split": True},
        {"evaluation__every": 7},
        {"methods__fedsam": {"hyperparameters": {"rho": 0.3}}},
        {"grid__seeds": [8]},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_methods_own_tuning_is_no_part_of_the_protocol(changes: dict[str, object]) -> None:
    assert quick_run(**changes).identity != quick_run().identity
    assert protocol(quick_run(**changes)) == protocol(quick_run())


@pytest.mark.parametrize(
    "changes",
    [
        {"training__rounds": 31},
        {"training__local_epochs": 1},
        {"training__local_steps": 10},
        {"training__batch_size": 8},
        {"training__drop_last": True},
        {"training__augmentation": {"name": "cutout", "size": 2}},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_must_be_shared_is_part_of_the_protocol(changes: dict[str, object]) -> None:
    assert protocol(quick_run(**changes)) != protocol(quick_run())


def test_new_keys_leave_the_protocol_of_the_stored_baselines_as_it_was() -> None:
    about = pd.read_csv(ROOT / "results" / "baselines" / "quick" / "about.csv")
    assert protocol(quick_run()) in set(about["protocol"])


def test_the_engine_is_no_part_of_the_protocol() -> None:
    """Its settings change rounding only, and new ones would make stored baselines incomparable."""
    assert protocol(quick_run(engine__backend="loop", engine__checkpoint_seconds=0)) == protocol(quick_run())


def test_settings_are_part_of_the_protocol_and_methods_are_not() -> None:
    assert protocol(quick_run(CELL.replace("0.1", "0.6"))) != protocol(quick_run())
    assert protocol(quick_run(CELL.replace("4-of", "10-of"))) != protocol(quick_run())
    assert protocol(quick_run(CELL.replace("fedsam", "fedgf"))) == protocol(quick_run())


def test_the_place_of_images_is_no_part_of_the_protocol() -> None:
    one, other = ({"dataset": {"name": "image_folder", "root": f"/{place}/photos"}} for place in ("a", "b"))
    cell = "photos/dirichlet-0.1/4-of-20/fedsam"
    assert protocol(quick_run(cell, **one)) == protocol(quick_run(cell, **other))
    assert protocol(quick_run(cell, **one)) != protocol(quick_run())


def test_baselines_that_are_not_there(little: Path) -> None:
    with pytest.raises(UserError, match=r"store them with: fedflat baselines add EXPERIMENT --grid quick$"):
        load("quick")
    with pytest.raises(UserError, match=r"fedflat baselines add EXPERIMENT --grid quick --baselines mine$"):
        load("quick", Path("mine"))
    add([requested(little)], "tiny")
    assert stored_grids() == ["tiny"]
    with pytest.raises(UserError, match=r"unknown grid of stored baselines 'tny'; did you mean 'tiny'\? .*: tiny\)"):
        load("tny")
    with pytest.raises(UserError, match="lower-case letters"):
        add([requested(little)], "../tiny")
    Path("results/baselines/old.csv").write_text("dataset,metric\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"old.csv' has the form of an earlier version"):
        load("old")


def test_damaged_baselines_are_reported(little: Path) -> None:
    add([requested(little)], "tiny")
    for name, damage, message in [
        ("runs.csv", lambda rows: rows.iloc[:-3], r"runs.csv' is damaged \(it has \d+ of \d+ rows\): restore 'odd'"),
        ("runs.csv", lambda rows: rows.assign(seed=1, test_loss=0), r"runs.csv' is damaged \(its content does not"),
        ("runs.csv", without_checksum(lambda rows: rows.drop(columns="outcome")), "it lacks the column outcome"),
        ("runs.csv", without_checksum(lambda rows: pd.concat([rows, rows])), "two rows have the same dataset"),
        ("runs.csv", without_checksum(lambda rows: rows.assign(gradients="much")), "gradients = 'much' is not a num"),
        ("about.csv", without_checksum(lambda rows: rows.iloc[1:]), r"about.csv' lacks 3 of 18 runs of runs.csv"),
        ("curves.csv", without_checksum(lambda rows: rows.iloc[1:]), r"curves.csv' lacks 1 of 18 runs of runs.csv"),
        ("about.csv", without_checksum(lambda rows: rows.assign(protocol=rows.index)), "cannot be compared in digits"),
    ]:
        shutil.rmtree("odd", ignore_errors=True)
        shutil.copytree(TINY, "odd")
        damage(pd.read_csv(TINY / name, dtype=str)).to_csv(Path("odd", name), index=False)
        with pytest.raises(UserError, match=message):
            load("odd", Path("odd"))


def without_checksum(change):
    return lambda rows: change(rows.drop(columns="checksum"))


def test_other_line_ends_are_named(tmp_path: Path) -> None:
    """As git writes them with core.autocrlf, which .gitattributes prevents."""
    folder = Path(shutil.copytree(ROOT / "results" / "baselines" / "quick", tmp_path / "quick"))
    file = folder / "curves.csv"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(UserError, match=r"curves.csv' is damaged \(its lines end with CR LF instead of LF"):
        load("quick", folder)


def test_the_commands_store_and_show(little: Path) -> None:
    stored = fedflat("baselines", "add", "little.yaml", "--grid", "tiny")
    assert (stored.returncode, stored.stdout) == (0, "results/baselines/tiny\n")
    shown = fedflat("baselines", "show")
    assert shown.stdout.splitlines()[1].startswith("tiny")
    assert "methods      fedavg, fedsam, wild" in fedflat("baselines", "show", "tiny").stdout
    assert "are there already" in refused("baselines", "add", "little.yaml", "--grid", "tiny")
    assert "unknown grid" in refused("baselines", "show", "tin")
    assert "missing" in refused("baselines", "add", "little.yaml", "--grid", "tiny", "--set", "grid.seeds=[0, 5]")
    assert "--baselines needs" in refused("baselines", "show", "--baselines", "tiny")


def test_runs_of_another_grid_are_not_added(little: Path) -> None:
    add([requested(little)], "tiny")
    before = contents()
    text = (
        LITTLE.replace("little", "other").replace("alpha: 0.1", "alpha: 0.2").replace(", {name: iid, clients: 20}", "")
    )
    (little / "other.yaml").write_text(text, encoding="utf-8")
    train_all(little / "other.yaml", little / "results")
    line = refused("baselines", "add", "other.yaml", "--grid", "tiny", "--without-analyses", cwd=little)
    assert (
        "experiment other has none of the settings of 'results/baselines/tiny' (it has digits/dirichlet-0.2/4" in line
    )
    assert "allowed: runs with one of digits/dirichlet-0.1/4-of-20, digits/iid/4-of-20, or the name of anot" in line
    assert contents() == before
