"""From run directories to tidy files, where that must refuse or leave something out."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import load_analyses, parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.found_runs import find_runs, found_runs
from fedflat.analysis.analyses.run_analysis import run_analysis, store_analysis
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.report import render_page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.engine.checkpoint import load_state, save_state
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.strict_yaml import load_yaml
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.train import train_cell
from tests.analysis.conftest import analysed, read_rows
from tests.commands import fedflat
from tests.places import MINI, ROOT
from tests.problems import stored
from tests.tables import without_checksum

CPU = torch.device("cpu")
CELL = "digits/dirichlet-0.1/4-of-20/"
DIVERGES = {"methods.fedsam.training": {"lr": 1e30}}
CONFIGURED = load_analyses(MINI)
ANALYSES = tuple(
    name for name, analysis in CONFIGURED.items() if name != "plane" and analysis.of_label_maps is not True
)
"""All that need neither runs of other methods nor labels of pixels."""
OF_STATES = ("client_hessian", "client_rounds", "drift", "local_plane")
"""Those which need stored states."""
OF_RECORDS = ("convergence", "cost")
"""Those which pass no image through a model."""


def run_all(results: Path, changes: dict, analyses: Sequence[str] = ANALYSES) -> None:
    experiment = load_experiment(MINI, changes)
    for path, cell in experiment.cells().items():
        train_cell("mini", cell, results, CPU, str)
        for name in analyses:
            analysed(ResultPaths(results), "mini", path, name, CONFIGURED[name])


def test_a_method_that_diverges_is_an_outcome_everywhere(tmp_path: Path) -> None:
    run_all(tmp_path, DIVERGES)
    assert read_rows(ResultPaths(tmp_path).analysis("mini", CELL + "fedsam", "flatness")).empty
    requested = RequestedExperiment(MINI, tmp_path, DIVERGES)
    for name in Tables(requested).names():
        assert "diverged (2 of 2)" in Tables(requested).render(name)[0].read_text(encoding="utf-8")
    for name in Figures(requested).names():
        assert all(file.stat().st_size for file in Figures(requested).render(name))
    page = render_page(requested).read_text(encoding="utf-8")
    assert "2 of them diverged" in page
    assert page.count("Diverged: FedSAM") == 3, "a note of drift, perturbation and surfaces"


def test_numbers_of_another_configuration_are_refused(tmp_path: Path) -> None:
    run_all(tmp_path, {}, ("drift",))
    changes = {"training.rounds": 6}
    requested = RequestedExperiment(MINI, tmp_path, changes)
    for render, name in ((Tables(requested).render, "accuracy"), (Figures(requested).render, "drift")):
        with pytest.raises(
            UserError, match=r"another configuration .* \(training.rounds: 4 there, 6 here\): give the --set"
        ):
            render(name)


def test_missing_states_are_reported(tmp_path: Path) -> None:
    changes = {"evaluation.snapshot_every": None}
    message = "evaluation.snapshot_every is null: the experiment stores none; set it to a number of rounds"
    cell = load_experiment(MINI, changes).cell(CELL + "fedsam")
    train_cell("mini", cell, tmp_path, CPU, str)
    for name in ANALYSES:
        if name == "discrepancy" or name in OF_STATES:
            with pytest.raises(UserError, match=message):
                analysed(ResultPaths(tmp_path), "mini", cell.path, name, CONFIGURED[name])
            assert not list(tmp_path.rglob(f"{name}*.csv"))
        else:
            analysed(ResultPaths(tmp_path), "mini", cell.path, name, CONFIGURED[name])
    requested = RequestedExperiment(MINI, tmp_path, changes)
    for make in (Figures(requested).inputs, Figures(requested).render):
        with pytest.raises(UserError, match=message):
            make("drift")
    for make in (Tables(requested).inputs, Tables(requested).render):
        with pytest.raises(UserError, match=message):
            make("flatness")
    assert Tables(requested).render("accuracy")
    assert Figures(requested).render("surfaces")


def test_a_finished_run_needs_its_partition_file_no_more(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    table = pd.DataFrame({"client": [k % 7 for k in range(400)], "index": [(37 * k) % 901 for k in range(400)]})
    table.to_csv(file, index=False)
    partition = [{"name": "from_file", "file": str(file)}]
    experiment = load_experiment(MINI, {"grid.partition": partition, "grid.seeds": [0]})
    cell = experiment.cell("digits/file-mine/4-of-7/fedsam")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)

    def computed(folder: str) -> list[bytes]:
        files = [tmp_path / folder / f"{name}.csv" for name in ANALYSES]
        for name, out in zip(ANALYSES, files, strict=True):
            run_analysis(CONFIGURED[name], tmp_path / "runs", out, CPU, str)
        return [out.read_bytes() for out in files]

    before = computed("before")
    file.unlink()
    assert computed("after") == before
    assert all(len(content.splitlines()) > 1 for content in before)


def test_the_global_objective_is_the_clients(tmp_path: Path) -> None:
    """F = Σ m_i/m F_i where a split leaves images out and gives others twice."""
    file = tmp_path / "mine.csv"
    pd.DataFrame({"client": [0, 0, 0, 1, 1], "index": [5, 9, 300, 9, 5]}).to_csv(file, index=False)
    partition = [{"name": "from_file", "file": str(file), "repeats": True}]
    changes = {"grid.partition": partition, "grid.participation": [{"active": 2}], "grid.seeds": [0]}
    cell = load_experiment(MINI, changes).cell("digits/file-mine/2-of-2/fedavg")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)
    run = AnalysedRun(RunDirectory(stored(tmp_path / "runs")), CPU)
    held, objective, w = run.global_objective(), run.setup.objective, run.w
    of_clients = [objective.loss(w, run.client_batches(i)) for i in (0, 1)]
    assert objective.loss(w, held.data) == pytest.approx(0.6 * of_clients[0] + 0.4 * of_clients[1], rel=1e-6)
    assert held.loss == "mean cross-entropy of all 5 training images that clients hold (some more than once)"
    assert run.global_objective(4).data.samples == 4
    whole = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedavg")
    train_cell("mini", whole, tmp_path / "whole", CPU, str)
    run = AnalysedRun(RunDirectory(stored(tmp_path / "whole")), CPU)
    assert run.global_objective() == run.sample("train"), "each image once: all of them, as they are"


@pytest.mark.parametrize("radii", [[0, -0.5], [], [True]])
def test_radii_are_lengths(radii: list[float]) -> None:
    with pytest.raises(UserError, match="radii"):
        parse_analysis("perturbation", {"radii": radii, "draws": 1})


def test_the_surface_is_that_of_the_first_seed_unless_one_is_named(tmp_path: Path) -> None:
    changes = {"grid.seeds": [1]}
    run_all(tmp_path, changes)
    surface = read_rows(ResultPaths(tmp_path).analysis("mini", CELL + "fedsam", "surface"))
    assert set(surface["seed"]) == {1}
    requested = RequestedExperiment(MINI, tmp_path, changes)
    assert "Runs of seed 1; " in render_page(requested).read_text(encoding="utf-8")
    assert all(file.stat().st_size for name in ("surfaces", "labels") for file in Figures(requested).render(name))
    runs = ResultPaths(tmp_path).lists("mini", CELL + "fedsam")
    with pytest.raises(UserError, match=r"surface.seed = 7 \(allowed: 1"):
        run_analysis(parse_analysis("surface", {"seed": 7}), runs, tmp_path / "x.csv", CPU, str)


def test_no_analysis_normalises_more_than_a_batch_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a data set larger than memory is only ever read; numbers are those of larger batches."""
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedsam")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)

    def computed(name: str) -> pd.DataFrame:
        run_analysis(CONFIGURED[name], tmp_path / "runs", tmp_path / "x.csv", CPU, str)
        return pd.read_csv(tmp_path / "x.csv")

    of_images = [name for name in ANALYSES if name not in OF_RECORDS]
    whole = {name: computed(name) for name in of_images}
    passed: list[int] = []
    build = RunSetup.build

    def watched(*arguments: object) -> RunSetup:
        setup = build(*arguments)
        setup.objective.module.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
        return setup

    monkeypatch.setattr("fedflat.analysis.analyses.analysed_run.RunSetup.build", watched)
    monkeypatch.setattr("fedflat.bench.training.run_setup.EVALUATION_BATCH", {"cpu": 40})
    for name in of_images:
        passed.clear()
        pd.testing.assert_frame_equal(computed(name), whole[name], rtol=1e-3, atol=1e-5)
        assert max(passed) <= 40 < sum(passed), name


