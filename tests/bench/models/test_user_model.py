"""User-defined models: found by file or module, known by content, stored with the run, mistakes in one line."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.training.current import changed_input
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.methods.test_user_file import SOURCE as METHOD
from tests.bench.training.small_runs import (
    InterruptedRunError,
    check_resume_of,
    contents,
    interrupted_after_three_rounds,
)
from tests.problems import train

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
SOURCE = f"""{HEAD}
from fedflat.bench.models.dropout import Dropout

def small_net(image_shape, classes):
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 9), nn.ReLU(), Dropout(0.1),
                         nn.Linear(9, classes))
"""
EXPERIMENT = """
name: mine
extends: quick
model: {file: nets/my_model.py, function: small_net}
training: {rounds: 6, local_epochs: 1, batch_size: 24, lr: 0.1}
engine: {checkpoint_seconds: 0}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an experiment, and the model file in a folder below."""
    return written(tmp_path / "own")


def written(folder: Path, source: str = SOURCE) -> Path:
    (folder / "nets").mkdir(parents=True, exist_ok=True)
    (folder / "nets" / "my_model.py").write_text(source, encoding="utf-8")
    (folder / "experiments.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return folder


def config(folder: Path, **changes: object) -> RunConfig:
    return load_experiment(str(folder / "experiments.yaml"), changes).cell(f"{SETTING}/fedavg").runs[0]


def test_it_is_built_and_trained(own, tmp_path):
    run = train(config(own, **{"training.rounds": 30}), tmp_path / "run", CPU)
    assert run.provenance["parameters"] == 64 * 9 + 9 + 90 + 10
    assert run.metrics()["test_accuracy"].iloc[-1] > 40


def test_all_ways_of_naming_it_have_one_identity(own, monkeypatch):
    """Relative files count from the experiment's folder; modules are found in the current folder and on the path."""
    before = config(own)
    experiment = own / "experiments.yaml"
    experiment.write_text(
        EXPERIMENT.replace("{file: nets/my_model.py, function: small_net}", "nets/my_model.py:small_net"),
        encoding="utf-8",
    )
    assert config(own).identity == before.identity
    shutil.copy(own / "nets" / "my_model.py", own / "nets" / "on_the_path.py")
    monkeypatch.syspath_prepend(own / "nets")
    monkeypatch.chdir(own)
    path_before = list(sys.path)
    for spelling in (
        "nets.my_model:small_net",
        "on_the_path:small_net",
        {"module": "nets.my_model", "function": "small_net"},
    ):
        run = config(own, model=spelling)
        assert run.identity == before.identity
        assert RunConfig.parse(run.model_dump(mode="json")) == run
    assert sys.path == path_before


def test_the_identity_is_that_of_the_content(own, tmp_path):
    before = config(own)
    elsewhere = Path(shutil.move(own, tmp_path / "elsewhere"))
    assert config(elsewhere).identity == before.identity
    assert before.model.label == f"small_net@{before.model.code}"
    assert config(written(own, SOURCE + "# a remark\n")).identity != before.identity
    assert config(own, **{"model.function": "other"}).identity != config(own).identity


LOADING = """
import torch
from torch import nn
import torchvision


def small_net(shape, classes):
    assert torchvision.models is not None
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, classes))
    model[1].load_state_dict(torch.load(FILE))
    model[1].requires_grad_(False)
    return model
"""
"""A model that reads a file, and imports torchvision, which does not load together with some builds of torch."""


