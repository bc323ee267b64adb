"""Registries find the named classes in the files of a package."""

from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.data.partitions.even import IID
from fedflat.bench.input.registry import OneOf, registered

FILE = """
from abc import abstractmethod
from typing import ClassVar, Literal
from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.data.partitions.even import IID  # imported, so not registered here

class Unnamed(Partition):
    pass

class {name}(Partition):
    name: Literal["{name}"] = "{name}"
    def _draw(self, train, stream):
        return []

class Abstract(Partition):
    name: Literal["abstract"] = "abstract"
"""


@pytest.fixture
def package(tmp_path, monkeypatch, request) -> str:
    """A package with two files and an inner package with one."""
    name = f"partitions_of_{request.node.name}"
    inner = tmp_path / name / "inner"
    inner.mkdir(parents=True)
    for file, cls in ((inner / "c.py", "first"), (inner.parent / "a.py", "third"), (inner.parent / "b.py", "second")):
        file.write_text(FILE.format(name=cls), encoding="utf-8")
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_named_classes_are_found_and_sorted(package):
    assert list(registered(Partition, package)) == ["first", "second", "third"]


def test_two_classes_of_one_name_are_refused(package, tmp_path):
    (tmp_path / package / "d.py").write_text(FILE.format(name="first"), encoding="utf-8")
    with pytest.raises(TypeError, match="first and first are both named 'first'"):
        registered(Partition, package)


def test_an_annotation_takes_registered_models_alone():
    class Run(BaseModel):
        partition: Annotated[Partition, OneOf(PARTITIONS.values(), discriminator="name")]

    run = Run.model_validate({"partition": {"name": "iid", "clients": 3}})
    assert run.partition == IID(clients=3)
    assert run.model_dump() == {"partition": {"name": "iid", "clients": 3}}
    with pytest.raises(ValidationError, match="union_tag_invalid"):
        Run.model_validate({"partition": {"name": "nothing", "clients": 3}})
