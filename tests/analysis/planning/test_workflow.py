"""The answers to the Snakefile: options, identities, and the cells that a report shows."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from snakemake.cli import get_argument_parser

from analysis.planning.workflow import KEYS, Workflow, one_line_errors
from analysis.report.figures import Figures
from analysis.report.requested import RequestedExperiment
from analysis.report.tables import Tables
from analysis.tables.layout import load_table
from bench.input.errors import UserError
from tests.bench.data.image_copies import write_landmarks
from tests.commands import ended
from tests.places import MINI, ROOT

FEDSAM = "digits/dirichlet-0.1/4-of-20/fedsam"
PARTS_OF_TABLE_3 = [
    ("officehome_art_1", "all-of-3"),
    ("officehome_art_10", "6-of-30"),
    ("officehome_clipart_1", "all-of-3"),
    ("domainnet_real_1", "all-of-5"),
    ("domainnet_sketch_1", "all-of-5"),
]
"""Parts of FedLESAM's experiment, and their participation."""


def wildcards(cell: str = FEDSAM, **others: str) -> SimpleNamespace:
    """Those of a cell of mini, as Snakemake passes them to a rule's functions."""
    names = ("dataset", "partition", "participation", "method")
    return SimpleNamespace(experiment="mini", **dict(zip(names, cell.split("/"), strict=True)), **others)


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


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"until": 74}, "mini_until74"),
        ({"until": 74.5}, "mini_until74_5"),
        ({"until": 74, "scale": "smoke"}, "mini_smoke_until74"),
    ],
)
def test_runs_until_a_target_are_stored_apart(config, name):
    flow = Workflow.of({"experiments": MINI, **config})
    assert flow.requested[0].experiment.name == name
    run = flow.requested[0].experiment.cell(FEDSAM).runs[0]
    assert run.evaluation.until == config["until"]
    assert f"--set=evaluation.until={config['until']}" in flow.options
    assert f"quick{name.removeprefix('mini')}" in flow.experiments, "named experiments have such targets, too"
    assert f"until={config['until']}" in flow.requested[0].snakemake("mini_runs")


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
    files = [f"results/analysis/mini/{FEDSAM}/drift.csv", "layout.yaml"]
    best = Workflow.of({"experiments": MINI, "report": "best"})
    shown, of_other, of_best = (flow.identities_shown(wildcards(), files) for flow in (one, other, best))
    assert shown == one.cell(wildcards()).identity
    assert of_best.startswith("best ")
    assert other.cell(wildcards()).identity in of_other != shown
    assert one.identities_shown(wildcards(), ["layout.yaml"]) == ""


def image_jobs(root: Path, more: str) -> tuple[Workflow, list[tuple[str, SimpleNamespace]]]:
    """The jobs of two experiments on Landmarks, of which all files are there."""
    write_landmarks(root)
    file = root.parent / "mine.yaml"
    file.write_text(
        "{name: mine, extends: quick, dataset: {name: landmarks_user_160k, size: 16}, methods: {fedavg: {}},"
        f" grid: {{partition: [{{name: by_group, clients: 3}}], participation: [{{active: 2}}]}}, {more}}}",
        encoding="utf-8",
    )
    cell = wildcards("landmarks_user_160k/by_group/2-of-3/fedavg")
    cell.experiment = "mine"
    flow = Workflow.of({"experiments": [str(file)], "results": str(root.parent / "results")})
    return flow, [(rule, cell) for rule in ("split", "train", "analyse")]


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("mobilenet_v2_gn", None),
        ("vit_b_32", "model vit_b_32 needs height and width that are multiples of 32, not 16×16"),
        ("{name: mobilenet_v2_gn, weights: other.pt}", "the weights 'other.pt' are of another model: missing tensors"),
        ("{name: mobilenet_v2_gn, frozen: [body]}", "unknown part of the model in frozen 'body'"),
    ],
)
def test_models_are_compared_with_data_sets_of_image_files_before_the_first_job(
    model, line, tmp_path, monkeypatch, capsys
):
    """A job that only draws a split needs no model."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pt")
    monkeypatch.chdir(tmp_path)
    flow, jobs = image_jobs(tmp_path / "data", f"model: {model}")
    flow.require_data(jobs[:1])
    if line is None:
        flow.require_data(jobs)
    else:
        with pytest.raises(SystemExit) as ended:
            flow.require_data(jobs)
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith(f"fedflat: {line}")
    assert not (tmp_path / "data" / "cache").exists()


NET = "from torch import nn\n\ndef net(shape, classes):\n    return nn.Linear(shape[0], classes)\n"
UNFIT = [
    ("model: vit_b_32", ["model vit_b_32 needs height and width that are multiples of 32, not 8×8"]),
    ("model: net.py:net", ["the model file '{folder}/net.py' fails: RuntimeError: mat1 and mat2 shapes"]),
    ("training: {augmentation: [flip]}, dataset: mnist1d, model: mlp", ["augmentation flip needs images"]),
    (
        "model: vit_b_32, grid: {partition: [{name: dirichlet_by_class, clients: 400, alpha: 0.1}, {name: pam, "
        "clients: 20, alpha: 0.1, beta: 1}]}",
        [
            "what does not fit the data sets: 3 problems",
            "model vit_b_32 needs height",
            "training images are too few for least = 10 at each of 400 clients",
            "pam needs coarse labels, which this data set lacks",
        ],
    ),
]


@pytest.mark.parametrize(("wrong", "lines"), UNFIT, ids=["model", "own model", "augmentation", "all"])
def test_what_no_run_can_have_is_found_once_before_the_first_job(wrong, lines, tmp_path, monkeypatch, capsys):
    """Whatever the number of methods, seeds and settings that have it."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(f"{{name: mine, extends: quick, methods: {{fedavg: {{}}, scaffold: {{}}}}, {wrong}}}", "utf-8")
    flow = Workflow.of({"experiments": [str(file)], "results": str(tmp_path / "results")})
    with pytest.raises(SystemExit) as ended:
        flow.require_data(jobs_of(flow, "mine", "split", "train", "analyse"))
    assert ended.value.code == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == len(lines)
    for line in lines:
        assert sum(line.format(folder=tmp_path) in shown for shown in printed) == 1, (line, printed)
    assert not (tmp_path / "results").exists()