def test_runs_are_found_by_folder_and_named_by_their_list_or_configuration(tmp_path: Path) -> None:
    cell = load_experiment(MINI, {"grid.seeds": [0, 1]}).cell(CELL + "fedsam")
    renamed = replace(cell, address=replace(cell.address, method="mine"))
    folder = train_cell("mini", renamed, tmp_path, CPU, str)
    lists = ResultPaths(tmp_path).lists("mini")
    assert [runs.names for runs in found_runs(lists)] == [renamed.address.columns]
    for place in (folder, folder / "seed-1", tmp_path / "store"):
        assert [runs.names for runs in found_runs(place)] == [cell.address.columns]
    assert list(find_runs(lists).by_seed) == list(find_runs(folder).by_seed) == [0, 1]
    assert list(find_runs(folder / "seed-1").by_seed) == [1]
    train_cell(None, load_experiment(MINI, {"grid.seeds": [7]}).cell(CELL + "fedavg"), tmp_path, CPU, str)
    assert [list(runs.by_seed) for runs in found_runs(tmp_path / "store")] == [[7], [0, 1]]
    with pytest.raises(UserError, match="has runs of 2 configurations"):
        find_runs(tmp_path / "store")
    for none in (tmp_path / "gone", tmp_path / "partitions"):
        with pytest.raises(UserError, match="no finished run in"):
            find_runs(none)
    (folder / "seed-1").rename(tmp_path / "alone")
    assert list(find_runs(tmp_path / "alone").by_seed) == [1]
    with pytest.raises(UserError, match="seed-1' is missing, but a list has it"):
        find_runs(lists)


