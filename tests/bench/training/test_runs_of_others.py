"""Code in the run directories of others is not executed, unless the user trusts it; own runs need no permission."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from fedflat import load_run
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.current import finished_run
from fedflat.bench.training.run_directory import RunDirectory
from tests import commands
from tests.problems import train
from tests.strangers import LEAVES_A_TRACE, become_another_user, executed, forget_trust

CELL = "digits/dirichlet-0.1/4-of-20/mine"

METHOD = f"""{LEAVES_A_TRACE}
from fedflat.bench.methods.perturbations.sam import SAM
from fedflat.bench.methods.recipe import Components, Recipe

METHOD = Recipe("mine", "Mine", "a test", Components(SAM))
"""
MODEL = f"""{LEAVES_A_TRACE}
from torch import nn

def small(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
EXPERIMENT = """
name: mine
extends: quick
training: {rounds: 1}
engine: {backend: loop}
model: net.py:small
grid: {partition: [{name: dirichlet, alpha: 0.1, clients: 20}], participation: [{active: 4}], seeds: [0]}
methods:
  mine: {file: method.py, hyperparameters: {rho: 0.1}}
"""


def written(folder: Path) -> Path:
    """An experiment with a method and a model; its YAML file."""
    folder.mkdir(parents=True)
    for name, text in (("method.py", METHOD), ("net.py", MODEL), ("mine.yaml", EXPERIMENT)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "mine.yaml"


@pytest.fixture(scope="module")
def made_elsewhere(tmp_path_factory) -> Path:
    """A run of a user-defined method and model that another user has trained."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        become_another_user(folder / "cache", patch)
        config = load_experiment(str(written(folder / "own"))).cell(CELL).runs[0]
        return train(config, folder / "run", torch.device("cpu")).path


@pytest.fixture
def run(made_elsewhere, tmp_path, monkeypatch) -> Path:
    """A copy of that run, which this user has not seen yet."""
    become_another_user(tmp_path / "cache", monkeypatch)
    return shutil.copytree(made_elsewhere, tmp_path / "run")


def edit(run: Path, section: str, **changes: object) -> None:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config[section] |= changes
    (run / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "checksum"}), "utf-8")


def refusal(run: Path) -> str:
    """Why the run's configuration is refused; none of its code, and no other code here, is executed."""
    with pytest.raises(UserError) as caught:
        _ = RunDirectory(run).config
    assert executed(run.parent, Path.cwd()) == []
    return str(caught.value)


def test_every_way_of_reading_a_run_of_others_is_refused(run, tmp_path):
    assert f"model file '{run}/model.py' is code that no experiment here has named" in refusal(run)
    wanted = load_experiment("quick", {"training.rounds": 1}).cell(CELL.replace("mine", "fedavg")).runs[0]
    for read in (lambda: load_run(run).model(), lambda: load_run(run).config, lambda: finished_run(run, wanted)):
        with pytest.raises(UserError):
            read()
    assert executed(tmp_path) == []


def test_trust_is_kept_for_the_content_of_the_code(run, tmp_path, monkeypatch):
    assert load_run(run, trust=True).config.method.recipe.title == "Mine"
    load_run(run).model()
    assert executed(tmp_path) == ["run/method.py", "run/model.py"]
    forget_trust(monkeypatch)
    moved = Path(shutil.move(run, tmp_path / "moved"))
    assert load_run(moved).config.method.recipe.title == "Mine"
    shutil.rmtree(tmp_path / "cache")
    forget_trust(monkeypatch)
    executed(tmp_path)
    assert "allow it with --trust" in refusal(moved)


def test_an_experiment_that_names_the_same_files_is_enough(run, tmp_path):
    cell = load_experiment(str(written(tmp_path / "same"))).cell(CELL)
    found = finished_run(run, cell.runs[0])
    assert found is not None
    assert found.config.identity == cell.runs[0].identity


@pytest.mark.parametrize("section", ["method", "model"])
def test_code_that_was_exchanged_with_its_hash_is_refused(section, run, tmp_path):
    """One of both files is known, the other is not."""
    load_experiment(str(written(tmp_path / "same"))).cells()
    executed(tmp_path)
    copy = run / f"{section}.py"
    copy.write_text(copy.read_text(encoding="utf-8") + "# exchanged\n", encoding="utf-8")
    assert "has changed: its hash differs" in refusal(run)
    edit(run, section, code=short_hash(copy.read_bytes()))
    assert f"{section} file '{copy}' is code that no experiment here has named" in refusal(run)


def test_code_at_other_places_is_never_executed(run, tmp_path, monkeypatch):
    """Neither files that the configuration names, nor modules and their packages in the current folder."""
    load_run(run, trust=True)
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    for file in (package / "__init__.py", package / "nets.py", tmp_path / "evil.py"):
        file.write_text(MODEL + METHOD, encoding="utf-8")
    evil = str(tmp_path / "evil.py")
    edit(run, "method", file=evil)
    edit(run, "model", file=evil)
    assert RunDirectory(run).config.method.file == run / "method.py"
    assert executed(tmp_path) == ["run/method.py"]
    for section in ("model", "method"):
        (run / f"{section}.py").rename(tmp_path / f"{section}.away")
        assert f"cannot read the {section} file '{run}/{section}.py'" in refusal(run)
        (tmp_path / f"{section}.away").rename(run / f"{section}.py")
    (run / "model.py").unlink()
    edit(run, "model", file=None, module="package.nets")
    assert "cannot read the model file" in refusal(run)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    for model in (f"{evil}:small", "package.nets:small", [evil], None):
        (run / "config.json").write_text(json.dumps({**config, "model": model}), encoding="utf-8")
        assert "(allowed: a mapping)" in refusal(run)


def test_a_cache_that_others_may_have_filled_is_not_believed(run, tmp_path, monkeypatch):
    load_run(run, trust=True)
    forget_trust(monkeypatch)
    known = tmp_path / "cache" / "fedflat" / "trusted-code"
    assert len(list(known.iterdir())) == 2
    known.chmod(0o777)
    assert "allow it with --trust" in refusal(run)
    known.chmod(0o700)
    known.rename(tmp_path / "real")
    known.symlink_to(tmp_path / "real")
    assert "allow it with --trust" in refusal(run)


def test_without_a_cache_trust_ends_with_the_process(run, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    become_another_user(tmp_path / "file" / "cache", monkeypatch)
    assert load_run(run, trust=True).config.method.recipe.title == "Mine"
    forget_trust(monkeypatch)
    executed(tmp_path)
    assert "allow it with --trust" in refusal(run)


def analyse(run: Path, cache: Path, *options: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return commands.fedflat("analyse", "sharpness", run, "--device", "cpu", *options, env=env)


def test_the_command_analyse(run, tmp_path):
    """The cell of the trainer is analysed without the option, with one seed or all; anybody else needs it once."""
    refused = analyse(run, tmp_path / "mine")
    assert refused.returncode == 2
    assert refused.stderr.startswith("fedflat: the model file ")
    assert len(refused.stderr.splitlines()) == 1
    assert executed(tmp_path) == []
    for options in (["--trust"], ["--set", "images=3"]):
        done = analyse(run, tmp_path / "mine", *options)
        assert done.returncode == 0, done
        assert executed(tmp_path) == ["run/method.py", "run/model.py"]


def test_the_trainer_needs_no_permission(made_elsewhere, tmp_path):
    run = shutil.copytree(made_elsewhere, tmp_path / "run")
    done = analyse(run, made_elsewhere.parent / "cache")
    assert done.returncode == 0, done
