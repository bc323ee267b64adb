"""From run directories to tidy files, where that must refuse or leave something out."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from analysis.cells import analyse_cell
from analysis.report import Report
from analysis.settings import Line, load_settings
from bench.errors import UserError
from bench.experiments import load_experiment
from bench.parts import Bench
from bench.run import train_cell

MINI = str(Path(__file__).parents[1] / "end_to_end" / "mini" / "experiments.yaml")
CPU = torch.device("cpu")
CELL = "digits/dirichlet-0.1/4-of-20/"
DIVERGES = {"methods.fedsam.training": {"lr": 1e30}}
ANALYSES = ("flatness", "drift", "surface", "perturbation")


def run_all(results: Path, changes: dict) -> None:
    experiment = load_experiment(MINI, changes)
    for path, cell in experiment.cells().items():
        runs = results / "runs" / "mini" / path
        train_cell("mini", cell, runs, CPU, str)
        for name in ANALYSES:
            out = results / "analysis" / "mini" / path / f"{name}.csv"
            analyse_cell(name, load_settings(MINI), "mini", cell, runs, out, CPU)


def test_a_method_that_diverges_is_an_outcome_everywhere(tmp_path: Path) -> None:
    run_all(tmp_path, DIVERGES)
    assert pd.read_csv(tmp_path / "analysis" / "mini" / CELL / "fedsam" / "flatness.csv").empty
    report = Report(MINI, tmp_path, DIVERGES)
    for name in report.table_names():
        assert "diverged (2 of 2)" in report.render_table(name)[0].read_text()
    for name in report.figure_names():
        assert all(file.stat().st_size for file in report.render_figure(name))
    page = report.render_page().read_text()
    assert "2 of them diverged" in page
    assert page.count("iverged: FedSAM") == 3, "the captions of drift, surfaces and perturbation name it"


def test_numbers_of_another_configuration_are_refused(tmp_path: Path) -> None:
    run_all(tmp_path, {})
    changes = {"training.rounds": 6}
    cell = load_experiment(MINI, changes).cell(CELL + "fedsam")
    runs = tmp_path / "runs" / "mini" / CELL / "fedsam"
    with pytest.raises(UserError, match="is a run of another configuration than"):
        analyse_cell("drift", load_settings(MINI), "mini", cell, runs, tmp_path / "x.csv", CPU)
    assert not (tmp_path / "x.csv").exists()
    report = Report(MINI, tmp_path, changes)
    for render, name in ((report.render_table, "accuracy"), (report.render_figure, "drift")):
        with pytest.raises(
            UserError, match=r"another configuration .* \(training.rounds: 4 there, 6 here\): give the --set"
        ):
            render(name)


def test_without_kept_states_that_is_what_is_said(tmp_path: Path) -> None:
    changes = {"evaluation.snapshot_every": None}
    message = "evaluation.snapshot_every is null: the experiment keeps no states; set it"
    cell = load_experiment(MINI, changes).cell(CELL + "fedsam")
    runs = tmp_path / "runs" / "mini" / CELL / "fedsam"
    train_cell("mini", cell, runs, CPU, str)
    for name in ANALYSES:
        out = tmp_path / "analysis" / "mini" / CELL / "fedsam" / f"{name}.csv"
        if name in ("flatness", "drift"):
            with pytest.raises(UserError, match=message):
                analyse_cell(name, load_settings(MINI), "mini", cell, runs, out, CPU)
            assert not out.exists()
        else:
            analyse_cell(name, load_settings(MINI), "mini", cell, runs, out, CPU)
    report = Report(MINI, tmp_path, changes)
    for make in (report.figure_inputs, report.render_figure):
        with pytest.raises(UserError, match=message):
            make("drift")
    for make in (report.table_inputs, report.render_table):
        with pytest.raises(UserError, match=message):
            make("flatness")
    assert report.render_table("accuracy")
    assert report.render_figure("surfaces")


def test_a_finished_run_needs_its_partition_file_no_more(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    table = pd.DataFrame({"client": [k % 7 for k in range(400)], "index": [(37 * k) % 901 for k in range(400)]})
    table.to_csv(file, index=False)
    partition = [{"name": "from_file", "file": str(file)}]
    experiment = load_experiment(MINI, {"grid.partition": partition, "grid.seeds": [0]})
    cell = experiment.cell("digits/file-mine/4-of-7/fedsam")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)

    def analysed(folder: str) -> list[bytes]:
        files = [tmp_path / folder / f"{name}.csv" for name in ANALYSES]
        for name, out in zip(ANALYSES, files, strict=True):
            analyse_cell(name, load_settings(MINI), "mini", cell, tmp_path / "runs", out, CPU)
        return [out.read_bytes() for out in files]

    before = analysed("before")
    file.unlink()
    assert analysed("after") == before
    assert all(len(content.splitlines()) > 1 for content in before)


@pytest.mark.parametrize("radii", [[0, -0.5], [], [True]])
def test_radii_are_lengths(radii: list[float]) -> None:
    with pytest.raises(UserError, match="radii"):
        Line.parse({"radii": radii, "draws": 1})


def test_the_surface_is_that_of_the_first_seed_unless_one_is_named(tmp_path: Path) -> None:
    changes = {"grid.seeds": [1]}
    run_all(tmp_path, changes)
    surface = pd.read_csv(tmp_path / "analysis" / "mini" / CELL / "fedsam" / "surface.csv")
    assert set(surface["seed"]) == {1}
    report = Report(MINI, tmp_path, changes)
    assert "Seed 1" in report.render_page().read_text()
    assert all(file.stat().st_size for name in ("surfaces", "labels") for file in report.render_figure(name))
    named = load_settings(MINI).model_copy(
        update={"surface": load_settings(MINI).surface.model_copy(update={"seed": 7})}
    )
    cell = load_experiment(MINI, changes).cell(CELL + "fedsam")
    with pytest.raises(UserError, match=r"surface.seed = 7, but the seeds of .* are 1"):
        runs = tmp_path / "runs" / "mini" / CELL / "fedsam"
        analyse_cell("surface", named, "mini", cell, runs, tmp_path / "x.csv", CPU)


def test_no_analysis_normalises_more_than_a_batch_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a data set larger than memory is only ever read; numbers are those of larger batches."""
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedsam")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)

    def analysed(name: str) -> pd.DataFrame:
        analyse_cell(name, load_settings(MINI), "mini", cell, tmp_path / "runs", tmp_path / "x.csv", CPU)
        return pd.read_csv(tmp_path / "x.csv")

    whole = {name: analysed(name) for name in ANALYSES}
    passed: list[int] = []
    build = Bench.set_up

    def watched(*arguments: object) -> Bench:
        bench = build(*arguments)
        bench.objective.module.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
        return bench

    monkeypatch.setattr("analysis.cells.Bench.set_up", watched)
    monkeypatch.setattr("analysis.cells.BATCH", 100)
    for name in ANALYSES:
        passed.clear()
        pd.testing.assert_frame_equal(analysed(name), whole[name], rtol=1e-3, atol=1e-5)
        assert max(passed) <= 100 < sum(passed), name
