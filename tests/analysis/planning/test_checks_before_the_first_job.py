"""Data that are missing, and models and partitions that do not fit them, are found before the first job, once each."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedflat.analysis.planning.workflow import Workflow
from tests.analysis.planning.jobs import jobs_of, wildcards
from tests.bench.data.image_copies import write_landmarks

PARTS_OF_TABLE_3 = [
    ("officehome_art_1", "all-of-3"),
    ("officehome_art_10", "6-of-30"),
    ("officehome_clipart_1", "all-of-3"),
    ("domainnet_real_1", "all-of-5"),
    ("domainnet_sketch_1", "all-of-5"),
]
"""Parts of FedLESAM's experiment, and their participation."""


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
