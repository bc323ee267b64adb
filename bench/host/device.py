"""Names of devices, checked without importing torch; `fedflat.bench.host.torch_device` prepares the device."""

import re

from fedflat.bench.input.errors import UserError


def device_name(name: str) -> str:
    """The name, if it is valid, else a `UserError`; whether this machine has the device is checked later."""
    if not re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]*))?", name):
        raise UserError(f"unknown device '{name}' (allowed: auto, cpu, cuda, cuda:0, cuda:1, ...)")
    return name
