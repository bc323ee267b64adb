"""Export and import: in another folder, the same tables and figures are rendered from the archive, without training."""

import json
import shlex
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from fedflat.analysis.planning.targets import experiments_with, find_targets
from fedflat.analysis.provenance.archive import unpack
from fedflat.analysis.provenance.export import export
from fedflat.analysis.provenance.verify import find, verify_run
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests import commands
from tests.analysis.conftest import analysed
from tests.places import MINI

CPU = torch.device("cpu")
OVERRIDES = {"training.rounds": 2, "evaluation.every": 1}


def trained(experiment: str, results: Path, analyses: tuple[str, ...] = ()) -> Path:
    """The runs of all cells of an experiment, and analyses of them."""
    requested, paths = RequestedExperiment(experiment, results, OVERRIDES), ResultPaths(results)
    name = requested.experiment.name
    for path, cell in requested.experiment.cells().items():
        train_cell(name, cell, results, CPU, silent)
        for analysis in analyses:
            analysed(paths, name, path, analysis, requested.analyses[analysis])
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(MINI, tmp_path_factory.mktemp("export") / "results", ("drift",))


def exported(target: str, results: Path, archive: Path, **options) -> Path:
    export([target], archive, results, OVERRIDES, [MINI], **options)
    return archive


def rendered(target: str, results: Path) -> dict[str, bytes]:
    """The bytes of all files of a target, rendered now, by their paths below the folder of results."""
    found = find_targets([target], experiments_with(results, OVERRIDES, [MINI]))
    for one in found:
        one.render()
    return {str(file.relative_to(results)): file.read_bytes() for one in found for file in one.outputs()}


def commands_in(folder: Path) -> list[str]:
    """The commands that the README of an archive lists."""
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("fedflat ")]


@pytest.mark.parametrize("target", ["mini_table_accuracy", "mini_figure_drift", "mini_figure_labels"])
def test_the_same_files_are_rendered_from_an_archive(target, results, tmp_path):
    """By the commands of the archive's README, in another folder."""
    archive = exported(target, results, tmp_path / "a.zip")
    out = tmp_path / "fresh"
    assert commands.fedflat("import", archive, "--out", out).returncode == 0
    expected = rendered(target, results)
    assert expected
    for name, content in expected.items():
        assert (out / "results" / name).read_bytes() == content
    shutil.rmtree(out / "results/reports")
    [line] = commands_in(out)
    done = commands.run(shlex.split(line), cwd=out)
    assert done.returncode == 0, done.stderr
    for name, content in expected.items():
        assert (out / "results" / name).read_bytes() == content


def test_equal_results_give_equal_archives(results, tmp_path):
    copy = Path(shutil.copytree(results, tmp_path / "copy", copy_function=shutil.copyfile))
    one, other = (exported("mini_runs", folder, tmp_path / f"{folder.name}.zip") for folder in (results, copy))
    assert one.read_bytes() == other.read_bytes()


