"""Methods as compositions: perturbation × correction × server, and the catalog of named ones."""

from bench.methods.base import ClientRound, Correction, Method, Perturbation, Server, ServerRound, norm, unit
from bench.methods.catalog import CATALOG, Recipe, recipe

__all__ = [
    "CATALOG",
    "ClientRound",
    "Correction",
    "Method",
    "Perturbation",
    "Recipe",
    "Server",
    "ServerRound",
    "norm",
    "recipe",
    "unit",
]