def test_what_is_computed_already_is_taken(tmp_path: Path) -> None:
    """By whichever experiment or folder it is requested; with `replace`, not from other code."""
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedsam")
    folder, said = train_cell("mini", cell, tmp_path, CPU, str), list[str]()

    def ask(place: Path, *, replace: bool = False) -> dict[int, Path]:
        return store_analysis(CONFIGURED["drift"], find_runs(place), CPU, said.append, replace=replace)

    [file] = ask(ResultPaths(tmp_path).lists("mini")).values()
    before = file.stat().st_mtime_ns
    assert ask(folder) == {0: file}
    assert (file.stat().st_mtime_ns, said) == (before, ["seed 0: computed", "seed 0: computed earlier"])
    rows = pd.read_csv(file)
    without_checksum(file, rows.assign(code="0123456789abcdef"))
    ask(folder)
    assert said[-1] == "seed 0: computed earlier by another version of the code; --replace computes it again"
    ask(folder, replace=True)
    pd.testing.assert_frame_equal(pd.read_csv(file), rows)
    file.write_text("damaged", encoding="utf-8")
    ask(folder)
    pd.testing.assert_frame_equal(pd.read_csv(file), rows)
    [other] = store_analysis(CONFIGURED["drift"].model_copy(update={"images": 7}), find_runs(folder), CPU, str).values()
    assert other.parent == file.parent and other != file
    assert [one.name for one in file.parent.iterdir() if one.name.startswith(".")] == []


def test_other_runs_are_analysed_though_one_is_damaged(tmp_path: Path) -> None:
    """A run that is cut is left out; where only reading its model finds the damage, the error is raised at the end."""
    cell = load_experiment(MINI, {"grid.seeds": [0, 1, 2], "training.rounds": 1}).cell(CELL + "fedsam")
    folder = train_cell("mini", cell, tmp_path, CPU, str)
    for seed, change in ((0, lambda content: content[:-9] + b"a" * 9), (1, lambda content: content[:-9])):
        file = folder / f"seed-{seed}" / "final.safetensors"
        file.write_bytes(change(file.read_bytes()))
    [runs] = found_runs(folder)
    assert [*runs.by_seed] == [0, 2]
    with pytest.raises(UserError, match=r"seed-0/final.safetensors' is damaged"):
        store_analysis(CONFIGURED["hessian"], runs, CPU, str)
    assert [file.parts[-3] for file in folder.rglob("hessian-*.csv")] == ["seed-2"]
    done = fedflat("analyse", "hessian", "--where", "method=fedsam", "--results", tmp_path, "--device", "cpu")
    assert "2 of 2 runs fit, 1 damaged" in done.stdout
    assert "seed 2: " in done.stdout
    assert done.stderr.count(str(folder / "seed-0")) == 1, done.stderr