def test_the_files_of_an_archive(results, tmp_path):
    with zipfile.ZipFile(exported("mini_table_accuracy", results, tmp_path / "a.zip")) as zipped:
        names = zipped.namelist()
        crate = json.loads(zipped.read("ro-crate-metadata.json"))
    cell = RequestedExperiment(MINI, results, OVERRIDES).experiment.cell("digits/dirichlet-0.1/4-of-20/fedsam")
    run = f"results/store/{cell.runs[1].place.as_posix()}"
    below = [name.removeprefix(f"{run}/") for name in names if name.startswith(run)]
    assert below == ["config.json", "metrics.csv", "partition.csv.gz", "provenance.json", "run.log", "times.csv"]
    assert "results/reports/mini/tables/accuracy.tex" in names
    assert "experiment/tests/end_to_end/mini/tables/accuracy.yaml" in names
    assert not [name for name in names if "analyses" in name.split("/")], "the table shows no analysis"
    graph = {entity["@id"]: entity for entity in crate["@graph"]}
    assert graph["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    assert {part["@id"] for part in graph["./"]["hasPart"]} == {*names} - {"ro-crate-metadata.json", "checksums.sha256"}
    assert all(reference["@id"] in graph for reference in [*graph["./"]["hasPart"], *graph["./"]["mentions"]])
    assert len(graph["./"]["mentions"]) == 4
    action = graph[f"#{run}"]
    assert action["object"] == [{"@id": f"{run}/config.json"}]
    assert action["instrument"]["@id"] in graph


def test_with_models_runs_are_verified_and_analysed_elsewhere(results, tmp_path):
    unpack(exported("mini_runs", results, tmp_path / "a.zip", models=True), tmp_path / "out")
    runs = find(tmp_path / "out")
    assert len(runs) == 4
    verdict = verify_run(runs[0], 1, lambda _: CPU)
    assert not verdict.unverified
    assert "with the same bits" in str(verdict)
    without = exported("mini_runs", results, tmp_path / "b.zip")
    unpack(without, tmp_path / "other")
    verdict = verify_run(find(tmp_path / "other")[0], 1, lambda _: CPU)
    assert verdict.unverified == ["models (none is stored)"]
    assert "round 1 of 2 computed again with the same bits" in str(verdict)


def test_what_is_missing_or_damaged_is_not_exported(results, tmp_path):
    copy = Path(shutil.copytree(results, tmp_path / "results"))
    with pytest.raises(
        UserError, match=r"2 of 2 files of mini_figure_surfaces are missing, .*; compute them with: snake"
    ):
        exported("mini_figure_surfaces", copy, tmp_path / "a.zip")
    with pytest.raises(UserError, match="unknown target 'mini_tabel_accuracy'; did you mean 'mini_table_accuracy'"):
        exported("mini_tabel_accuracy", copy, tmp_path / "a.zip")
    drift = next(copy.glob("store/digits/dirichlet-0.1/4-of-20/fedsam-*/seed-0/analyses/drift-*.csv"))
    text = drift.read_text(encoding="utf-8")
    drift.write_text(text.replace("0.05", "0.06", 1), encoding="utf-8")
    with pytest.raises(UserError, match=rf"^'{drift}' is damaged .*: delete it, and write it again with: snakemake"):
        exported("mini_figure_drift", copy, tmp_path / "a.zip")
    [cell] = copy.glob("store/digits/dirichlet-0.1/4-of-20/fedsam-*")
    text = (cell / "seed-1/times.csv").read_text(encoding="utf-8")
    (cell / "seed-1/times.csv").write_text(text.replace("1", "2", 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"times.csv' is damaged \(two rows have the same round\)"):
        exported("mini_table_accuracy", copy, tmp_path / "a.zip")
    shutil.rmtree(cell / "seed-1")
    with pytest.raises(UserError, match="seed-1' is missing, but a list has it"):
        exported("mini_table_accuracy", copy, tmp_path / "a.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("target", ["mini_table_accuracy", "mini_runs"])
def test_runs_of_another_configuration_are_not_exported(target, results, tmp_path):
    stored = rf"'{results}/experiments/mini/.*/runs.csv' lists seed 0 of another configuration"
    with pytest.raises(UserError, match=rf"^{stored} .*\(training.rounds: 2 there, 3 here\): give the --set values"):
        export([target], tmp_path / "a.zip", results, {**OVERRIDES, "training.rounds": 3}, [MINI])
    assert not list(tmp_path.iterdir())


OWN = """
from pydantic import Field
from fedflat.bench.methods.base import Perturbation, unit
from fedflat.bench.methods.recipe import Components, Recipe

class Ascent(Perturbation):
    \"\"\"δ = ρ unit(∇F_i(w))\"\"\"

    name = "ascent"
    rho: float = Field(ge=0, description="radius")

    def delta(self, w, gradient, client):
        return self.rho * unit(gradient(w))

METHOD = Recipe("ascent", "Ascent", "none", Components(perturbation=Ascent))
"""


def own_experiment(folder: Path, method: str) -> str:
    folder.mkdir()
    (folder / "own.yaml").write_text(
        "name: own\nextends: quick\nmethods:\n  fedavg: {}\n"
        f"  mine: {{file: {method}, hyperparameters: {{rho: 0.1}}}}\n"
        "grid: {partition: [{name: iid, clients: 20}], participation: [{active: 4}], seeds: [0]}\n",
        encoding="utf-8",
    )
    (folder / "tables").mkdir()
    layout = (Path(MINI).parent / "tables/accuracy.yaml").read_text(encoding="utf-8")
    layout = layout.replace("fedsam", "mine").replace("dirichlet-0.1", "iid")
    (folder / "tables/accuracy.yaml").write_text(layout, encoding="utf-8")
    return str(folder / "own.yaml")


def test_a_users_own_experiment_is_exported_with_its_files(tmp_path):
    source = own_experiment(tmp_path / "mine", "ascent.py")
    (tmp_path / "mine/ascent.py").write_text(OWN, encoding="utf-8")
    results = trained(source, tmp_path / "results")
    contents = export(["own_table_accuracy"], tmp_path / "a.zip", results, OVERRIDES, [source])
    assert contents.has_own_experiment
    unpack(tmp_path / "a.zip", tmp_path / "out")
    shutil.rmtree(tmp_path / "mine")
    table = tmp_path / "out/results/reports/own/tables/accuracy.md"
    before = table.read_bytes()
    assert b"Ascent" in before or b"mine" in before
    table.unlink()
    assert commands.run(shlex.split(*commands_in(tmp_path / "out")), cwd=tmp_path / "out").returncode == 0
    assert table.read_bytes() == before
    runs = find(tmp_path / "out/results")
    assert [RunDirectory(run).config.method.recipe.name for run in runs] == ["ascent", "fedavg"]


def test_a_file_elsewhere_cannot_be_exported_with_an_experiment(tmp_path):
    (tmp_path / "ascent.py").write_text(OWN, encoding="utf-8")
    source = own_experiment(tmp_path / "mine", str(tmp_path / "ascent.py"))
    results = trained(source, tmp_path / "results")
    with pytest.raises(UserError, match="put it into the folder of the experiment's file"):
        export(["own_runs"], tmp_path / "a.zip", results, OVERRIDES, [source])


def test_the_command(results, tmp_path):
    options = [f"--set={key}={value}" for key, value in OVERRIDES.items()]
    words = ["export", "mini_runs", "--experiment", MINI, "--results", results, *options]
    done = commands.fedflat(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mini_runs.zip: 4 runs, ")
    done = commands.fedflat("import", "mini_runs.zip", cwd=tmp_path)
    assert done.stdout.endswith(
        " files in 'results/imported/mini_runs'; its README.md says how to render tables and figures\n"
    )
    assert "already exists" in commands.refused("import", "mini_runs.zip", cwd=tmp_path)
