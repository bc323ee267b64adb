"""torchvision is imported whether or not its compiled operators load, and only where something needs it."""

import sys

import pytest
import torch

from fedflat.bench.host.torchvision_compat import import_torchvision
from tests import commands


@pytest.fixture
def python(tmp_path):
    """What another process prints, which has imported the project; its modules are not those of this process."""

    def printed(*lines: str) -> str:
        (file := tmp_path / "lines.py").write_text("\n".join(lines), encoding="utf-8")
        done = commands.run(["python", str(file)])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return printed


def test_models_and_transforms_are_there():
    package = import_torchvision()
    assert package is import_torchvision()
    assert package is sys.modules["torchvision"]
    from torchvision.transforms import CenterCrop

    assert package.models.resnet.BasicBlock.expansion == 1
    assert CenterCrop(2)(torch.ones(1, 4, 4)).shape == (1, 2, 2)


def test_an_intact_torchvision_is_left_alone(python):
    """A package whose import works is neither imported twice nor given stand-ins."""
    output = python(
        "import sys, types",
        "for name in ('torchvision', 'torchvision.models'): sys.modules[name] = types.ModuleType(name)",
        "from fedflat.bench.host import torchvision_compat",
        "assert torchvision_compat.import_torchvision() is sys.modules['torchvision']",
        "print(len(torchvision_compat._libraries))",
    )
    assert output == "0"


def test_other_failures_are_not_hidden(monkeypatch):
    def fails():
        raise RuntimeError("something else")

    monkeypatch.setattr("fedflat.bench.host.torchvision_compat._import", fails)
    with pytest.raises(RuntimeError, match="something else"):
        import_torchvision.__wrapped__()


def test_a_half_imported_package_is_dropped_and_imported_again(python):
    """As with a CPU build of torch: the first import fails, its modules go, the schemas are known to the second."""
    output = python(
        "import sys, types, torch",
        "from fedflat.bench.host import torchvision_compat as compat",
        "calls = []",
        "def fake():",
        "    calls.append('torchvision.half' in sys.modules)",
        "    sys.modules['torchvision.half'] = types.ModuleType('torchvision.half')",
        "    if len(calls) == 1:",
        "        raise RuntimeError('operator torchvision::nms does not exist')",
        "    return torch.ops.torchvision.nms.default.name()",
        "compat._import = fake",
        "print(compat.import_torchvision(), calls)",
    )
    assert output == "torchvision::nms [False, False]"


def test_importing_the_project_does_not_import_torchvision(python):
    assert (
        python("import sys, fedflat.cli.app, fedflat.bench.training.train", "print('torchvision' in sys.modules)")
        == "False"
    )
