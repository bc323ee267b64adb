"""Token ids are never normalised: in npz files, in runs, and in the data set of Shakespeare's plays."""

import bz2
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.shakespeare import TEXT
from fedflat.bench.data.tokens import TokenShape
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.training.run_setup import RunSetup

CPU = torch.device("cpu")
IDS = np.arange(60).reshape(12, 5) % 40
CLASSES = np.arange(12) % 3


def saved(folder: Path, ids=IDS) -> str:
    np.savez(folder / "ids.npz", x_train=ids, y_train=CLASSES, x_test=ids[:3], y_test=CLASSES[:3])
    return str(folder / "ids.npz")


def config(dataset, model="lstm", **changes) -> RunConfig:
    values = {
        "dataset": dataset,
        "model": model,
        "partition": {"name": "iid", "clients": 3},
        "participation": {"active": 2},
        "method": {"name": "fedavg", "hyperparameters": {}},
        "training": {"rounds": 1, "local_epochs": 1, "batch_size": 4, "lr": 0.1},
        "seed": 0,
    }
    return RunConfig.parse({**values, **changes})


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint16"])
def test_ids_of_an_npz_file_arrive_as_they_are(dtype, tmp_path):
    data = parse_source(saved(tmp_path, IDS.astype(dtype))).load(tmp_path)
    x, _ = data.on(CPU)[0].batch(torch.arange(12))
    assert x.dtype == torch.int64
    assert x.tolist() == IDS.tolist()
    assert (data.image_shape, data.image_shape.vocabulary) == ((5,), 40)


@pytest.mark.parametrize(("ids", "wrong"), [(IDS - 1, -1), (IDS + 2**31, 2**31 + 39)])
def test_ids_out_of_range_are_refused(ids, wrong, tmp_path):
    with pytest.raises(UserError, match=re.escape(f"x_train has the token id {wrong} (allowed: whole numbers from 0")):
        parse_source(saved(tmp_path, ids)).load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "mlp"}, "model mlp does not suit the inputs (allowed: one for token ids, as the model lstm)"),
        ({"model": {"name": "lstm", "vocabulary": 39}}, "vocabulary: null or at least 40"),
        (
            {"method": {"name": "fedrobust", "hyperparameters": {}}},
            "fedrobust moves inputs, but these are whole numbers (allowed: floating-point numbers)",
        ),
        (
            {
                "training": {
                    "rounds": 1,
                    "local_epochs": 1,
                    "batch_size": 4,
                    "lr": 0.1,
                    "augmentation": [{"name": "mixup"}],
                }
            },
            "augmentation mixup does not suit token ids",
        ),
    ],
)
def test_what_does_not_suit_ids_is_one_line(change, message, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path))
    with pytest.raises(UserError, match=re.escape(message)):
        RunSetup.build(config(saved(tmp_path), **change), CPU)


def test_an_lstm_needs_ids():
    with pytest.raises(
        UserError, match=re.escape("model lstm does not suit the inputs (allowed: one for no token ids)")
    ):
        build_model(parse_model("lstm"), (5,), 3, 0)


def test_a_users_model_gets_ids(tmp_path, monkeypatch):
    """Its function gets the shape, which knows the number of ids, and its trial run has whole numbers."""
    from fedflat.bench.code.trusted_code import trust

    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "class Bag(nn.Module):\n"
        "    def __init__(self, ids, classes):\n"
        "        super().__init__()\n"
        "        self.bag = nn.Embedding(ids, classes)\n"
        "    def forward(self, x):\n"
        "        return self.bag(x).mean(1)\n"
        "def build(shape, classes):\n"
        "    return Bag(shape.vocabulary, classes)\n",
        encoding="utf-8",
    )
    trust(file.read_bytes())
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path))
    setup = RunSetup.build(config(saved(tmp_path), f"{file}:build"), CPU)
    assert setup.objective.layout.shapes == ((40, 3),)


def test_a_shape_of_ids_is_a_tuple():
    shape = TokenShape((80,), 76)
    assert (shape, json.dumps(shape), str(shape)) == ((80,), "[80]", "(80,)")


def test_shakespeares_sequences_are_those_of_each_speaker(tmp_path):
    """Of the two longest parts: sequences and next characters are substrings of what the speaker says."""
    source = parse_source({"name": "shakespeare", "speakers": 2, "stride": 7, "length": 30})
    data = source.load(tmp_path)
    rows = [json.loads(line) for line in bz2.decompress(TEXT.read_bytes()).decode().splitlines()]
    letters = sorted({letter for *_, text in rows for letter in text})
    assert data.classes == len(letters) == 76
    longest = sorted((text for *_, text in rows), key=len)[-2:]
    texts = [text for *_, text in rows if text in longest]
    ends = [round(0.8 * len(text)) for text in texts]
    first = 0
    for text, end in zip(texts, ends, strict=True):
        starts = range(0, end - 30, 7)
        for k in (0, 1, len(starts) - 1):
            words = "".join(letters[i] for i in data.train.images[first + k])
            assert words + letters[data.train.labels[first + k]] == text[starts[k] : starts[k] + 31]
        assert set(data.train.groups[first : first + len(starts)]) == {texts.index(text)}
        first += len(starts)
    assert first == len(data.train)
    assert "".join(letters[i] for i in data.test.images[0]) == texts[0][ends[0] : ends[0] + 30]


def test_more_speakers_than_there_are_is_one_line(tmp_path):
    with pytest.raises(UserError, match=re.escape("speakers = 1000, but 865 have texts of sufficient length")):
        parse_source({"name": "shakespeare", "speakers": 1000}).load(tmp_path)


def test_the_facts_are_those_of_the_default():
    """Counted in the texts, without storing the sequences."""
    source = parse_source("shakespeare")
    parts = source._samples()
    assert (len(parts["train"]), len(parts["test"])) == (source.facts.train, source.facts.test)
    assert parts["train"].groups.max() + 1 == 865
