"""The answers to the Snakefile: options, resources, identities, targets of analyses, and chosen methods."""

import shutil
from pathlib import Path

import pytest
import yaml
from snakemake.cli import get_argument_parser

from fedflat.analysis.planning.workflow import KEYS, Workflow, one_line_errors
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.tables import Tables
from fedflat.bench.input.errors import UserError
from tests.analysis.planning.jobs import FEDSAM, wildcards
from tests.commands import ended
from tests.places import MINI, ROOT


def test_the_configuration_file_lists_every_key_and_its_default():
    listed = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    assert sorted(listed) == KEYS
    assert Workflow.of(listed) == Workflow.of({}), "the values in the file are the defaults"


def test_profiles_set_options_that_snakemake_has():
    options = get_argument_parser()._option_string_actions
    profiles = sorted((ROOT / "profiles").glob("*/config.yaml"))
    assert [file.parent.name for file in profiles] == ["default", "slurm"]
    for file in profiles:
        assert {f"--{key}" for key in yaml.safe_load(file.read_text(encoding="utf-8"))} <= options.keys()


def test_a_training_asks_a_cluster_for_more_time_and_memory_at_each_attempt():
    flow = Workflow.of({"experiments": MINI, "rounds": 10_000}, submits=True)
    for w in (wildcards(), wildcards(analysis="hessian")):
        minutes, mebibytes = ([ask(w, attempt) for attempt in (1, 2)] for ask in (flow.minutes, flow.mebibytes))
        assert 1 <= minutes[0] < minutes[1]
        assert 2048 < mebibytes[0] < mebibytes[1]
    local = Workflow.of({"experiments": MINI})
    assert (local.minutes(wildcards(), 1), local.mebibytes(wildcards(), 1)) == (0, 0)


def test_short_cells_share_a_job_on_a_cluster():
    for rounds, group in ((4, "tiny"), (5_000, "short"), (1_000_000, None)):
        flow = Workflow.of({"experiments": MINI, "rounds": rounds}, submits=True)
        assert flow.group(wildcards()) == flow.group(wildcards(analysis="hessian")) == group


def test_analyses_that_compare_cells_do_not_connect_these_in_a_job():
    flow = Workflow.of({"experiments": "analyses"}, submits=True)
    w = wildcards(flow.experiments["analyses"].analysed("plane")[0], analysis="plane")
    w.experiment = "analyses"
    assert flow.group(w) == "comparisons"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"round": 5}, "unknown --config key 'round'; did you mean 'rounds'?"),
        ({"results": ""}, "--config results= (allowed: the path of a folder)"),
        ({"results": "a{b}"}, "--config results=a{b}: in a path, Snakemake takes braces for a wildcard"),
        ({"experiments": ["{x}.yaml"]}, "--config experiments={x}.yaml: in a path, Snakemake takes braces"),
        ({"method": "{x}.py", "grid": "quick"}, "--config method={x}.py: in a path, Snakemake takes braces"),
        ({"replace": "maybe"}, "--config replace=maybe (allowed: true, false)"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"experiments": [3]}, "a list such as"),
        ({"experiments": [MINI, MINI]}, "two experiments are named mini"),
        ({"rounds": "many"}, "rounds=many (allowed: a whole number of at least 1)"),
        ({"seeds": 3}, "seeds=3 (allowed: a list such as [0,1,2])"),
        ({"seeds": [0, 0]}, "seed 0 is listed twice in seeds"),
        ({"until": 0}, "until=0 (allowed: a test accuracy in percent, such as 74)"),
        ({"until": "high"}, "until=high (allowed: a test accuracy in percent, such as 74)"),
        ({"scale": "tiny"}, "scale=tiny (allowed: paper or smoke)"),
        ({"methods": "fedavg"}, "methods=fedavg (allowed: a list such as [fedavg,fedsam])"),
        ({"methods": ["fedavgg"]}, "unknown method 'fedavgg'; did you mean 'fedavg'"),
        ({"report": "mean"}, "report=mean (allowed: last, best, or mean_last_N, such as mean_last_100)"),
        ({"engine": "fast"}, "engine=fast (allowed: auto, loop, parallel, cohort, graph, branches)"),
        ({"threads": 0}, "--config threads=0 (allowed: a whole number of at least 1)"),
        ({"threads": "all"}, "--config threads=all (allowed: a whole number of at least 1)"),
    ],
)
def test_a_wrong_configuration_is_one_line(config, message):
    with pytest.raises(UserError) as error:
        Workflow.of({"experiments": MINI, **config})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_changes_reach_every_command():
    flow = Workflow.of({"experiments": MINI, "rounds": 5, "seeds": [0], "results": "my results", "engine": "loop"})
    changes = ["--set=training.rounds=5", "--set=grid.seeds=[0]", "--set=engine.backend=loop"]
    assert flow.options == ["--results", "my results", *changes]
    [run] = flow.cell(wildcards()).runs
    assert (run.training.rounds, run.engine.backend) == (5, "loop")


