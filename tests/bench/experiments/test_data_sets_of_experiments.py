"""The data sets of an experiment are decoded by a command as its runs need them."""

from pathlib import Path

import pytest

from fedflat.bench.data.inventory import listing, prepare
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.image_files import scenes
from fedflat.bench.experiments.data_sets import data_sets
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from tests.bench.data.scene_copies import write_cityscapes
from tests.commands import fedflat


def experiment(folder: Path) -> Path:
    """An experiment with two parts whose images have different sizes, and a third that shares those of the first."""
    file = folder / "mine.yaml"
    file.write_text(
        "name: mine\nextends: quick\nmodel: fcn_gn\nmethods: {fedavg: {loss: cross_entropy}}\n"
        "grid: {partition: [{name: by_group, clients: 2}], participation: [{active: 2}]}\nparts:\n"
        "  small: {dataset: {name: cityscapes, size: [32, 64]}}\n"
        "  large: {dataset: {name: cityscapes, size: [64, 128]}}\n"
        "  uniform: {dataset: {name: cityscapes, size: [32, 64], split: uniform}}\n",
        encoding="utf-8",
    )
    return file


def status(root: Path) -> str:
    """That of cityscapes in the list of data sets."""
    [line] = [line for line in listing(root).splitlines() if line.startswith("cityscapes ")]
    return line.split("19")[1].split("non-commercial")[0].split(maxsplit=1)[1].strip()


def test_images_are_decoded_in_the_size_of_a_part_and_not_again_by_its_runs(tmp_path, monkeypatch):
    root = tmp_path / "data"
    write_cityscapes(root)
    file = experiment(tmp_path)
    assert status(root) == "files"
    done = fedflat("data", "prepare", file, "large", "--root", root)
    assert done.returncode == 0, done
    said, line = done.stdout.splitlines()
    assert said == "data set cityscapes: 12 of 3,475 published images are there"
    assert line.startswith("cityscapes: 8 training and 4 test samples in 19 classes, hash ")
    assert line.endswith(", sample 3×64×128")
    assert status(root) == "ready: 64×128"
    done = fedflat("data", "prepare", file, "--root", root)
    lines = [line for line in done.stdout.splitlines() if "sample" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["3×32×64", "3×64×128"]
    assert status(root) == "ready: 32×64, 64×128"
    monkeypatch.setattr(scenes, "decode_scene", lambda *_: pytest.fail("decoded again"))
    for part in load_experiment(str(file)).resolved_parts.values():
        assert len(parse_source(part.dataset).load(root).train) == 8


def test_table_8_needs_street_scenes_in_the_sizes_of_feddrive(tmp_path):
    sources = {source.name: source for source in data_sets(load_experiment("fedsam_caldarola"), None, tmp_path)}
    assert sources["cityscapes"].size == (1024, 2048)
    assert sources["idda"].size == (1024, 1856)
    assert len(sources) == 6, "CIFAR-10, CIFAR-100 in two ways, and Landmarks"


def test_all_missing_files_are_said_before_a_data_set_is_decoded(tmp_path):
    write_cityscapes(tmp_path)
    done = fedflat("data", "prepare", "fedsam_caldarola", "--root", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fedflat: data set cifar10: '")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("{name: cityscapes, size: [64, 128]}",),
            "size: [64, 128]}' is a mapping (allowed: the name of a data set, or",
        ),
        (("cityscapes", "large"), "cityscapes is a data set, which has no part 'large' (allowed with a part: an exp"),
        (("mine.yaml", "huge"), "unknown part of experiment mine 'huge' (allowed: large, small, uniform)"),
        (("fedsam_caldarla", "cityscapes_uniform"), "experiment 'fedsam_caldarla'; did you mean 'fedsam_caldarola'?"),
        (("nowhere.yaml",), "nowhere.yaml"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message, tmp_path):
    experiment(tmp_path)
    done = fedflat("data", "prepare", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "data").exists()


def test_a_mapping_is_refused_as_a_name(tmp_path):
    with pytest.raises(UserError, match="is a mapping"):
        list(prepare("{name: digits}", tmp_path, fetch=False))
