"""The layouts of experiments that extend another one: inherited, left out, own ones, and mistakes in those."""

import shutil
from pathlib import Path

import pytest

from fedflat.analysis.planning.workflow import Workflow
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.layout import load_table
from fedflat.bench.input.errors import UserError
from tests.places import MINI

FIGURES = ["convergence", "cost", "differences", "drift", "labels", "perturbation", "perturbation_rise", "surfaces"]
EXTENDED = """
name: extended
extends: quick
methods: {fedavg: , fedsam: , other: {name: fedsam, hyperparameters: {rho: 0.2}}}
"""
OTHER_GRID = """
name: other
extends: fedlesam
dataset: digits
model: cnn_gn
parts: {}
grid: {partition: [{name: iid, clients: 20}], participation: [{active: 5}], seeds: [0]}
methods: {fedavg: , fedsam: }
"""
ONE_PARTITION = "  partition: [{name: dirichlet, alpha: 0.1, clients: 20}]\n"
TWO_PARTICIPATIONS = "  participation: [{active: 4}, {active: 10}]\n"
ONE_PARTICIPATION = "  participation: [{active: 4}]\n"


def extended(folder: Path, more: str = "") -> RequestedExperiment:
    file = folder / "experiments.yaml"
    file.write_text(EXTENDED + more, encoding="utf-8")
    return RequestedExperiment(str(file), folder / "results")


def test_layouts_that_name_no_methods_show_all_of_the_extending_experiment(tmp_path):
    requested = extended(tmp_path)
    assert Tables(requested).names() == ["accuracy", "flatness"]
    for name in Tables(requested).names():
        assert load_table(requested.name_or_file, name).methods == ("fedavg", "fedsam", "other")
    assert Figures(requested).names() == FIGURES
    assert Figures(requested).layout("drift").methods == ("fedavg", "fedsam", "other")
    assert Figures(requested).layout("labels").methods == ("fedavg",)
    shown = {path.parent.name for path in Tables(requested).inputs("accuracy") if path.name == "runs.csv"}
    assert shown == {"fedavg", "fedsam", "other"}


def test_quick_and_all_methods_show_what_they_have():
    for name, methods in (("quick", 12), ("quick_all", 26)):
        requested = RequestedExperiment(name, Path("results"))
        assert Tables(requested).names() == ["accuracy", "flatness"]
        assert Figures(requested).names() == FIGURES
        assert len(load_table(name, "accuracy").methods) == methods


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        ("grid:\n  seeds: [0]\n" + ONE_PARTITION + TWO_PARTICIPATIONS, 4),
        (
            "grid:\n  partition: [{name: iid, clients: 12}, {name: dirichlet, alpha: 0.3, clients: 11}]\n",
            4,
        ),  # no common participation: a block each
    ],
)
def test_layouts_of_quick_show_the_settings_of_any_grid(more, columns, tmp_path):
    """Partitions with different numbers of clients have no common participation: each setting is a block of rows."""
    requested = extended(tmp_path, more)
    assert (Tables(requested).names(), Figures(requested).names()) == (["accuracy", "flatness"], FIGURES)
    assert len(Tables(requested).layout("flatness").columns) == columns
    settings = set(requested.experiment.settings)
    assert set(Tables(requested).layout("accuracy").settings(requested.experiment)) == settings
    assert set(Figures(requested).layout("convergence").settings(requested.experiment)) == settings


def test_what_needs_states_that_are_not_stored_is_left_out(tmp_path):
    requested = extended(tmp_path, "evaluation: {snapshot_every: null}\n")
    assert Figures(requested).names() == [name for name in FIGURES if name != "drift"]
    assert [column.metric for column in Tables(requested).layout("flatness").columns[:3]] == [
        "lpf", "lambda_max", "lambda_ratio_1_5",
    ]  # fmt: skip
    assert len(Tables(requested).layout("flatness").columns) == 6, "without Δ_F, which is optional"
    with pytest.raises(UserError, match="the experiment stores none"):
        Figures(requested).render("drift")
    flow = Workflow.of({"experiments": [requested.name_or_file]})
    [line] = flow.left_out()
    assert line.startswith("extended: figure drift is left out, because it does not fit (")


