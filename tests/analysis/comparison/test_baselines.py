"""Stored baselines: the files of a grid hold what the tables of runs hold, or there is a clear refusal."""

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.comparison import baselines
from fedflat.analysis.comparison.adding import add, collect
from fedflat.analysis.comparison.baselines import Baselines, folder_of, load, save, stored_grids
from fedflat.analysis.layouts.run_columns import ANALYSED, RATED
from fedflat.bench.experiments import installed
from fedflat.bench.experiments.installed import begin_as_copy
from fedflat.bench.files.csv_json import write_csv
from fedflat.bench.input.errors import UserError
from tests.analysis.comparison.tiny_grid import TINY, contents, requested, variant
from tests.analysis.conftest import LITTLE, analyse, run_of, train_all
from tests.commands import fedflat, refused
from tests.full_disk import full_disk
from tests.places import ROOT
from tests.tables import with_sums, without_checksum

METHODS = ("fedavg", "fedsam", "wild")


def test_what_is_read_again_is_what_was_stored(little: Path) -> None:
    assert add([requested(little)], "tiny") == TINY
    assert sorted(contents()) == with_sums("about.csv", "curves.csv", "runs.csv")
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


def test_infinite_numbers_are_stored(little: Path) -> None:
    """A loss can become infinite before a run is stopped as diverged."""
    one = collect(requested(little))
    curves = one.curves.assign(test_loss=math.inf)
    save(TINY, Baselines(one.runs.assign(train_loss=-math.inf, seconds=math.inf), curves))
    stored = load("tiny")
    assert set(stored.runs["train_loss"]) == {-math.inf}
    assert set(stored.runs["seconds"]) == {math.inf}
    assert set(stored.curves["test_loss"]) == {math.inf}


def test_stored_runs_are_replaced_only_on_request(little: Path) -> None:
    add([requested(little)], "tiny")
    before = contents()
    with pytest.raises(UserError, match=r"18 runs are there already, such as fedavg \(untuned\) in .*--replace"):
        add([requested(little)], "tiny")
    assert contents() == before
    text = LITTLE.replace("rho: 0.05", "rho: 0.07").replace("  wild:", "  # wild:")
    (little / "little.yaml").write_text(text, encoding="utf-8")
    shutil.rmtree(little / "results/store")
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
    shutil.rmtree(run_of(little / "results", "little", "digits/dirichlet-0.1/4-of-20/fedsam", 1))
    shutil.rmtree(run_of(little / "results", "little", "digits/iid/4-of-20/wild").parent)
    with pytest.raises(UserError, match=r"4 of 18 runs of experiment little are missing") as caught:
        add([requested(little)], "tiny", replace=True)
    assert "snakemake --cores 2 little_runs --config" in str(caught.value)
    assert contents() == before


def test_missing_analyses_are_counted_with_the_command_that_computes_them(little: Path) -> None:
    """An analysis is complete if all cells have it; it is required if analyses.yaml names it or a cell has it."""
    (little / "analyses.yaml").write_text("flatness: {images: 20, draws: 2}\n", encoding="utf-8")
    cells = [f"digits/{partition}/4-of-20/{method}" for partition in ("dirichlet-0.1", "iid") for method in METHODS]
    files = {cell: little / "results/experiments/little" / cell / "flatness.csv" for cell in cells}
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
    with pytest.raises(UserError, match=r"6 of 18 runs of experiment little are missing"):
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


def test_what_is_installed_is_read_until_something_is_added(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy in results/ has the installed runs, trials and tuned values, and what is added."""
    add([requested(little)], "tiny")
    place = TINY.rename(little / "tiny")
    (place / "trials.csv").write_bytes(b"trials")
    monkeypatch.setattr(installed, "INSTALLED", little)
    before = contents(place)
    assert folder_of("tiny") == place
    assert stored_grids() == ["tiny"]
    with pytest.raises(UserError, match="18 runs are there already"):
        add([requested(little)], "tiny")
    assert not TINY.exists(), "nothing is copied if nothing is added"
    TINY.mkdir(parents=True)
    assert folder_of("tiny") == place, "an empty folder hides nothing"
    (TINY / "curves.csv").touch()
    assert folder_of("tiny") == place
    assert len(load("tiny").runs) == 18
    with pytest.raises(UserError, match=r"tiny' has curves.csv, but no runs.csv: move them away"):
        begin_as_copy(TINY)
    assert contents() == {"curves.csv": b""}
    (TINY / "curves.csv").unlink()
    other = requested(little, variant(little, "little_tuned", ("lr: 0.1", "lr: 0.2")))
    assert add([other], "tiny") == TINY == folder_of("tiny")
    assert len(load("tiny").of_variant("untuned").runs) == 18
    assert len(load("tiny").of_variant("tuned").runs) > 0
    assert contents()["trials.csv"] == b"trials"
    assert contents(place) == before
    assert sorted(path.name for path in TINY.parent.iterdir()) == ["tiny"]


def test_a_copy_of_installed_runs_that_does_not_fit_the_disk_is_removed(
    little: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "INSTALLED", ROOT / "results" / "baselines")
    own = Path("results/baselines/quick")
    with pytest.raises(OSError, match="File too large"), full_disk():
        begin_as_copy(own)
    assert list(own.parent.iterdir()) == []
    begin_as_copy(own)
    assert contents(own) == contents(ROOT / own)


def test_baselines_that_are_not_there(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "INSTALLED", Path("nowhere"))
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
    differs = r"runs.csv' is damaged \(its content does not match its checksum\): restore 'odd'"
    for name, write, damage, message in [
        ("runs.csv", write_csv, lambda rows: rows.iloc[:-3], differs),
        ("runs.csv", write_csv, lambda rows: rows.assign(seed=1, test_loss=0), differs),
        ("runs.csv", without_checksum, lambda rows: rows.drop(columns="outcome"), "it lacks the column outcome"),
        ("runs.csv", without_checksum, lambda rows: pd.concat([rows, rows]), "two rows have the same dataset"),
        ("runs.csv", without_checksum, lambda rows: rows.assign(gradients="much"), "gradients = 'much' is not a num"),
        ("about.csv", without_checksum, lambda rows: rows.iloc[1:], r"about.csv' lacks 3 of 18 runs of runs.csv"),
        ("curves.csv", without_checksum, lambda rows: rows.iloc[1:], r"curves.csv' lacks 1 of 18 runs of runs.csv"),
        ("about.csv", without_checksum, lambda rows: rows.assign(protocol=rows.index), "cannot be compared in digits"),
    ]:
        shutil.rmtree("odd", ignore_errors=True)
        shutil.copytree(TINY, "odd")
        write(Path("odd", name), damage(pd.read_csv(TINY / name, dtype=str)))
        with pytest.raises(UserError, match=message):
            load("odd", Path("odd"))


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
    assert {"quick", "tiny"} < {line.split()[0] for line in shown.stdout.splitlines()}, "installed ones, and its own"
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
