"""Plans count the runs that a target needs, and what is finished; hours and bytes follow from stated numbers."""

import re
from pathlib import Path

import pytest
import torch

from fedflat.analysis.planning.gradient_times import FEW, MOST, Gradient, GradientTimes
from fedflat.analysis.planning.plan import CellCosts, Cost, as_text, plan, rounded, total
from fedflat.analysis.planning.run_cost import BYTES_PER_ROUND, FORWARD, OVERHEAD, disk, gradient_of, seconds
from fedflat.analysis.planning.targets import ReportOnTuning, StudyReport
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.train import train_cell
from tests.commands import fedflat, refused

CPU = torch.device("cpu")
ONE = {"training.rounds": 2, "grid.seeds": [0]}


def one_second(_: object) -> float:
    return 1.0


def test_a_table_needs_the_runs_that_it_shows(tmp_path: Path) -> None:
    [(part, estimate)] = plan(["quick_table_flatness"], tmp_path, ONE, one_second).items()
    assert (part, estimate.runs, estimate.finished) == ("quick: digits", 24, 0)
    assert estimate.hours > 0
    cell = load_experiment("quick", ONE).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    train_cell("quick", cell, tmp_path, CPU, str)
    [after] = plan(["quick_table_flatness"], tmp_path, ONE, one_second).values()
    assert (after.runs, after.finished) == (24, 1)
    assert after.bytes < estimate.bytes
    assert after.hours < estimate.hours
    own = tmp_path / "mine.yaml"
    own.write_text("name: mine\nextends: quick\n", encoding="utf-8")
    [mine] = plan(["mine_table_flatness"], tmp_path, ONE, one_second, [str(own)]).values()
    assert (mine.runs, mine.finished, mine.taken) == (24, 1, 0)
    assert mine.hours == pytest.approx(after.hours)
    both = plan(["quick_table_flatness", "mine_table_flatness"], tmp_path, ONE, one_second, [str(own)])
    assert (both["mine: digits"].taken, both["mine: digits"].hours) == (23, 0)
    swept = "name: mine\nextends: quick\nmethods: {fedsam: {hyperparameters: {rho: [0.01, 0.05]}}}\n"
    own.write_text(swept, encoding="utf-8")
    [alone] = plan(["mine_runs"], tmp_path, ONE, one_second, [str(own)]).values()
    both = plan(["quick_runs", "mine_runs"], tmp_path, ONE, one_second, [str(own)])
    assert (alone.runs, alone.finished) == (8, 1), "two radii in four settings; one run is there"
    assert both["mine: digits"].taken == 3, "the first experiment trains one of the radii"


def test_runs_that_analyses_compare_with_are_needed_too() -> None:
    requested = RequestedExperiment("analyses", Path("results"))
    costs = CellCosts.of_experiments([requested], one_second)
    methods = [path.split("/")[-1] for _, path in costs.of(requested, Figures(requested).inputs("plane"))]
    assert methods == [*Figures(requested).layout("plane").methods, *requested.analyses["plane"].compared_labels()]
    assert len(methods) == 3


def test_a_study_reads_runs_and_the_analyses_that_they_allow(tmp_path: Path) -> None:
    study = StudyReport(RequestedExperiment("quick", tmp_path, ONE))
    kinds = {file.name for file in study.inputs()}
    assert kinds == {"runs.csv", "hessian.csv", "spectrum.csv", "discrepancy.csv", "flatness.csv", "drift.csv"}
    assert study.commands() == [["study", "quick", "--runs"]]
    paper = StudyReport(RequestedExperiment("fedtoga", tmp_path))
    assert "discrepancy.csv" not in {file.name for file in paper.inputs()}, "its runs store no local models"
    [estimate] = plan(["quick_study"], tmp_path, ONE, one_second).values()
    assert estimate.runs == len(load_experiment("quick", ONE).paths())


def test_a_report_on_tuning_reads_stored_files_if_tuned_runs_or_trials_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ReportOnTuning(RequestedExperiment("quick", tmp_path, ONE))
    assert {file.name for file in report.inputs()} == {"runs.csv", "trials.csv", "tuned.yaml"}
    assert report.commands() == [["tuning-report", "quick", "--runs"]]
    costs = plan(["quick_tuning_report"], tmp_path, ONE, one_second)
    cells = len(load_experiment("quick", ONE).paths())
    assert {name: cost.runs for name, cost in costs.items()} == {
        "quick: digits": cells,
        "quick (trials): digits": 16 * cells,
    }
    monkeypatch.chdir(tmp_path)
    trials = tmp_path / "results/baselines/quick/trials.csv"
    trials.parent.mkdir(parents=True)
    trials.touch()
    trials.with_name("runs.csv").touch()
    stored = ReportOnTuning(RequestedExperiment("quick", Path("results")))
    assert [file.name for file in stored.inputs()] == ["runs.csv", "trials.csv"]
    assert stored.commands() == [["tuning-report", "quick"]]


