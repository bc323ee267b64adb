"""Methods as compositions: perturbation × correction × server, and the catalog of named ones."""

from bench.methods.base import ClientRound, Correction, Loss, Method, Perturbation, Server, ServerRound, norm, unit
from bench.methods.catalog import CATALOG, recipe
from bench.methods.compose import compose
from bench.methods.recipe import Components, Recipe

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
    "compose",
    "norm",
    "recipe",
    "unit",
]
