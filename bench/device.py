"""Names of devices, checked without importing torch."""

import re

from bench.errors import UserError


def device_name(name: str) -> str:
    """The name itself, if it is auto, cpu, cuda or cuda:<i>; a `UserError` otherwise."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UserError(f"unknown device '{name}' (allowed: auto, cpu, cuda, cuda:0, cuda:1, ...)")
    return name
