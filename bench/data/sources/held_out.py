"""The base of data sets of several domains, one of which is held out as the test set."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from fedflat.bench.data.sources.base import Source
from fedflat.bench.input.errors import unknown
from fedflat.bench.input.frozen import collected


class HeldOutDomain(Source):
    """The common base class. The images of one domain are the test set; those of the others are trained.

    The groups of the images are the numbers of their domains.
    """

    test_domain: str = Field(description="the domain that is held out as the test set; all others are trained")

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """The names of the domains; empty if the files decide."""
        return ()

    @field_validator("test_domain", mode="before")
    @classmethod
    def _as_name(cls, given: Any, info: ValidationInfo) -> Any:
        """The name of the domain: Real World and real_world are the same one."""
        if not isinstance(given, str):
            return given
        name = domain_name(given)
        known = cls.known()
        if known and name not in known:
            raise collected(unknown(f"domain of {cls.words()}", given, known), info)
        return name

    def stand_in_groups(self, partition: Mapping[str, Any], most: int) -> dict[str, Any] | None:
        """The same one, if the stand-in has as many domains."""
        return dict(partition) if "domains" in self.stand_in else None

    @property
    def label(self) -> str:
        """For example officehome-art."""
        return f"{self.name}-{self.test_domain}"


def domain_name(folder: str) -> str:
    """The name of a domain by that of its folder, in lower-case letters, digits and _: real_world for Real World."""
    return re.sub(r"[^a-z0-9]+", "_", folder.lower()).strip("_")