def test_runs_until_a_target_are_those_of_the_experiment():
    flow = Workflow.of({"experiments": MINI, "until": 74.5})
    assert flow.requested[0].experiment.name == "mini"
    assert flow.requested[0].experiment.cell(FEDSAM).runs[0].evaluation.until == 74.5
    assert "--set=evaluation.until=74.5" in flow.options
    assert "until=74.5" in flow.requested[0].snakemake("mini_runs")


def test_small_models_get_one_thread_and_large_ones_the_cores(tmp_path):
    large = tmp_path / "experiments.yaml"
    large.write_text(
        Path(MINI).read_text(encoding="utf-8").replace("model: cnn_gn", "model: resnet18_gn"), encoding="utf-8"
    )
    for config, threads in (
        ({"experiments": MINI}, 1),
        ({"experiments": str(large)}, 8),
        ({"experiments": str(large), "device": "cuda"}, 1),
        ({"experiments": str(large), "device": "cuda", "threads": 3}, 3),
        ({"experiments": MINI, "threads": 3}, 3),
    ):
        assert Workflow.of(config, cores=8).threads(wildcards()) == threads, config


def test_the_device_auto_takes_a_gpu_only_if_there_is_one(monkeypatch):
    for available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda available=available: available)
        flow = Workflow.of({"experiments": MINI, "device": "auto"})
        assert (flow.device, flow.gpus) == (device, int(available))


def test_a_report_depends_on_the_identities_of_the_cells_that_it_reads():
    one, other = (Workflow.of({"experiments": MINI, "rounds": rounds}) for rounds in (4, 5))
    files = [f"results/experiments/mini/{FEDSAM}/drift.csv", "layout.yaml"]
    best = Workflow.of({"experiments": MINI, "report": "best"})
    shown, of_other, of_best = (flow.identities_shown(wildcards(), files) for flow in (one, other, best))
    assert shown == one.cell(wildcards()).identity
    assert of_best.startswith("best ")
    assert other.cell(wildcards()).identity in of_other != shown
    assert one.identities_shown(wildcards(), ["layout.yaml"]) == ""


def test_nothing_is_trained_in_an_unpacked_archive(tmp_path, capsys):
    """Its checksums are those of the runs that it has."""
    (tmp_path / "checksums.sha256").touch()
    with pytest.raises(UserError, match=rf"the results of this archive are in '{tmp_path}/results'"):
        Workflow.of({"experiments": MINI, "results": str(tmp_path)})
    flow = Workflow.of({"experiments": MINI, "results": str(tmp_path / "results")})
    flow.require_stored_runs([("analyse", wildcards())])
    with pytest.raises(SystemExit) as ended:
        flow.require_stored_runs([("train", wildcards()), ("analyse", wildcards())])
    assert ended.value.code == 2
    assert "an unpacked archive, in which nothing is trained, and has no runs of fedsam:" in capsys.readouterr().err
    Workflow.of({"experiments": MINI, "results": str(tmp_path / "other" / "results")}).require_stored_runs(
        [("train", wildcards())]
    )


