"""Starts from trained weights, and frozen parts: what is loaded, what stays, what is trained and sent."""

import hashlib
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedflat import load_model, simulate
from fedflat.bench.engine.objective import Objective
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, check_model, parse_model
from fedflat.bench.models.architectures.vit import POSITIONS, ViTB32Choice
from fedflat.bench.models.frozen_parts import freeze
from fedflat.bench.models.weights import PublishedFile, load_weights, read_weights
from tests.problems import train

MOBILE = "mobilenet_v2_gn"
HEAD = {"classifier.1.weight", "classifier.1.bias"}


def built(options: dict[str, object] | None = None, classes: int = 4, seed: int = 0) -> nn.Module:
    return build_model(parse_model({"name": MOBILE, **(options or {})}), (3, 32, 32), classes, seed)


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return built(seed=7)


@pytest.fixture(scope="module")
def file(trained, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "trained.pth"
    torch.save(trained.state_dict(), path)
    return path


def same(one: nn.Module, other: nn.Module) -> set[str]:
    """The names of equal tensors."""
    theirs = other.state_dict()
    return {name for name, value in one.state_dict().items() if torch.equal(value, theirs[name])}


def test_a_model_starts_from_the_weights_of_a_file(trained, file, tmp_path):
    assert same(built({"weights": str(file)}), trained) == set(trained.state_dict())
    save_file(trained.state_dict(), tmp_path / "same.safetensors")
    assert same(built({"weights": str(tmp_path / "same.safetensors")}), trained) == set(trained.state_dict())


def test_the_final_model_of_a_run_is_written_as_weights(tmp_path, monkeypatch):
    """The message about a run's own file names code that writes weights: that code is executed here."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    x, y = np.random.default_rng(0).random((8, 3, 32, 32), dtype=np.float32), np.arange(8) % 4
    np.savez(tmp_path / "images.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    config = {
        "dataset": str(tmp_path / "images.npz"),
        "model": MOBILE,
        "partition": {"name": "iid", "clients": 2},
        "participation": {"sampling": "full"},
        "method": "fedavg",
        "training": {"rounds": 1, "local_steps": 1, "batch_size": 4, "lr": 0.01},
        "evaluation": {"snapshot_every": 1},
        "engine": {"backend": "loop"},
        "seed": 0,
    }
    run = train(RunConfig.parse(config), tmp_path / "run", torch.device("cpu"))
    with pytest.raises(UserError, match=r"final.safetensors' is the final model of a run; write the weights") as error:
        read_weights(run.path / "final.safetensors")
    [snapshot] = (run.path / "snapshots").iterdir()
    with pytest.raises(UserError, match=r"is a state or local models of a run; .*load_model\('RUN'\)"):
        read_weights(snapshot)
    monkeypatch.chdir(tmp_path)
    exec(str(error.value).partition("Python code: ")[2])
    own = built({"weights": "weights.pth"})
    assert same(own, load_model(run.path)) == set(own.state_dict())
    assert same(own, built(seed=0)) != set(own.state_dict()), "trained"


def test_the_last_layer_is_new_for_another_number_of_classes(trained, file):
    own = built({"weights": str(file)}, classes=5)
    theirs = trained.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in own.state_dict().items() if name not in HEAD)
    fresh = built(classes=5)
    assert same(own, fresh) >= HEAD, "as the seed draws it"


def test_a_new_part_is_not_frozen(file):
    """It would stay random."""
    choice = parse_model({"name": MOBILE, "weights": str(file), "frozen": ["features", "classifier"]})
    for attempt in (check_model, lambda *given: build_model(*given, seed=0)):
        with pytest.raises(
            UserError, match=r"have nothing that fits classifier\.1\.weight, classifier\.1\.bias, which"
        ):
            attempt(choice, (3, 32, 32), 5)


def test_what_stays_random_is_logged(file, caplog):
    with caplog.at_level("INFO", "fedflat.weights"):
        built({"weights": str(file)}, classes=5)
    assert caplog.messages == [f"{MOBILE} starts from '{file}'; random: classifier.1.weight, classifier.1.bias"]


def test_weights_may_lack_new_parts_and_be_nested(trained, tmp_path):
    parts = {"features": {n.removeprefix("features."): v for n, v in trained.state_dict().items() if n not in HEAD}}
    torch.save(parts, tmp_path / "parts.pth")
    own = built({"weights": str(tmp_path / "parts.pth")})
    assert same(own, trained) >= set(trained.state_dict()) - HEAD


def test_the_identity_depends_on_the_content_and_not_on_the_path(file, tmp_path):
    copy, other = tmp_path / "copy.pth", tmp_path / "other.pth"
    copy.write_bytes(file.read_bytes())
    torch.save({"a": torch.zeros(1)}, other)
    hashes = [parse_model({"name": MOBILE, "weights": str(path)}).weights.hash for path in (file, copy, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    again = parse_model(parse_model({"name": MOBILE, "weights": str(copy)}).model_dump(mode="json"))
    assert again.label == f"{MOBILE}(weights=copy@{hashes[0][:8]})"
    copy.write_bytes(b"edited")
    with pytest.raises(UserError, match="has changed: its hash differs"):
        build_model(again, (3, 32, 32), 4, 0)


class Harmful:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


def test_no_pickle_is_executed(tmp_path):
    torch.save({"a": Harmful(tmp_path / "executed")}, tmp_path / "harmful.pth")
    with pytest.raises(UserError, match="contains Python objects, which are not executed"):
        read_weights(tmp_path / "harmful.pth")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.pth", b"PK\x03\x04 and then nothing", "is damaged, or is not a weights file"),
        ("text.pth", b"hello", "is damaged, or is not a weights file"),
        ("page.pth", b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "is damaged, or is not a weights file"),
        ("experiment.yaml", b"name: quick\nextends: bench1d\n", "is damaged, or is not a weights file"),
        ("empty.pth", b"", "is damaged, or is not a weights file"),
        ("text.safetensors", b"hello, this is text", "is damaged, or is not a weights file"),
    ],
)
def test_files_that_hold_no_weights(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_weights(tmp_path / name)


def test_a_file_with_other_things_than_tensors(tmp_path):
    torch.save({"epoch": 3, "names": ["a"]}, tmp_path / "x.pth")
    with pytest.raises(UserError, match="contains no tensors by name"):
        read_weights(tmp_path / "x.pth")


def test_weights_of_another_model_are_refused_in_one_line(trained):
    weights = dict(trained.state_dict())
    weights["features.0.0.weight"] = torch.zeros(3, 3)
    weights["extra"] = weights.pop("features.0.1.bias")
    with pytest.raises(UserError) as error:
        load_weights(built(), weights, ["classifier.1"], "these weights")
    assert str(error.value) == (
        "these weights are of another model: missing tensors: features.0.1.bias; tensors of other shapes: "
        "features.0.0.weight [3, 3] instead of [32, 3, 3, 3]; unexpected tensors: extra"
    )


@pytest.mark.parametrize("prefix", ["module.", "state_dict.", "state_dict.module."])
def test_a_prefix_of_all_names_is_named(prefix, trained, tmp_path):
    """As `DistributedDataParallel` and checkpoints write them; the last layer may be new, so it need not be there."""
    weights = {f"{prefix.removeprefix('state_dict.')}{name}": tensor for name, tensor in trained.state_dict().items()}
    torch.save({"state_dict": weights, "epoch": 3} if "state_dict" in prefix else weights, tmp_path / "x.pth")
    with pytest.raises(UserError) as error:
        load_weights(built(), read_weights(tmp_path / "x.pth"), ["classifier.1"], "these weights")
    assert str(error.value) == (
        f"these weights have the prefix '{prefix}' before the names of the model's tensors (allowed: a file with these "
        "tensors alone, named without the prefix)"
    )


WRONG = [
    ({"weights": "imagenet"}, "there are no published weights of mobilenet_v2_gn (allowed: vit_b_32; or the path"),
    ({"weights": 3}, "weights = 3 (allowed: imagenet, the path of a file, or null)"),
    ({"weights": "nowhere.pth"}, "cannot read the weights file 'nowhere.pth'"),
    ({"weights": {"fil": "x"}}, "unknown key of weights file 'fil'; did you mean 'file'?"),
    ({"frozen": ["feature"]}, "unknown part of the model in frozen 'feature'; did you mean 'features'?"),
    ({"frozen": ["features", "classifier"]}, "frozen has all parts of the model"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options(options, message):
    with pytest.raises(UserError) as error:
        built(options)
    assert message in str(error.value)


# --- Frozen parts


def small() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    stream = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 3, generator=stream), torch.arange(8) % 2) for _ in range(3)]


def test_frozen_parts_are_neither_trained_nor_sent():
    model = small()
    freeze(model, ["0"])
    result = simulate(
        "fedsam",
        hyperparameters={"rho": 0.1},
        model=model,
        clients=clients(),
        rounds=2,
        participation=2,
        local_steps=2,
        lr=0.1,
    )
    before, after = model.state_dict(), result.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in ("0.weight", "0.bias"))
    assert not torch.equal(before["2.weight"], after["2.weight"])
    assert {len(w) for w in result.global_params} == {12}, "the parameters of the last layer"


def test_a_frozen_model_is_the_rest_on_the_frozen_features():
    """Training the last layer only equals logistic regression on the features that the frozen part computes."""
    model = small()
    freeze(model, ["0"])
    head = deepcopy(model[2])
    with torch.no_grad():
        features = [(torch.tanh(model[0](x)), y) for x, y in clients()]
    options = {"rounds": 3, "participation": 2, "local_steps": 3, "lr": 0.1}
    one = simulate("scaffold", model=model, clients=clients(), **options).global_params[-1]
    other = simulate("scaffold", model=head, clients=features, **options).global_params[-1]
    torch.testing.assert_close(one, other)


def test_batched_gradients_leave_frozen_parts_out():
    objective = Objective(small())
    model = small()
    freeze(model, ["0"])
    frozen = Objective(model)
    x, y = clients()[0]
    g, frozen_g = objective.gradient(objective.initial(), x, y)[0], frozen.gradient(frozen.initial(), x, y)[0]
    torch.testing.assert_close(g[-12:], frozen_g)
    assert objective.evaluate(objective.initial(), [(x, y)]) == frozen.evaluate(frozen.initial(), [(x, y)])


# --- Published weights


def offered(store: tuple[Path, str], content: bytes, digits: str | None = None) -> PublishedFile:
    folder, address = store
    name = f"net-{digits or hashlib.sha256(content).hexdigest()[:8]}.pth"
    (folder / name).write_bytes(content)
    return PublishedFile("net", f"{address}/{name}")


def test_published_weights_are_downloaded_by_command_only_and_verified(store, tmp_path):
    weights, root = offered(store, b"weights"), tmp_path / "data"
    with pytest.raises(UserError, match="is missing; run 'fedflat weights download net', or save http://127"):
        weights.provide(root)
    assert not root.exists()
    file = weights.download(root)
    assert file.read_bytes() == b"weights"
    assert weights.provide(root) == weights.download(root) == file
    assert [path.name for path in file.parent.iterdir()] == [weights.name]
    file.write_bytes(b"Weights")
    with pytest.raises(UserError, match="is corrupt"):
        weights.provide(root)
    assert weights.download(root).read_bytes() == b"weights", "a corrupt file is replaced"


@pytest.mark.parametrize("missing", [False, True])
def test_a_failed_download_leaves_nothing(missing, store, tmp_path):
    weights, root = offered(store, b"other content", "01234567"), tmp_path / "data"
    if missing:
        next(store[0].iterdir()).unlink()
    with pytest.raises(UserError, match=r"cannot download .*; download it elsewhere and save it as"):
        weights.download(root)
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_position_embeddings_are_interpolated():
    """A ramp over the patches of one row stays a ramp; the class token keeps its embedding."""
    side, width = 4, 2
    grid = torch.arange(side, dtype=torch.float32).expand(side, side)
    embedding = torch.cat([torch.full((1, 1, width), 9.0), grid.reshape(1, -1, 1).expand(1, side**2, width)], dim=1)
    choice = ViTB32Choice()
    fitted = choice.fitted({POSITIONS: embedding}, (3, 64, 64))[POSITIONS]
    assert fitted.shape == (1, 5, width)
    assert torch.equal(fitted[:, 0], embedding[:, 0])
    first, second = fitted[0, 1:].reshape(2, 2, width).unbind(1)
    assert (first < second).all()
    same_size = choice.fitted({POSITIONS: embedding}, (3, 128, 128))[POSITIONS]
    assert torch.equal(same_size, embedding)


@pytest.mark.parametrize("shape", [(3,), (1, 1, 768), (1, 0, 768), (1, 5, 0), (5, 768), (1, 5, 2, 2)])
def test_position_embeddings_of_another_model_are_reported_by_their_shape(shape):
    module = nn.Module()
    module.encoder = nn.Module()
    module.encoder.pos_embedding = nn.Parameter(torch.zeros(1, 50, 768))
    fitted = ViTB32Choice().fitted({POSITIONS: torch.zeros(shape)}, (3, 64, 64))
    with pytest.raises(UserError, match=rf"tensors of other shapes: {POSITIONS} \[.*\] instead of \[1, 50, 768\]"):
        load_weights(module, fitted, ["heads.head"], "these weights")