def jobs_of(flow: Workflow, name: str, *rules: str) -> list[tuple[str, SimpleNamespace]]:
    jobs = []
    for cell in flow.experiments[name].experiment.addresses:
        w = wildcards(cell.path)
        w.experiment = name
        jobs += [(rule, w) for rule in rules]
    return jobs


DATA = """
import numpy as np

def build():
    x, y = np.random.default_rng(0).normal(size=(90, {width})).astype("float32"), np.arange(90) % 3
    return {{"x_train": x, "y_train": y, "x_test": x, "y_test": y}}
"""


def test_data_sets_and_models_with_the_name_of_another_are_checked_on_their_own(tmp_path, monkeypatch, capsys):
    """Two files have functions of the same name; each model fits its own data set, and the last one fits neither."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    files = {}
    for name, width, units in (("a", 5, 5), ("b", 7, 7), ("c", 7, 6)):
        (tmp_path / f"{name}.py").write_text(DATA.format(width=width), encoding="utf-8")
        net = f"from torch import nn\n\ndef net(shape, classes):\n    return nn.Linear({units}, classes)\n"
        (tmp_path / f"net_{name}.py").write_text(net, encoding="utf-8")
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(
            f"{{name: {name}, extends: quick, dataset: {name}.py:build, model: net_{name}.py:net, "
            "methods: {fedavg: {}}, grid: {seeds: [0], partition: [{name: iid, clients: 3}], participation: "
            "[{active: 2}]}}",
            encoding="utf-8",
        )
    flow = Workflow.of({"experiments": [*map(str, files.values())], "results": str(tmp_path / "results")})
    fit = [job for name in ("a", "b") for job in jobs_of(flow, name, "split", "train")]
    flow.require_data(fit)
    with pytest.raises(SystemExit):
        flow.require_data([*fit, *jobs_of(flow, "c", "train")])
    (line,) = capsys.readouterr().err.splitlines()
    assert "net_c.py' fails: RuntimeError: mat1 and mat2 shapes" in line


def test_missing_data_sets_are_named_once_and_one_per_line(tmp_path, monkeypatch, capsys):
    """Table 3 of FedLESAM has two parts for each domain of a data set, all of which need the same files."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path))
    flow = Workflow.of({"experiments": "fedlesam", "results": str(tmp_path / "results")})
    cells = [wildcards(f"{part}/by_group/{active}/fedavg") for part, active in PARTS_OF_TABLE_3]
    for cell in cells:
        cell.experiment = "fedlesam"
    with pytest.raises(SystemExit):
        flow.require_data([("train", cell) for cell in cells])
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "fedflat: data sets and weights: 2 problems"
    assert [line.split(": ")[0] for line in lines] == ["  data set domainnet", "  data set officehome"]
    assert all(line.count("is missing") == 1 for line in lines)


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
    shown = {path.parent.name for path in Tables(requested).inputs("accuracy") if path.name == "metrics.csv"}
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
    cells = [file.parent.relative_to("results/analysis/mini") for file in analysed(flow, "interpolation")]
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
        flow.metrics_compared_with(wildcards("digits/dirichlet-0.1/4-of-20/fedavg", analysis="interpolation"))


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
    shown = {path.parent.name for path in Tables(requested).inputs("accuracy") if path.name == "metrics.csv"}
    assert shown == {"fedsam"}
    assert {file.parent.name for file in analysed(flow, "hessian")} == {"fedsam"}


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