def test_an_experiment_whose_grid_no_inherited_layout_shows_has_the_layouts_of_quick(tmp_path):
    """FedLESAM's table 3 fits every grid, because it shows published numbers only."""
    file = tmp_path / "other.yaml"
    file.write_text(OTHER_GRID, encoding="utf-8")
    tables, figures = (kind(RequestedExperiment(str(file), tmp_path)) for kind in (Tables, Figures))
    assert tables.names() == ["accuracy", "flatness"]
    assert figures.names() == [name for name in FIGURES if name != "drift"]
    assert [line.partition("(")[0] for line in (*tables.left_out(), *figures.left_out())] == [
        "other: no inherited table shows its grid, so it has those of quick ",
        "other: no inherited figure shows its grid, so it has those of quick ",
        "other: figure drift is left out, because it does not fit ",
    ]
    assert {cell.setting.partition for cell in tables.layout("accuracy").cells(tables.requested.experiment)} == {"iid"}
    with pytest.raises(UserError, match=r"unknown figure of experiment .* 'surface'; did you mean 'surfaces'"):
        figures.layout("surface")
    with pytest.raises(UserError, match=r"1a\.yaml': experiment other has none of its methods"):
        figures.layout("1a")


def test_figures_of_one_setting_are_drawn_for_each_part(tmp_path):
    parts = "parts: {few: {}, many: {grid: {partition: [{name: iid, clients: 40}]}}}\n"
    figures = Figures(extended(tmp_path, parts))
    single = [f"{name}_{part}" for name in ("cost", "drift", "surfaces") for part in ("few", "many")]
    assert sorted(figures.names()) == sorted({*FIGURES, *single} - {"cost", "drift", "surfaces"})
    experiment = figures.requested.experiment
    for name in single:
        layout, part = figures.layout(name), name.partition("_")[2]
        assert {setting.dataset for setting in layout.settings(experiment)} == {part}
        assert layout.title.endswith(f": {part}")
        assert [file for file in figures.inputs(name) if f"extended/{part}/" in str(file)]
    with pytest.raises(UserError, match=r"unknown figure of experiment .* 'cost'; did you mean 'cost_"):
        figures.layout("cost")


def test_own_layouts_must_fit(tmp_path):
    requested = extended(tmp_path)
    (tmp_path / "tables").mkdir()
    layout = "title: t\ncaption: c\ncolumns: [{header: h, metric: test_accuracy, select: {partition: iid}}]\n"
    (tmp_path / "tables" / "mine.yaml").write_text(layout, encoding="utf-8")
    assert Tables(requested).names() == ["mine"], "own ones replace quick's, and a mistake in them is reported"
    assert Figures(requested).names() == FIGURES
    with pytest.raises(UserError, match=r"mine.yaml': unknown partition of experiment extended 'iid'"):
        Tables(requested).inputs("mine")


def test_all_mistakes_of_own_layouts_are_reported_before_anything_is_planned(tmp_path):
    own = shutil.copytree(Path(MINI).parent, tmp_path / "own")
    for name, old, new in (
        ("tables/accuracy", "fedavg, fedsam", "fedavg, fedsma"),
        ("figures/drift", "partition: dirichlet-0.1", "partition: dirichlet-0.6"),
        ("figures/convergence", "kind: convergence\n", ""),
        ("figures/surfaces", "caption: Digits.\n", "caption: Digits.\nseed: 7\n"),
        ("figures/perturbation", "caption: Digits.\n", "caption: Digits.\ndirection: gradient\n"),
    ):
        file = own / f"{name}.yaml"
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError) as error:
        Workflow.of({"experiments": [str(own / "experiments.yaml")]})
    first, *lines = str(error.value).splitlines()
    assert first == "layouts of experiment mini: 5 problems"
    for place, mistake in (
        ("accuracy", "unknown method of experiment mini 'fedsma'; did you mean 'fedsam'?"),
        ("convergence", "has no kind (allowed: "),
        ("drift", "unknown partition of experiment mini 'dirichlet-0.6'; did you mean 'dirichlet-0.1'?"),
        ("perturbation", "direction: gradient needs directions: [gradient] of the analysis perturbation"),
        ("surfaces", "seed = 7 (allowed: 0, 1)"),
    ):
        assert any(f"{place}.yaml'" in line and mistake in line for line in lines), mistake