def test_bad_input_ends_snakemake_with_one_line(capsys):
    def refuse() -> None:
        raise UserError("a is not b")

    with ended(capsys, "fedflat: a is not b"):
        one_line_errors(refuse)()


@pytest.mark.parametrize("attribute", ["analysis_names", "targets"])
def test_wrong_options_of_an_analysis_end_snakemake_with_one_line(attribute, tmp_path, capsys):
    """Snakemake asks for both while it reads the Snakefile, before any rule has wildcards."""
    mini = Path(shutil.copytree(Path(MINI).parent, tmp_path / "mini"))
    (mini / "analyses.yaml").write_text("drift: 3\n", encoding="utf-8")
    flow = Workflow.of({"experiments": str(mini / "experiments.yaml")})
    with ended(capsys, r"fedflat: '.*analyses\.yaml': drift = 3 \(allowed: options"):
        getattr(flow, attribute)


def with_analyses(folder: Path, text: str) -> Workflow:
    """Mini with a second partition and these analyses, without layouts of its own, which need others."""
    shutil.copytree(Path(MINI).parent, folder, ignore=shutil.ignore_patterns("tables", "figures"))
    file = folder / "experiments.yaml"
    iid = "  partition: [{name: dirichlet, alpha: 0.1, clients: 20}, {name: iid, clients: 40}]\n"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(iid if line.startswith("  partition:") else line for line in lines), encoding="utf-8")
    (folder / "analyses.yaml").write_text(text, encoding="utf-8")
    return Workflow.of({"experiments": str(file)})


def analysed(flow: Workflow, analysis: str) -> list[Path]:
    """The files of a target such as mini_analysis_hessian."""
    return flow.targets[f"mini_analysis_{analysis}"](None)


def test_a_target_of_an_analysis_leaves_out_what_it_compares_with(tmp_path, capsys):
    flow = with_analyses(tmp_path / "mine", "interpolation: {towards: fedsam}\n")
    expected = ["digits/dirichlet-0.1/4-of-20/fedavg", "digits/iid/4-of-40/fedavg"]
    cells = [file.parent.relative_to("results/experiments/mini") for file in analysed(flow, "interpolation")]
    assert cells == list(map(Path, expected))
    assert len(analysed(flow, "hessian")) == 4
    with ended(capsys, "list the other two in its option through"):
        analysed(flow, "plane")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (
            "fedsma",
            "unknown method or partition to compare digits/.*/fedavg with 'fedsma'; did you mean",
        ),
        ("iid", "unknown setting to compare digits/dirichlet-0.1/4-of-20/fedavg with 'digits/iid/4-of-20'"),
    ],
)
def test_what_cannot_be_compared_is_one_line(label, message, tmp_path, capsys):
    flow = with_analyses(tmp_path / "mine", f"interpolation: {{towards: {label}}}\n")
    with ended(capsys, message):
        flow.runs_compared_with(wildcards("digits/dirichlet-0.1/4-of-20/fedavg", analysis="interpolation"))


def test_chosen_methods_may_be_those_of_another_experiment():
    """The default target is the page of quick, which has no FedTOGA."""
    flow = Workflow.of({"methods": ["fedtoga"]})
    [metrics, *others] = flow.targets["bench1d_runs"](wildcards())
    assert len(others) == 3
    assert metrics.parent.name == "fedtoga"
    assert Figures(flow.requested[0]).shown() == []


def test_only_chosen_methods_are_requested():
    flow = Workflow.of({"experiments": MINI, "methods": ["fedsam"]})
    requested = flow.experiments["mini"]
    shown = {path.parent.name for path in Tables(requested).inputs("accuracy") if path.name == "runs.csv"}
    assert shown == {"fedsam"}
    assert {file.parent.name for file in analysed(flow, "hessian")} == {"fedsam"}