def test_a_model_that_is_not_finite_has_no_rows(tmp_path: Path) -> None:
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedsam")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)
    file = stored(tmp_path / "runs") / "final.safetensors"
    state, about = load_state(file, CPU)
    state.w[3] = float("nan")
    save_state(file, state, about)
    said: list[str] = []
    run_analysis(CONFIGURED["hessian"], tmp_path / "runs", tmp_path / "x.csv", CPU, said.append)
    assert pd.read_csv(tmp_path / "x.csv").empty
    assert [line for line in said if "has parameters that are not finite: no rows" in line]


def test_a_stored_state_that_is_not_finite_is_one_line(tmp_path: Path) -> None:
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedsam")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)
    file = stored(tmp_path / "runs") / "snapshots" / "round-00004.safetensors"
    state, about = load_state(file, CPU)
    state.w[3] = float("nan")
    save_state(file, state, about)
    for name in ("discrepancy", *OF_STATES):
        with pytest.raises(UserError, match=r"the global model after round 4 of .* parameters that are not finite"):
            run_analysis(CONFIGURED[name], tmp_path / "runs", tmp_path / "x.csv", CPU, str)
        assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    "analysis", [*CONFIGURED.values(), parse_analysis("perturbation", {"radii": [0, 2.5], "data": "test"})]
)
def test_options_travel_as_text(analysis: Analysis) -> None:
    """All of them, so that a default that the code changes is another command."""
    options = analysis.options()
    assert list(options) == list(type(analysis).model_fields)
    assert parse_analysis(analysis.name, {name: load_yaml(value) for name, value in options.items()}) == analysis


def own_analyses(folder: Path, text: str, **files: str) -> str:
    """A copy of mini with these analyses, and layouts by name; the experiment's file."""
    shutil.copytree(Path(MINI).parent, folder)
    (folder / "analyses.yaml").write_text(text, encoding="utf-8")
    for name, content in files.items():
        (folder / "tables" / f"{name}.yaml").write_text(content, encoding="utf-8")
    return str(folder / "experiments.yaml")


SHARP = """
title: Sharpness at two radii
caption: Digits.
columns:
  - {header: "0.1", metric: sharpness, decimals: 4}
  - {header: "0.5", metric: sharpness, analysis: wide, decimals: 4}
"""


def test_an_experiment_asks_the_same_question_twice(tmp_path: Path) -> None:
    text = "flatness: {images: 60, draws: 5}\nwide: {analysis: flatness, images: 60, draws: 5, rho: 0.5}\n"
    source = own_analyses(tmp_path / "mine", text, sharp=SHARP)
    requested = RequestedExperiment(source, tmp_path)
    assert (requested.analyses["flatness"].rho, requested.analyses["wide"].rho) == (0.1, 0.5)
    for path, cell in load_experiment(source).cells().items():
        train_cell("mini", cell, tmp_path, CPU, str)
        for name in ("flatness", "wide"):
            assert requested.paths.analysis("mini", path, name) in Tables(requested).inputs("sharp")
            analysed(requested.paths, "mini", path, name, requested.analyses[name])
    shown = pd.read_csv(next(file for file in Tables(requested).render("sharp") if file.suffix == ".csv"))
    narrow, wide = (shown.loc[shown["column"] == radius, "mean"].to_numpy() for radius in (0.1, 0.5))
    assert (wide > narrow).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "wide: {rho: 0.5}",
            r"unknown analysis in '.*': wide \(an entry with another name needs the key 'analysis'\) 'wide'",
        ),
        ("wide: {analysis: flatnes}", "unknown analysis 'flatnes'; did you mean 'flatness'"),
        ("wide: {analysis: flatness, rhos: 1}", "wide: unknown key of flatness 'rhos'; did you mean 'rho'"),
        ("Wide-1: {analysis: flatness}", "Wide-1: a name has lower-case letters"),
        ("train: {analysis: flatness}", r"\(not allowed: metrics, partition, runs, train"),
        ("wide: {analysis: hessian}", "unknown analysis of kind flatness 'wide' \\(allowed: flatness\\)"),
    ],
)
def test_analyses_that_are_not_known_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    source = own_analyses(tmp_path / "mine", text, sharp=SHARP)
    with pytest.raises(UserError, match=message):
        Tables(RequestedExperiment(source, tmp_path)).inputs("sharp")