def test_a_figure_in_parts_and_an_analysis_are_targets_too() -> None:
    smallest = {"scale": "smoke", "grid.seeds": [0]}
    [cifar10, cifar100] = plan(["fedgf_figure_4"], Path("none"), smallest, one_second).values()
    assert (cifar10.runs, cifar100.runs) == (9, 9)
    planned = plan(["quick_analysis_discrepancy"], Path("none"), {**smallest, "chosen": ["fedsam"]}, one_second)
    assert total(planned.values()).runs == 4
    with pytest.raises(
        UserError, match="unknown target 'quick_analysis_hesian'; did you mean 'quick_analysis_hessian'"
    ):
        plan(["quick_analysis_hesian"], Path("none"), {}, one_second)


def test_what_needs_no_runs_is_reported() -> None:
    """A figure of splits."""
    assert as_text(plan(["fedlesam_figure_5a"], Path("none"), {}, one_second)) == "nothing to train"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("fedgff", "fedgf"),
        ("fedfg_table_1", "fedgf_table_1"),
        ("fedgf_tabel_1", "fedgf_table_1"),
        ("quick_table_accurace", "quick_table_accuracy"),
        ("accuracy", "quick_table_accuracy"),
        ("perturbation_rise", "quick_figure_perturbation_rise"),
    ],
)
def test_targets_that_do_not_exist_suggest_others(given: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"unknown target '{given}'; did you mean '{meant}'"):
        plan([given], Path("none"), {}, one_second)


def test_trials_cost_as_many_runs_as_halving_trains() -> None:
    """Of 16 trials, 2 are trained to the end: together 5 runs of all rounds."""
    changes = {"training.rounds": 16, "grid.seeds": [0], "chosen": ["fedavg"]}
    [tuned] = plan(["quick_tune"], Path("none"), changes, one_second).values()
    [runs] = plan(["quick_runs"], Path("none"), changes, one_second).values()
    assert (tuned.runs, runs.runs) == (64, 4)
    assert tuned.hours == pytest.approx(5 * runs.hours)


def test_cells_that_several_targets_need_are_counted_once() -> None:
    def runs(*targets: str) -> int:
        return total(plan(targets, Path("none"), {}, one_second).values()).runs

    assert runs("quick_table_accuracy", "quick_runs", "quick") == runs("quick_runs")
    assert runs("quick_runs", "fedgf_table_1") == runs("quick_runs") + runs("fedgf_table_1")
    assert runs("fedgf_table_1", "fedgf_table_1") == runs("fedgf_table_1")


def test_own_experiments_have_targets_too(tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    file.write_text("name: mine\nextends: quick\n", encoding="utf-8")
    with pytest.raises(UserError, match="unknown target 'mine_runs'"):
        plan(["mine_runs"], tmp_path, {}, one_second)
    [(part, estimate)] = plan(["mine_runs"], tmp_path, {}, one_second, [str(file)]).items()
    assert (part, estimate.runs) == ("mine: digits", 3 * len(load_experiment(str(file)).paths()))
    assert plan([str(file)], tmp_path, {}, one_second) == plan(["mine"], tmp_path, {}, one_second, [str(file)])
    other = tmp_path / "other.yaml"
    other.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UserError, match="two experiments are named mine"):
        plan(["mine_runs"], tmp_path, {}, one_second, [str(file), str(other)])


