"""Files of tensors that are written one by one."""

import safetensors.torch

from fedflat.bench.files.tensor_file import open_tensors, write_tensors
from tests.bench.engine.rounds_of_backends import bits
from tests.bench.engine.test_client_store import CPU, ODD


def test_tensor_files_are_safetensors(tmp_path):
    """The published library reads what is written tensor by tensor, in whatever order."""
    kinds = {name: (v.dtype, tuple(v.shape)) for name, v in ODD.items()}
    write_tensors(tmp_path / "file", kinds, reversed(ODD.items()), {"about": "this"})
    assert bits(safetensors.torch.load_file(tmp_path / "file")) == bits(ODD)
    with safetensors.safe_open(tmp_path / "file", framework="pt") as file:
        assert file.metadata().pop("about") == "this"
    with open_tensors(tmp_path / "file", "write it again") as file:
        assert bits({name: file.read(name, CPU) for name in file.names}) == bits(ODD)
