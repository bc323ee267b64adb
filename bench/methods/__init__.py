"""Methods as compositions: perturbation × correction × server, and the catalog of named ones."""

from fedflat.bench.methods.base import ClientRound, Correction, Loss, Perturbation, Server, ServerRound, norm, unit
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.recipe import Components, Recipe

__all__ = [
    "CATALOG",
    "ClientRound",
    "Components",
    "Correction",
    "Loss",
    "Method",
    "Perturbation",
    "Recipe",
    "Server",
    "ServerRound",
    "norm",
    "unit",
]
