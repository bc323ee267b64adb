"""Names of devices, checked without torch."""

import subprocess
import sys

import pytest

from fedflat.bench.host.device import device_name
from fedflat.bench.input.errors import UserError


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_names_of_devices(name):
    assert device_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:01", "cuda:x", "cuda:0\n", "meta"]
)
def test_other_names_are_refused(name):
    with pytest.raises(UserError) as caught:
        device_name(name)
    shown = name.replace("\n", "\\n")  # a message is one line
    assert str(caught.value) == f"unknown device '{shown}' (allowed: auto, cpu, cuda, cuda:0, cuda:1, ...)"


def test_torch_is_not_needed():
    code = (
        "import sys\nfrom fedflat.bench.host.device import device_name\n"
        "device_name('cpu')\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