def test_a_run_is_not_used_after_its_initial_weights_have_changed(own, tmp_path, monkeypatch):
    weights = tmp_path / "body.pt"
    torch.save({"weight": torch.ones(8, 64), "bias": torch.zeros(8)}, weights)
    run = config(written(own, LOADING.replace("FILE", repr(str(weights)))))
    done = train(run, tmp_path / "run", CPU)
    assert AnalysedRun(done, CPU).setup.model_hash == done.provenance["model_hash"]
    assert changed_input(run, done.provenance) is None

    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(run, tmp_path / "killed", CPU)

    torch.save({"weight": torch.ones(8, 64), "bias": torch.ones(8)}, weights)
    before = r"^'.*run' was trained before the initial weights of the model in '.*\.py' changed; --replace trains"
    with pytest.raises(UserError, match=before):
        train(run, tmp_path / "run", CPU)
    changed = r"^the initial weights of the model in '.*\.py' have changed since '.*"
    with pytest.raises(UserError, match=f"{changed}run' was trained"):
        _ = AnalysedRun(RunDirectory(tmp_path / "run"), CPU).setup
    with pytest.raises(UserError, match=f"{changed} was written; delete it"):
        train(run, tmp_path / "killed", CPU)


def test_the_seed_decides_its_weights(own):
    model = config(own).model
    first, again, other = (build_model(model, (1, 8, 8), 10, seed)[1].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_run_keeps_the_file_and_does_without_it(own, tmp_path):
    """Also a method's file next to it; both copies are what a moved run is read with."""
    (own / "my_method.py").write_text(METHOD, encoding="utf-8")
    (own / "experiments.yaml").write_text(
        EXPERIMENT + "methods: {mine: {file: my_method.py, hyperparameters: {rho: 0.1}}}\n", encoding="utf-8"
    )
    made = load_experiment(str(own / "experiments.yaml")).cell(f"{SETTING}/mine").runs[0]
    run = train(made, tmp_path / "run", CPU)
    assert (run.path / "model.py").read_text(encoding="utf-8") == SOURCE
    assert (run.path / "method.py").read_text(encoding="utf-8") == METHOD
    shutil.rmtree(own)
    again = RunDirectory(Path(shutil.move(run.path, tmp_path / "moved")))
    assert again.config.identity == again.identity == made.identity
    objective = RunSetup.build(again.config, CPU).objective
    assert objective.layout.total == len(again.final(CPU).w)


def test_a_module_of_a_package_keeps_its_relative_imports(tmp_path, monkeypatch):
    """Its run's copy is built with the package's other modules, as long as they are there."""
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text("WIDTH = 9\n", encoding="utf-8")
    (package / "nets.py").write_text("from .parts import WIDTH\n" + SOURCE.replace("9", "WIDTH"), encoding="utf-8")
    monkeypatch.chdir(written(tmp_path))
    run = train(config(tmp_path, model="my_package.nets:small_net"), tmp_path / "run", CPU)
    (package / "nets.py").write_text("an edit", encoding="utf-8")
    again = RunDirectory(run.path).config
    assert build_model(again.model, (1, 8, 8), 10, 0)[1].out_features == 9


def test_a_file_does_not_import_another_one_of_its_folder(own, monkeypatch):
    """Edits of the other one would change runs, but not their identity."""
    (own / "nets" / "parts_of_net.py").write_text("WIDTH = 9\n", encoding="utf-8")
    (own / "nets" / "my_model.py").write_text(
        SOURCE.replace("9", "WIDTH") + "from parts_of_net import WIDTH\n", encoding="utf-8"
    )
    monkeypatch.chdir(own / "nets")
    with pytest.raises(UserError, match=r"the model file '.*my_model.py' imports 'parts_of_net.py' in line \d+: edits"):
        build_model(config(own).model, (1, 8, 8), 10, 0)


def test_an_edited_file_is_another_configuration(own, tmp_path):
    out = tmp_path / "run"
    train(config(own), out, CPU)
    before = contents(out)
    (own / "nets" / "my_model.py").write_text(SOURCE.replace("9", "8"), encoding="utf-8")
    with pytest.raises(UserError) as error:
        train(config(own), out, CPU)
    message = f"'{own}/nets/my_model.py' has been edited; the run's copy is '{out}/model.py'"
    assert message in str(error.value)
    assert contents(out) == before


def test_a_file_that_is_edited_after_it_was_read_is_not_trained(own, tmp_path):
    made = config(own)
    (own / "nets" / "my_model.py").write_text(SOURCE + "# later\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"model file '.*my_model.py' was edited after the command had started"):
        train(made, tmp_path / "run", CPU)
    with pytest.raises(UserError, match=r"model file '.*my_model.py' has changed: its hash differs"):
        RunConfig.parse(made.model_dump(mode="json"))
    assert not (tmp_path / "run").exists()


def test_resume_is_bitwise(own, tmp_path, monkeypatch):
    """With dropout."""
    check_resume_of(config(own), CPU, tmp_path, monkeypatch)


NET = f"""{HEAD}class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)
    def forward(self, x):
        FORWARD
def small_net(image_shape, classes):
    return Net()
"""
BROKEN = {
    "no function": ("x = 1\n", "unknown function of the model file '{file}' 'small_net'"),
    "near": (HEAD + "def small_nett(s, c): pass\n", "'small_net'; did you mean 'small_nett'? (allowed: small_nett)"),
    "no module": (HEAD + "def small_net(s, c):\n    return 3\n", "'{file}' returns int, not a torch.nn.Module"),
    "syntax": ("def small_net(:\n", "the model file '{file}' fails in line 1: SyntaxError"),
    "import": ("import no_such_package\n", "fails in line 1: ModuleNotFoundError: No module named 'no_such_package'"),
    "relative": ("from .parts import x\n", "imports '.parts' in line 1: edits of that file would not be noticed"),
    "arguments": ("def small_net(s):\n    return 3\n", "fails: TypeError: small_net() takes 1 positional argument"),
    "raises": ("def small_net(s, c):\n    return 1 / 0\n", "fails in line 2: ZeroDivisionError"),
    "exit": ("def small_net(s, c):\n    raise SystemExit(3)\n", "fails in line 2: SystemExit: 3"),
    "buffers": (
        HEAD + "def small_net(s, c):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, c), nn.BatchNorm1d(c))\n",
        "the model has buffers (BatchNorm statistics?)",
    ),
    "dropout": (
        HEAD + "def small_net(s, c):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, c), nn.Dropout(0.5))\n",
        "draws random numbers in its forward pass, which is not repeatable; for dropout use fedflat.models.Dropout",
    ),
    "functional dropout": (
        NET.replace("FORWARD", "return F.dropout(self.fc(x.flatten(1)), training=self.training)"),
        "draws random numbers in its forward pass",
    ),
    "forward": (
        NET.replace("FORWARD", "return self.fc(x)"),
        "fails in line 9: RuntimeError: mat1 and mat2",
    ),
    "classes": (
        HEAD + "def small_net(s, c):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n",
        "the model turns two images into [2, 3], not into [2, 10] class scores",
    ),
    "no scores": (
        NET.replace("FORWARD", "return 1, 2"),
        "the model turns two images into tuple, not into [2, 10] class scores",
    ),
    "frozen": (
        HEAD + "def small_net(s, c):\n    net = nn.Sequential(nn.Flatten(), nn.Linear(64, c))\n"
        "    return net.requires_grad_(False)\n",
        "all parameters of the model are frozen (requires_grad=False), so there is nothing to train",
    ),
    "unused": (
        NET.replace("FORWARD", "return self.fc(x.flatten(1))").replace("self.fc =", "self.head ="
        " nn.ModuleList(nn.Linear(3, 3) for _ in range(3)); self.fc ="),
        "depend on these parameters of the model: head.0.weight, head.0.bias, head.1.weight, head.1.bias and 2 more",
    ),
    "detached": (
        NET.replace("FORWARD", "return self.fc(x.flatten(1)).detach()"),
        "the loss does not depend on these parameters of the model: fc.weight, fc.bias",
    ),
    "evaluation": (
        NET.replace("FORWARD", "s = self.fc(x.flatten(1)); return s if self.training else s[:, :3]"),
        "the model turns two images into [2, 3] in evaluation (model.eval()), not into [2, 10] class scores",
    ),
    "fails in evaluation": (
        NET.replace("FORWARD", "return self.fc(x.flatten(1)) if self.training else self.fc(x)"),
        "fails in line 9: RuntimeError: mat1 and mat2",
    ),
    "whole numbers": (
        NET.replace("FORWARD", "return self.fc(x.flatten(1)).long()"),
        "the model's class scores are torch.int64, not floating-point numbers",
    ),
    "no parameters": (HEAD + "def small_net(s, c):\n    return nn.Flatten()\n", "the model has no parameters"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_line_and_leaves_nothing(case, tmp_path):
    source, message = BROKEN[case]
    folder = written(tmp_path / "own", source)
    with pytest.raises(UserError) as error:
        train(config(folder), tmp_path / "run", CPU)
    assert message.format(file=folder / "nets" / "my_model.py") in str(error.value)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_a_model_that_fails_at_work_is_one_line(tmp_path):
    """On another batch size than it was tried with; the method's file, where there is one, is not blamed."""
    forward = "assert len(x) == 2, 'two'; return self.fc(x.flatten(1))"
    folder = written(tmp_path / "own", NET.replace("FORWARD", forward))
    (folder / "my_method.py").write_text(METHOD, encoding="utf-8")
    methods = {"mine": {"file": str(folder / "my_method.py"), "hyperparameters": {"rho": 0.1}}, "fedavg": {}}
    for label in methods:
        experiment = load_experiment(str(folder / "experiments.yaml"), {"methods": methods})
        with pytest.raises(UserError, match=r"^the model file '.*my_model.py' fails in line 9: AssertionError: two$"):
            train(experiment.cell(f"{SETTING}/{label}").runs[0], tmp_path / "new" / "cell" / "run", CPU)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no/such/file.py:net", "cannot read the model file 'no/such/file.py': No such file"),
        ("README.md/x:net", "the model file 'README.md/x' is no Python file (its name must end in .py)"),
        (
            "no_such_package.nets:net",
            "the model's module 'no_such_package.nets' is neither on Python's path nor in",
        ),
        ("bench.no_such_module:net", "the model's module 'bench.no_such_module' is neither on Python's path"),
        ("sys:exit", "the model's module 'sys' is not a Python file"),
        ("bench..models:net", "the model's module 'bench..models' "),
        (
            "nets.py:",
            "model 'nets.py:': a user-defined model must be path/to/file.py:function or package.module:function",
        ),
        (":net", "a user-defined model must be path/to/file.py:function"),
        ({"function": "net"}, "a user-defined model needs a file or a module"),
        ({"file": "README.md", "function": "net"}, "the model file 'README.md' is no Python file"),
        ({"file": "x.py"}, "model needs a name, or the file and function of a user-defined model"),
        ({"file": "x.py", "funktion": "net"}, "model needs a name, or the file and function"),
        ({"file": 3, "function": "net"}, "model: file = 3"),
        ({"module": 3, "function": "net"}, "model: module = 3"),
        ({"name": "lenet", "function": "net"}, "unknown key of lenet 'function'"),
        (
            {"module": "fedflat.bench.models.network", "function": "net", "buffers": "silo"},
            "model: buffers = 'silo' (allowed: refuse, average, local, or {local: [PATTERN, ...]})",
        ),
        (
            {"module": "fedflat.bench.models.network", "function": "net", "buffers": {"local": "average"}},
            "model: buffers = {'local': 'average'} (allowed: refuse, average, local, or {local: [PATTERN, ...]})",
        ),
    ],
    ids=str,
)
def test_mistakes_are_reported(model, message):
    with pytest.raises(UserError) as error:
        parse_model(model)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_copy_is_reported(own, tmp_path):
    run = train(config(own), tmp_path / "run", CPU)
    assert json.loads((run.path / "config.json").read_text(encoding="utf-8"))["model"]["code"] == config(own).model.code
    (run.path / "model.py").write_text(SOURCE + "# edited in place\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"config.json' is damaged \(.*model.py' has changed: its hash differs"):
        _ = RunDirectory(run.path).config
