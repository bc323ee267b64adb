"""The set-up of a run on a device: data, partition, objective, federation."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedflat.bench.data.augmentation import OF_IMAGES, Augment, Context
from fedflat.bench.data.dataset import Batches, Dataset, DeviceData
from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.data.partitions.base import Indices
from fedflat.bench.data.root import data_root
from fedflat.bench.data.sources.base import Source
from fedflat.bench.data.tokens import TokenShape
from fedflat.bench.data.validation import hold_out
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import LocalWork
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.participation import active_clients, counted
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.run_config import RunConfig, not_in_keys
from fedflat.bench.experiments.sections.evaluation import OWN, VALIDATION
from fedflat.bench.experiments.sections.training import AMOUNTS
from fedflat.bench.input.content import ShortHash
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.base import Floats, Metric, confusion
from fedflat.bench.metrics.evaluation import evaluate_parts, names
from fedflat.bench.metrics.of_clients import accuracies_of_clients, label_shares, mean_of_clients
from fedflat.bench.models import build_model
from fedflat.bench.models.user_model import UserModel
from fedflat.bench.numerics.precision import Precision, prepare_precision
from fedflat.bench.numerics.streams import numpy_stream

EVALUATION_BATCH = {"cpu": 250, "cuda": 2000}
"""Samples per evaluation batch, by device: a CPU is not faster with more; LeNet's feature maps of 2,000 CIFAR images
take 1 GB."""

EVALUATION_PIXELS = {"cpu": 1 << 20, "cuda": 1 << 23}
"""Pixels per evaluation batch of images, by device. For a gradient, MobileNetV2 keeps 78 MB for each image of 224×224
pixels: 20 of them, or 167 on a GPU, take 1.6 GB, or 13 GB. Images of at most 64×64 pixels are not concerned."""

SCENE_PIXELS = 1 << 20
"""The same on all devices for segmentation, whose scores and features are as large as the images."""


@functools.lru_cache(maxsize=2)
def load_dataset(source: Source, root: Path) -> Dataset:
    """A data set, read once per process."""
    return source.load(root)


def model_hash(config: RunConfig, model: nn.Module) -> str | None:
    """A hash of the tensors of a user-defined model before its training; None for other models, which are fixed."""
    if not isinstance(config.model, UserModel):
        return None
    digest = ShortHash()
    for name, tensor in model.state_dict().items():
        digest.add(f"{name} {tensor.dtype} {list(tensor.shape)}")
        digest.add(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.text()


@dataclass(frozen=True)
class RunSetup:
    """Everything that training and analyses of a run need on a device.

    `drawn`: the indices of each client's training images; `split`: those of them that it trains on, without the
    `held_out` ones; None: no client holds out images. `validation`: the data set's own samples for validation, if it
    has any. `model_hash`: see the function.
    """

    config: RunConfig
    dataset: Dataset
    drawn: list[Indices]
    split: list[Indices]
    held_out: Indices | None
    train: DeviceData
    test: DeviceData
    validation: DeviceData | None
    objective: Objective
    federation: Federation
    model_hash: str | None

    @classmethod
    def build(
        cls,
        config: RunConfig,
        device: torch.device,
        split: list[Indices] | None = None,
        precision: Precision | None = None,
    ) -> "RunSetup":
        """Build the set-up; partition and initial model depend on seed and configuration only.

        `split`: the whole split of a finished run, so that its partition is not drawn again. `precision` replaces the
        configuration's, for example in analyses of a run in bf16.
        """
        dataset = load_dataset(config.dataset, data_root())
        drawn = split_of(config.partition, dataset, config.seed) if split is None else split
        split, held_out = trained_and_held_out(config, drawn)
        train, test = dataset.on(device)
        validation = dataset.validation_on(device)
        settings = config.training
        precision = precision or settings.precision or "fp32"
        prepare_precision(precision, device)
        model = build_model(config.model, dataset.image_shape, dataset.classes, config.seed)
        initial = model_hash(config, model)
        objective = Objective(model.to(device), precision, buffer_mode=config.model.buffer_mode)
        method = config.method.recipe.build(config.method.hyperparameters)
        batch_sampler = settings.local.sampler(split, config.seed)
        sizes = [len(indices) for indices in split]
        augment = _augment(config, dataset, train)
        federation = Federation(
            method, objective, train, batch_sampler, sizes, settings, config.seed, augment, settings.rounds
        )
        return cls(config, dataset, drawn, split, held_out, train, test, validation, objective, federation, initial)

    def changed_model(self, recorded: str | None) -> str | None:
        """The model in words if its initial weights do not have this hash; None if they have, or none was recorded."""
        own = self.config.model
        if not isinstance(own, UserModel) or recorded in (None, self.model_hash):
            return None
        return own.initial_weights

    @property
    def engine(self) -> EngineSettings:
        """The settings of the engine."""
        return self.config.engine

    def calibration_key(self) -> dict[str, Any]:
        """See `Trainable`. On a GPU, a method's tensors decide whether a cohort fits into its memory."""
        config, data = self.config, self.dataset
        components = {slot: component.name for slot, component in config.method.recipe.components.by_slot().items()}
        method: Any = components if self.objective.device.type == "cuda" else components["loss"]
        if config.method.code:
            method = {"code": config.method.code, "hyperparameters": config.method.hyperparameters}
        return {
            "model": config.model.model_dump(mode="json", exclude={"file", "module", "weights"}),
            "data": [*data.image_shape, data.classes, len(data.train)],
            **config.training.model_dump(include={*AMOUNTS, "drop_last", "work"}, exclude_none=True),
            "batch_size": config.training.batch_size,
            "participation": config.participation.model_dump(mode="json", exclude=not_in_keys(config.participation)),
            "clients": config.partition.clients,
            "method": method,
        }

    def active(self, state: FederationState) -> list[int]:
        """The participants of the next round."""
        return active_clients(self.config.participation, self.config.partition.clients, self.config.seed, state.round)

    def counted(self, state: FederationState) -> dict[str, float]:
        """Measurements of the next round that do not depend on its training."""
        config = self.config
        return counted(config.participation, config.partition.clients, config.seed, state.round)

    def work(self, state: FederationState) -> list[LocalWork]:
        """The local work of the next round's participants."""
        return self.federation.work(state, self.active(state))

    def evaluate(self, state: FederationState) -> dict[str, float]:
        """The `metrics` on the training images (`evaluation.training_images` of them), and on all test images.

        If there are test subsets, also the score of each of them.

        If clients hold out images, on the images that are trained instead of all training images, and on all held-out
        images instead of the test images. With `evaluation.validation: own`, on the data set's images for validation
        instead of the test images; without it on both, if the data set has them. If some training labels are wrong, the
        scores on the true ones have names that begin with `train_true`.
        """
        self.federation.evaluate_with(state)
        row = self.evaluate_model(self.federation.evaluated(state))
        for name, further in self.federation.method.server.also_evaluated(state.server).items():
            subset, scores = self.config.evaluation.subset, self._scores(further, self._judged())
            score = self.config.dataset.score
            row[f"{subset}_{score}_{name}"] = scores[score]
        return row

    def evaluate_model(self, w: Tensor) -> dict[str, float]:
        """As `evaluate`, for a model w `[P]`."""
        return {
            f"{subset}_{name}": score
            for subset, parts in self._subsets().items()
            for name, score in self._scores(w, parts).items()
        }

    def evaluate_clients(self, state: FederationState) -> Floats:
        """The accuracy in percent for each client `[N]`, as `evaluation.by_client` says; NaN without images of its own.

        `evaluate` must have evaluated the state before.
        """
        model = functools.partial(self.objective.logits, self.federation.evaluated(state))
        if self.config.evaluation.by_client == "expected":
            counts = [confusion(model(x), y) for part in self._judged().values() for x, y in part]
            return accuracies_of_clients(sum(counts[1:], counts[0]), self._shares)
        images, places = self._images_of_clients
        batches = self.batches(self.train, torch.from_numpy(images).to(self.objective.device))
        right = torch.cat([model(x).argmax(1) == y for x, y in batches])
        return 100 * mean_of_clients(right.cpu().numpy(), places)

    @functools.cached_property
    def _images_of_clients(self) -> tuple[Indices, list[Indices]]:
        """The sorted images that all clients hold out, or else train on, and the places of those of each client."""
        own = self.split
        if self.held_out is not None:  # no two clients share images then
            own = [np.setdiff1d(drawn, trained) for drawn, trained in zip(self.drawn, self.split, strict=True)]
        images = np.unique(np.concatenate(own))
        return images, [np.searchsorted(images, one) for one in own]

    def evaluated_columns(self) -> list[str]:
        """The names of the scores of `evaluate_model`, which a run has even if no model of it was evaluated."""
        score = self.config.dataset.score
        return [
            f"{subset}_{name}"
            for subset, parts in self._subsets().items()
            for name in names(self.metrics, list(parts), score)
        ]

    @functools.cached_property
    def metrics(self) -> Sequence[Metric]:
        """The metrics of each evaluation."""
        return self.config.evaluation.judged_by(label_maps=self.dataset.has_label_maps)

    @functools.cached_property
    def _shares(self) -> Floats:
        """How the training images of each client are divided over the classes `[N, C]`."""
        return label_shares(self.dataset.train.labels, self.split, self.dataset.classes)

    def _subsets(self) -> dict[str, Mapping[str, Batches]]:
        subsets: dict[str, Mapping[str, Batches]] = {"train": {"": self._trained()}}
        if self.dataset.true_labels is not None:
            subsets["train_true"] = {"": self._with_true_labels()}
        subsets[self.config.evaluation.subset] = self._judged()
        if self.validation is not None:
            subsets.setdefault(VALIDATION, {"": self.batches(self.validation)})
        return subsets

    def _scores(self, w: Tensor, parts: Mapping[str, Batches]) -> dict[str, float]:
        """The metrics by name, and the score of each test subset."""
        model = functools.partial(self.objective.logits, w)
        return evaluate_parts(model, parts, self.metrics, self._shares, self.config.dataset.score)

    def batches(self, data: DeviceData, index: Tensor | None = None) -> Batches:
        """All images, or those at `index` `[n]`, in batches for forward passes."""
        return Batches(data, evaluation_batch(data), index)

    def _trained(self) -> Batches:
        """Training images, evenly spaced in stored order, in batches."""
        device = self.objective.device
        of_clients = None if self.held_out is None else np.sort(np.concatenate(self.split))
        n = len(self.train) if of_clients is None else len(of_clients)
        share = self.config.evaluation.count(n)
        index = None if share == n else torch.arange(share, device=device) * n // share
        if of_clients is not None:
            indices = torch.from_numpy(of_clients).to(device)
            index = indices if index is None else indices[index]
        return self.batches(self.train, index)

    def _with_true_labels(self) -> Batches:
        """The same training images with their true labels."""
        trained = self._trained()
        labels = torch.from_numpy(self.dataset.true_labels).to(self.objective.device)
        return replace(trained, data=replace(trained.data, labels=labels))

    def _judged(self) -> dict[str, Batches]:
        """The test images in batches, by the name of their subset; or all images that clients hold out, or the data
        set's own ones for validation."""
        device = self.objective.device
        if self.config.evaluation.validation == OWN:
            assert self.validation is not None
            return {"": self.batches(self.validation)}
        if self.held_out is not None:
            return {"": self.batches(self.train, torch.from_numpy(self.held_out).to(device))}
        parts = self.dataset.test_parts
        if not parts:
            return {"": self.batches(self.test)}
        return {name: self.batches(self.test, torch.from_numpy(places).to(device)) for name, places in parts.items()}


