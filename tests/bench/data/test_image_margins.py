"""Images that are stored with a margin: models see their centres, augmentations the whole images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedflat.analysis.planning.run_cost import gradient_of, size_of_whole_images
from fedflat.bench.data.centre import centre
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.image_files.decoding import decode
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.data.image_copies import entry, load

CPU = torch.device("cpu")
Roots = Callable[[str], Path]
STORED, SEEN = 16, 10
WINDOW = {"name": "random_resized_crop", "size": SEEN, "least_area": 0.999, "most_ratio": 1}


def config(root: Path, augmentation: object, name: str = "officehome") -> RunConfig:
    return RunConfig.parse(
        {
            "dataset": entry(name, root, size=STORED, crop=SEEN),
            "model": {"name": "mlp", "hidden": [4]},
            "partition": {"name": "by_group", "clients": 3},
            "participation": {"sampling": "full"},
            "method": "fedavg",
            "training": {
                "rounds": 1, "local_epochs": 1, "batch_size": 32, "lr": 0.01, "augmentation": augmentation
            },
            "seed": 0,
        }
    )  # fmt: skip


def trained_inputs(setup: RunSetup) -> tuple[torch.Tensor, torch.Tensor]:
    """The input of a client's first local step, and the stored images from which it was made."""
    work = setup.work(setup.federation.start(setup.objective.initial()))[0]
    local, index = setup.federation.local, work.batches[0]
    x, y = local.batch(index)
    if local.augment is not None:
        drawn = work.host_batches(local.augment, "augmentation")["draws"]
        x, _ = local.augment(x, y, {name: draw[: len(index)] for name, draw in drawn.items()})
    return x, local.data.whole_batch(index)[0]


@pytest.mark.parametrize("name", ["officehome", "landmarks_user_160k"])
def test_models_are_built_for_the_centre_and_tested_on_it(name, image_roots: Roots, monkeypatch):
    root = image_roots(name)
    monkeypatch.setenv("FEDFLAT_DATA", str(root))
    run = config(root, None, name)
    setup = RunSetup.build(run, CPU)
    whole = load(name, root, size=STORED)
    assert run.dataset.form(Path("nowhere"))[0] == (3, SEEN, SEEN)
    assert setup.dataset.image_shape == (3, SEEN, SEEN)
    assert next(iter(setup.objective.parameters)).shape == (4, 3 * SEEN * SEEN)
    for seen, stored in zip((setup.train, setup.test), whole.on(CPU), strict=True):
        every = torch.arange(len(stored))
        images = stored.batch(every)[0]
        assert torch.equal(seen.batch(every)[0], images[..., 3:13, 3:13])
        assert torch.equal(torch.cat([x for x, _ in seen.batches(50)]), images[..., 3:13, 3:13])
    assert setup.dataset.train.images.filename == whole.train.images.filename, "decoded once, whatever models see"
    assert np.isfinite(setup.evaluate(setup.federation.start(setup.objective.initial()))["test_loss"])


@pytest.mark.parametrize(
    ("augmentation", "expected"),
    [
        (None, lambda stored: centre(stored, SEEN)),
        ({"name": "flip", "probability": 1}, lambda stored: centre(stored, SEEN).flip(3)),
        # Windows of nearly the whole image: those of the centre alone would be its pixels.
        (WINDOW, lambda stored: torch.nn.functional.interpolate(stored, (SEEN, SEEN), mode="bilinear")),
    ],
    ids=["none", "flip", "windows"],
)
def test_augmentations_get_whole_images_and_give_inputs_of_the_right_size(
    augmentation, expected, image_roots: Roots, monkeypatch
):
    root = image_roots("officehome")
    monkeypatch.setenv("FEDFLAT_DATA", str(root))
    setup = RunSetup.build(config(root, augmentation), CPU)
    inputs, stored = trained_inputs(setup)
    assert stored.shape[1:] == (3, STORED, STORED)
    assert inputs.shape[1:] == setup.federation.local.input_shape == (3, SEEN, SEEN)
    assert torch.allclose(inputs, expected(stored), atol=1e-5)


@pytest.mark.parametrize(
    ("augmentation", "trained"),
    [(None, SEEN), ("flip", SEEN), (WINDOW, SEEN), ("random_resized_crop", SEEN), ({**WINDOW, "size": 8}, 8)],
    ids=str,
)
def test_costs_are_those_of_the_images_that_models_see(augmentation, trained, image_roots: Roots):
    """Published numbers of images are enough: no file is read."""
    run = config(image_roots("officehome"), augmentation)
    assert gradient_of(run).shape == (3, trained, trained)
    assert size_of_whole_images(run) == pytest.approx((SEEN / trained) ** 2)


def test_a_margin_is_that_of_the_released_code(tmp_path):
    """Resize(256) and CenterCrop(224) of FedLESAM's code, on a photograph-like picture of another shape."""
    side = np.linspace(0, 6, 700)
    waves = 127 * (1 + np.sin(side[:500, None, None] * np.array([1.0, 2.0, 3.0]) + side[None, :, None]))
    Image.fromarray(waves.astype(np.uint8)).save(tmp_path / "waves.png")
    ours = centre(torch.from_numpy(decode(tmp_path / "waves.png", 256).copy()), 224)
    transforms = import_torchvision().transforms
    theirs = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()])
    with Image.open(tmp_path / "waves.png") as image:
        difference = (theirs(image).int() - ours.int()).abs()
    assert int(difference.max()) <= 3  # its longer side is rounded down to whole pixels before the centre is cut out
    assert float(difference.float().mean()) < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 64, "crop": 65}, r"^dataset officehome: crop = 65 \(allowed: at most size, 64\)"),
        ({"name": "image_folder", "root": ".", "crop": 64}, r"^dataset image_folder: crop = 64 \(allowed: null, or a"),
    ],
)
def test_a_crop_must_fit(options, message):
    with pytest.raises(UserError, match=message):
        parse_source({"name": "officehome", **({} if "name" in options else {"test_domain": "art"}), **options})


def test_centres_of_odd_margins_and_small_images():
    image = torch.arange(25).view(1, 5, 5)
    assert torch.equal(centre(image, 2), image[:, 1:3, 1:3])
    assert torch.equal(centre(image, 9), image)
    assert centre(image, None) is image