def test_the_command_takes_several_targets_and_experiments(tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    file.write_text("name: mine\nextends: quick\n", encoding="utf-8")
    options = ["--experiment", file, "--results", tmp_path, "--rounds", 2, "--method", "fedavg"]
    lines = fedflat("plan", "mine_runs", "quick_runs", *options).stdout.splitlines()
    assert "hours of one core" in lines[0]
    assert [line.split(":")[0] for line in lines[1:-2]] == ["mine", "quick"]
    assert re.match(r"measured now: \S+ ms per gradient of cnn_gn with batch 16 \(costs.csv: \S+ ms on ", lines[-1])
    assert "the path is empty" in refused("plan", "quick", "--results", "")
    assert "fedflat: scale=tiny (allowed: paper or smoke)" in refused("plan", "quick", "--scale", "tiny")


@pytest.mark.parametrize(
    ("number", "shown"), [(48123, "48,000"), (0.0834, "0.083"), (0.004, "< 0.01"), (0, "0"), (1.75, "1.8")]
)
def test_two_digits_are_shown(number: float, shown: str) -> None:
    assert rounded(number) == shown


def test_hours_and_bytes_grow_with_what_they_are_made_of() -> None:
    changes = {"evaluation.every": 1000, "training.rounds": 10, "evaluation.snapshot_every": None}

    def run(label: str, **more: object) -> RunConfig:
        return load_experiment("quick", {**changes, **more}).cell(f"digits/dirichlet-0.1/{label}").runs[0]

    plain, sam, many = (seconds(run(x), one_second) for x in ("4-of-20/fedavg", "4-of-20/fedsam", "10-of-20/fedavg"))
    # 10 rounds x 4 clients x 2 epochs x 3 steps of 16 of 45 images, each a gradient of a second; one evaluation.
    evaluation = (901 + 896) / 16 * FORWARD
    assert plain == pytest.approx(10 * 4 * 2 * 3 * OVERHEAD + evaluation)
    assert sam - evaluation == pytest.approx(2 * (plain - evaluation))
    assert many - evaluation == pytest.approx(2.5 * (plain - evaluation))
    model, numbers = 4 * 1946, 10 * BYTES_PER_ROUND
    assert disk(run("4-of-20/fedavg")) == model + numbers
    assert disk(run("4-of-20/fedavg", **{"evaluation.local_models": "last"})) == model * 6 + numbers
    states = disk(run("4-of-20/scaffold", **{"evaluation.snapshot_every": 5}))
    changed = 20 * (1 - 0.8**5)  # clients that have taken part since the last stored state
    assert states == pytest.approx(model * (1 + 2 * (1 + 1 + changed)) + numbers)


def test_a_plan_needs_no_file_of_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path))
    run = load_experiment("fedlesam").cell("officehome_art_1/by_group/all-of-3/fedavg").runs[0]
    assert gradient_of(run).parameters == 87_505_217


def test_steps_take_windows_and_evaluations_whole_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path))
    path, part = "cityscapes_uniform/by_group/5-of-146/fedavg", "parts.cityscapes_uniform"
    changes = {f"{part}.training.rounds": 10, "evaluation.every": 1000, "evaluation.last": None}
    run = load_experiment("fedsam_caldarola", changes).cell(path).runs[0]
    assert gradient_of(run).shape == (3, 512, 1024)
    # 10 rounds x 5 clients x 2 epochs x 2 full batches of 8 of 21 images; one evaluation of images of four windows.
    evaluation = 4 * (1000 + 500) / 8 * FORWARD
    assert seconds(run, one_second) == pytest.approx(10 * 5 * 2 * 2 * OVERHEAD + evaluation)


def test_a_share_of_emnist_takes_less() -> None:
    run = load_experiment("fedsam_qu").cell("emnist/iid/bernoulli-0.2-of-100/fedavg").runs[0]
    whole = run.model_copy(update={"dataset": run.dataset.model_copy(update={"share": 1.0})})
    assert seconds(whole, one_second) == pytest.approx(5 * seconds(run, one_second), rel=0.05)


def test_parts_are_lines_with_their_sum() -> None:
    parts = {"a: x": Cost(2, 1, 0, 1.5, 2**30), "a: y": Cost(3, 0, 1, 0.25, 2**29)}
    lines = as_text(parts).splitlines()
    assert lines[-1].split() == ["all", "5", "1", "1", "1.8", "1.5"]
    assert len(as_text({"a: x": parts["a: x"]}).splitlines()) == 2
    assert total([]) == Cost()


def test_sizes_that_the_schema_allows_and_memory_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mini-batch is cut to the data set; the time of a large one is that of a smaller one, times the samples."""
    config = load_experiment("quick", {"training.batch_size": 2**31 - 1}).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    gradient = gradient_of(config.runs[0])
    assert gradient.batch == 901
    batches = []

    def quickest(gradient: Gradient, *_: object, **__: object) -> float:
        batches.append(gradient.batch)
        return 0.001 + gradient.batch / 10**6

    monkeypatch.setattr("fedflat.analysis.planning.gradient_times._shortest", quickest)

    def measured(batch: int) -> float:
        return GradientTimes.measured(CPU)(gradient._replace(batch=batch))

    four_digits = 5e-4
    assert measured(10 * MOST) == pytest.approx(10 * quickest(gradient._replace(batch=MOST)), rel=four_digits)
    assert measured(MOST // 2) == pytest.approx(quickest(gradient._replace(batch=MOST // 2)), rel=four_digits)
    assert max(batches) == MOST
    monkeypatch.setattr("fedflat.analysis.planning.gradient_times.LONG", 0.001)
    few = quickest(gradient._replace(batch=FEW))
    assert measured(10 * MOST) == pytest.approx(few * 10 * MOST / FEW, rel=four_digits)
    monkeypatch.setattr("fedflat.bench.models.base.available_memory", lambda: 10**11)
    own = tmp_path / "mine.yaml"
    own.write_text("name: mine\nextends: quick\nmodel: {name: mlp, hidden: [100000, 100000]}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^model mlp\(hidden=.* has 10,007,600,010 parameters: training needs"):
        plan(["mine_runs"], tmp_path, ONE, GradientTimes.measured(CPU), [str(own)])