def evaluation_batch(data: DeviceData) -> int:
    """Images per batch of forward passes."""
    segmented = data.maps is not None
    shape = data.images.shape[1:] if data.maps is None else (1, *data.maps.shape[1:])
    return images_per_batch(data.labels.device.type, shape, segmented=segmented)


def images_per_batch(device: str, shape: Sequence[int], *, segmented: bool = False) -> int:
    """Samples of this shape per batch of forward passes on a kind of device; `segmented`: their pixels have labels."""
    size = EVALUATION_BATCH[device]
    if len(shape) != 3:  # no images
        return size
    pixels = SCENE_PIXELS if segmented else EVALUATION_PIXELS[device]
    return min(size, max(1, pixels // math.prod(shape[1:])))


def split_of(partition: AnyPartition, dataset: Dataset, seed: int) -> list[Indices]:
    """The indices of each client's training images in a run with this seed."""
    return partition.split(dataset.train, numpy_stream(seed, "partition"))


def trained_and_held_out(config: RunConfig, drawn: list[Indices]) -> tuple[list[Indices], Indices | None]:
    """The indices that each client trains on, of those `drawn` for it, and the ones that all clients hold out."""
    share = config.evaluation.validation
    return hold_out(drawn, share, config.seed) if isinstance(share, float) else (drawn, None)


def check_augmentation(config: RunConfig, dataset: str, input_shape: Sequence[int]) -> None:
    """A `UserError` if inputs of this shape, of the data set with this name, cannot be augmented as the run wants."""
    for augmentation in config.training.augmentation or ():
        if isinstance(input_shape, TokenShape):
            raise UserError(
                f"augmentation {augmentation.name} does not suit token ids, as {dataset} has (allowed: null)"
            )
        if isinstance(augmentation, OF_IMAGES) and len(input_shape) != 3:
            raise UserError(
                f"augmentation {augmentation.name} needs images, (channels, height, width), but a sample of "
                f"{dataset} has the shape {input_shape} (allowed: mixup, or null)"
            )


def _augment(config: RunConfig, dataset: Dataset, train: DeviceData) -> Augment | None:
    if config.training.augmentation is None:
        return None
    check_augmentation(config, dataset.name, dataset.image_shape)
    black = (0 - train.shift) * train.factor
    return Augment(config.training.augmentation, Context(dataset.classes, dataset.image_shape, black))
