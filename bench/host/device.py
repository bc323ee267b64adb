"""The names of devices, checked without torch; `bench.training.train` makes the device."""

import re

from bench.input.errors import UserError


def device_name(name: str) -> str:
    """The name, if it is one of a device; whether this machine has the device is torch's to say."""
    if not re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]*))?", name):
        raise UserError(f"unknown device '{name}' (allowed: auto, cpu, cuda, cuda:0, cuda:1, ...)")
    return name
