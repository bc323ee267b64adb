"""Every key of an experiment's file is on the page that describes it."""

import re

import pytest
from pydantic import BaseModel

from fedflat.bench.data.augmentation import AUGMENTATIONS
from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.sources import SOURCES
from fedflat.bench.engine.participation import Participation
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.schema import ExperimentFile, ExperimentPart, Grid, MethodEntry, PartitionOverrides
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.models import MODELS
from fedflat.bench.models.user_model import UserModel
from fedflat.bench.tuning.protocol import schema as protocols
from tests.documents import PAGES

KEYS = PAGES["docs/experiments/keys.md"].text
OF_PROTOCOLS = [value for value in vars(protocols).values() if isinstance(value, type) and issubclass(value, BaseModel)]
FILLED_IN = {"hash", "code", "path_hash"}
"""Keys of a run's configuration that FedFlat adds; users do not give them."""


def section(heading: str) -> str:
    """The text below a heading of keys.md, up to the next heading of the same level or a higher one."""
    level = heading.count("#")
    text = KEYS.partition(f"\n{heading}\n")[2]
    assert text, f"no heading {heading}"
    return re.split(rf"^#{{1,{level}}} ", text, flags=re.MULTILINE)[0]


def page(name: str) -> str:
    return PAGES[f"docs/{name}.md"].text


DOCUMENTED: list[tuple[type[BaseModel], str]] = [
    (ExperimentFile, section("## Keys").partition("\n### ")[0]),
    (Grid, section("## Keys").partition("\n### ")[0]),
    (Participation, section("### grid.participation")),
    (Training, section("### training")),
    (Evaluation, section("### evaluation")),
    (MethodEntry, section("### methods")),
    (PartitionOverrides, section("### methods")),
    (ExperimentPart, section("### parts")),
    (EngineSettings, page("running")),
    *((model, page("tuning")) for model in OF_PROTOCOLS),
    *((source, page("experiments/data_sets")) for source in SOURCES.values()),
    *((partition, page("experiments/partitions")) for partition in PARTITIONS.values()),
    *((model, page("experiments/models")) for model in [*MODELS.values(), UserModel]),
    *((augmentation, page("experiments/augmentation")) for augmentation in AUGMENTATIONS.values()),
]


@pytest.mark.parametrize(("model", "text"), DOCUMENTED, ids=[model.__name__ for model, _ in DOCUMENTED])
def test_every_key_is_documented(model: type[BaseModel], text: str):
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    keys = [field.alias or name for name, field in model.model_fields.items()]
    missing = [key for key in keys if key not in FILLED_IN and not re.search(rf"\b{key}\b", code)]
    assert not missing, f"keys of {model.__name__} that the page does not name"
