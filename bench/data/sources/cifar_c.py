"""CIFAR-10-C and CIFAR-100-C (Hendrycks & Dietterich 2019): clean training images, corrupted test images."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.data.cache import in_chunks
from fedflat.bench.data.dataset import Dataset, Samples, Subset
from fedflat.bench.data.origin import File, Origin
from fedflat.bench.data.sources.base import Facts, Published
from fedflat.bench.data.sources.cifar import SHAPE, Cifar, Cifar10, Cifar100, Normalisation
from fedflat.bench.input.errors import UserError

Corruption = Literal[
    "brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost", "gaussian_blur", "gaussian_noise",
    "glass_blur", "impulse_noise", "jpeg_compression", "motion_blur", "pixelate", "saturate", "shot_noise", "snow",
    "spatter", "speckle_noise", "zoom_blur",
]  # fmt: skip
CORRUPTIONS: tuple[str, ...] = get_args(Corruption)
SEVERITIES = 5


def _origin(folder: str, record: int, archive_md5: str, labels_md5: str, md5s: dict[str, str]) -> Origin:
    return Origin(
        f"https://zenodo.org/records/{record}",
        "CC BY 4.0",
        (
            *(File(f"{folder}/{corruption}.npy", md5) for corruption, md5 in md5s.items()),
            File(f"{folder}/labels.npy", labels_md5),
        ),
        File(f"{folder}.tar", archive_md5, f"https://zenodo.org/records/{record}/files/{folder}.tar?download=1"),
    )


class CifarC(Published):
    """The common base class. A file has the test images with one corruption, at five severities one after another."""

    clean: ClassVar[type[Cifar]]

    @property
    def subsets(self) -> tuple[Subset, ...]:
        """The test images only: the training images are those of the clean data set."""
        return ("test",)

    corruption: Corruption = Field(description="name of the corruption")
    severity: int = Field(examples=[3], ge=1, le=SEVERITIES, description="severity from 1 to 5")
    normalisation: Normalisation = Field(default="fl_simulator", description="as for the clean data set")

    @property
    def label(self) -> str:
        """For example cifar10_c-fog-5."""
        return f"{self.name}-{self.corruption}-{self.severity}"

    def load(self, root: Path) -> Dataset:
        """The clean training images and the corrupted test images, with the same normalisation."""
        clean = self.clean.parse({"normalisation": self.normalisation})
        return replace(clean.dataset(clean.samples("train", root), self.samples("test", root)), name=self.label)

    @property
    def options(self) -> dict[str, object]:
        """Corruption and severity."""
        return {"corruption": self.corruption, "severity": self.severity}

    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """The images of one severity."""
        images, labels = (
            self._block(self.origin.verify(self.name, root, member))
            for wanted in (self.corruption, "labels")
            for member in self.origin.members
            if Path(member.path).stem == wanted
        )
        if len(images) != len(labels):
            raise UserError(f"data set {self.name}: {len(images)} images, but {len(labels)} labels")
        yield from in_chunks(Samples(images.transpose(0, 3, 1, 2), labels.astype(np.int64)))

    def _block(self, file: Path) -> NDArray[np.uint8]:
        try:
            everything: NDArray[np.uint8] = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise UserError(f"'{file}' is not an array of numbers: {error}") from None
        size, rest = divmod(len(everything), SEVERITIES)
        if rest:
            raise UserError(
                f"'{file}' holds {len(everything)} entries, which is not a multiple of {SEVERITIES} severities"
            )
        return everything[(self.severity - 1) * size : self.severity * size]

    @classmethod
    def variants(cls) -> list[Published]:
        """All corruptions at all severities."""
        return [
            cls.parse({"corruption": corruption, "severity": severity})
            for corruption in CORRUPTIONS
            for severity in range(1, SEVERITIES + 1)
        ]


class Cifar10C(CifarC):
    """CIFAR-10-C: CIFAR-10's test images under 19 corruptions at 5 severities."""

    name: Literal["cifar10_c"] = "cifar10_c"

    clean: ClassVar[type[Cifar]] = Cifar10
    needs: ClassVar[tuple[type[Published], ...]] = (Cifar10,)
    facts: ClassVar[Facts] = Facts(50_000, 10_000, 10, SHAPE)
    origin: ClassVar[Origin] = _origin(
        "CIFAR-10-C",
        2535967,
        "56bf5dcef84df0e2308c6dcbcbbd8499",
        "c439b113295ed5254878798ffe28fd54",
        {
            "brightness": "0a81ef75e0b523c3383219c330a85d48",
            "contrast": "3c8262171c51307f916c30a3308235a8",
            "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
            "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
            "fog": "7b397314b5670f825465fbcd1f6e9ccd",
            "frost": "31f6ab3bce1d9934abfb0cc13656f141",
            "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
            "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
            "glass_blur": "7361fb4019269e02dbf6925f083e8629",
            "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
            "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
            "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
            "pixelate": "0f14f7e2db14288304e1de10df16832f",
            "saturate": "1cfae0964219c5102abbb883e538cc56",
            "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
            "snow": "bb238de8555123da9c282dea23bd6e55",
            "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
            "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
            "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
        },
    )


class Cifar100C(CifarC):
    """CIFAR-100-C: CIFAR-100's test images under 19 corruptions at 5 severities."""

    name: Literal["cifar100_c"] = "cifar100_c"

    clean: ClassVar[type[Cifar]] = Cifar100
    needs: ClassVar[tuple[type[Published], ...]] = (Cifar100,)
    facts: ClassVar[Facts] = Facts(50_000, 10_000, 100, SHAPE)
    origin: ClassVar[Origin] = _origin(
        "CIFAR-100-C",
        3555552,
        "11f0ed0f1191edbf9fa23466ae6021d3",
        "bb4026e9ce52996b95f439544568cdb2",
        {
            "brightness": "f22d7195aecd6abb541e27fca230c171",
            "contrast": "322bb385f1d05154ee197ca16535f71e",
            "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
            "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
            "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
            "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
            "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
            "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
            "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
            "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
            "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
            "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
            "pixelate": "96c00c60f144539e14cffb02ddbd0640",
            "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
            "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
            "snow": "0237be164583af146b7b144e73b43465",
            "spatter": "12ccf41d62564d36e1f6a6ada5022728",
            "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
            "zoom_blur": "0204613400c034a81c4830d5df81cb82",
        },
    )