def test_the_example_of_the_docs_is_an_analysis(tmp_path: Path) -> None:
    """Of docs/analyses.md: what it says works as it stands."""
    text = (ROOT / "docs" / "analyses.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(compile(code, "weight_norm.py", "exec", dont_inherit=True), names)
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedavg")
    train_cell("mini", cell, tmp_path / "runs", CPU, str)
    run = AnalysedRun(RunDirectory(stored(tmp_path / "runs")), CPU)
    table = names["WeightNorm"].parse({"order": 1}).of_run(run)  # type: ignore[attr-defined]
    assert table["value"][0] == pytest.approx(float(run.w.abs().sum()))
    assert 0 < table["value"][1] < table["value"][0]


def test_an_extension_keeps_the_options_that_it_does_not_change(tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    file.write_text("name: own\nextends: quick\n", encoding="utf-8")
    (tmp_path / "analyses.yaml").write_text(
        "hessian: {images: 7}\nwide: {analysis: flatness, rho: 0.5}\n", encoding="utf-8"
    )
    loaded, quick = load_analyses(str(file)), load_analyses("quick")
    assert loaded["hessian"].images == 7  # type: ignore[attr-defined]
    assert loaded["flatness"] == quick["flatness"] != parse_analysis("flatness", {})
    assert loaded["wide"] == parse_analysis("flatness", {"rho": 0.5})


def test_references_are_in_order_of_preference(tmp_path: Path) -> None:
    """The first one that the experiment has counts; the error for none names the first of the list."""
    file = tmp_path / "experiments.yaml"
    file.write_text("name: own\nextends: quick\n", encoding="utf-8")
    (tmp_path / "analyses.yaml").write_text(
        "surface: {reference: [fedavgm, fedsam, fedavg]}\ninterpolation: {towards: [other, dirichlet-0.6]}\n"
        "convergence: {reference: [fedavgm, mimelite]}\n",
        encoding="utf-8",
    )
    requested = RequestedExperiment(str(file), tmp_path)
    labels = {name: requested.analyses[name].compared_labels() for name in ("surface", "interpolation", "convergence")}
    assert labels == {"surface": ("fedsam",), "interpolation": ("dirichlet-0.6",), "convergence": ("fedavgm",)}
    assert requested.compared(CELL + "fedavg", "surface") == [CELL + "fedsam"]
    with pytest.raises(UserError, match=r"unknown method or partition to compare .* with 'fedavgm'"):
        requested.compared(CELL + "fedavg", "convergence")


def test_an_analysis_of_a_run_that_is_replaced_meanwhile_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be taken for one of the new run, which has the same place."""
    cell = load_experiment(MINI, {"grid.seeds": [0]}).cell(CELL + "fedsam")
    run = train_cell("mini", cell, tmp_path, CPU, str) / "seed-0"
    of_run = type(CONFIGURED["cost"]).of_run

    def replaced(analysis: Analysis, of: AnalysedRun) -> pd.DataFrame:
        about = read_checked_json(run / "provenance.json", "")
        write_checked_json(run / "provenance.json", {**about, "ended": "later"})
        return of_run(analysis, of)

    monkeypatch.setattr(type(CONFIGURED["cost"]), "of_run", replaced)
    with pytest.raises(UserError, match="was trained again meanwhile: repeat the command"):
        store_analysis(CONFIGURED["cost"], find_runs(run), CPU, str)
    assert not list((run / "analyses").glob("*.csv"))
