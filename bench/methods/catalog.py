"""The named methods: three parts each, and the hyper-parameters they take.

Names are the canonical ones, in configurations, on the command line and in tables. A recipe `takes` exactly the
hyper-parameters and switches listed with it; where two parts have one of the same name, both get it. Values that
papers choose live with the papers' experiments (`paper_tables/`), not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bench.errors import UserError, unknown
from bench.frozen import refuse_bools
from bench.methods.base import Component, Correction, Method, Perturbation, Server
from bench.methods.corrections.client_momentum import ClientMomentum
from bench.methods.corrections.dyn import DynamicRegulariser
from bench.methods.corrections.none import NoCorrection
from bench.methods.corrections.scaffold import ControlVariates
from bench.methods.perturbations.asam import ASAM
from bench.methods.perturbations.gf import GF
from bench.methods.perturbations.lesam import LESAM
from bench.methods.perturbations.none import NoPerturbation
from bench.methods.perturbations.sam import SAM, MixedSAM
from bench.methods.servers.average import Average, AverageOrDirection
from bench.methods.servers.dyn import DynServer

Aggregation = Literal["uniform", "samples"]


@dataclass(frozen=True)
class Recipe:
    """A named method before its hyper-parameters are chosen.

    `aggregation` is the method's own weighting of clients: by `samples` n_i, or `uniform`.
    """

    name: str
    title: str
    perturbation: type[Perturbation]
    correction: type[Correction]
    server: type[Server]
    takes: tuple[str, ...]
    aggregation: Aggregation
    source: str

    @property
    def parts(self) -> tuple[type[Component], ...]:
        """Perturbation, correction, server."""
        return (self.perturbation, self.correction, self.server)

    @property
    def hyperparameters(self) -> dict[str, FieldInfo]:
        """The fields behind `takes`: default, range and meaning of each."""
        fields = {name: info for part in self.parts for name, info in part.model_fields.items()}
        return {name: fields[name] for name in self.takes}

    def complete(self, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """The given hyper-parameters with defaults filled in; a `UserError` as in `build`."""
        method = self.build(hyperparameters)
        values = {name: value for part in method for name, value in part.model_dump().items()}
        return {name: values[name] for name in self.takes}

    def build(self, hyperparameters: Mapping[str, Any]) -> Method:
        """The method with these hyper-parameters; a `UserError` names what is missing, unknown or out of range."""
        for key in hyperparameters:
            if key not in self.takes:
                raise unknown(f"hyper-parameter of {self.name}", key, self.takes)
        refuse_bools(self.hyperparameters, hyperparameters, self.name)
        missing = [n for n, f in self.hyperparameters.items() if f.is_required() and n not in hyperparameters]
        if missing:
            raise UserError(f"{self.name} needs {', '.join(missing)} (it takes: {', '.join(self.takes)})")
        try:
            perturbation, correction, server = (
                part(**{k: v for k, v in hyperparameters.items() if k in part.model_fields}) for part in self.parts
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise UserError(f"{self.name}: {first['loc'][0]} = {first['input']!r}: {first['msg']}") from None
        assert isinstance(perturbation, Perturbation)
        assert isinstance(correction, Correction)
        assert isinstance(server, Server)
        return Method(self.name, perturbation, correction, server, self.aggregation)


_LESAM = ("rho", "first_seen", "estimate")

_RECIPES = (
    Recipe("fedavg", "FedAvg", NoPerturbation, NoCorrection, Average, (), "samples", "McMahan et al., AISTATS 2017"),
    Recipe(
        "scaffold",
        "SCAFFOLD",
        NoPerturbation,
        ControlVariates,
        Average,
        (),
        "uniform",
        "Karimireddy et al., ICML 2020, option II",
    ),
    Recipe(
        "feddyn",
        "FedDyn",
        NoPerturbation,
        DynamicRegulariser,
        DynServer,
        ("lam", "server_correction"),
        "uniform",
        "Acar et al., ICLR 2021",
    ),
    Recipe(
        "fedsam",
        "FedSAM",
        SAM,
        NoCorrection,
        Average,
        ("rho",),
        "samples",
        "Qu et al., ICML 2022, Alg. 1; Caldarola et al., ECCV 2022, Alg. 1",
    ),
    Recipe(
        "fedasam",
        "FedASAM",
        ASAM,
        NoCorrection,
        Average,
        ("rho", "eta_a", "biases"),
        "samples",
        "Caldarola et al., ECCV 2022, Alg. 1",
    ),
    Recipe(
        "mofedsam",
        "MoFedSAM",
        SAM,
        ClientMomentum,
        AverageOrDirection,
        ("rho", "alpha", "server_step"),
        "uniform",
        "Qu et al., ICML 2022, Alg. 2",
    ),
    Recipe(
        "fedgamma",
        "FedGAMMA",
        SAM,
        ControlVariates,
        Average,
        ("rho",),
        "uniform",
        "Dai et al., TNNLS 2023",
    ),
    Recipe(
        "fedspeed",
        "FedSpeed",
        MixedSAM,
        DynamicRegulariser,
        DynServer,
        ("rho", "lam", "alpha", "server_dual"),
        "uniform",
        "Sun et al., ICLR 2023",
    ),
    Recipe(
        "fedlesam",
        "FedLESAM",
        LESAM,
        NoCorrection,
        Average,
        _LESAM,
        "uniform",
        "Fan et al., ICML 2024, Alg. 1",
    ),
    Recipe(
        "fedlesam_s",
        "FedLESAM-S",
        LESAM,
        ControlVariates,
        Average,
        (*_LESAM, "correction_weight"),
        "uniform",
        "Fan et al., ICML 2024, Alg. 3, with SCAFFOLD's sign",
    ),
    Recipe(
        "fedlesam_d",
        "FedLESAM-D",
        LESAM,
        DynamicRegulariser,
        DynServer,
        ("rho", "lam", "first_seen", "estimate", "server_correction"),
        "uniform",
        "Fan et al., ICML 2024, Alg. 4, with FedDyn's signs",
    ),
    Recipe(
        "fedgf",
        "FedGF",
        GF,
        NoCorrection,
        Average,
        ("rho", "rho_g", "T_D", "W", "window_rule"),
        "samples",
        "Lee and Yoon, ICML 2024, Alg. 1",
    ),
)

CATALOG: dict[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}


def recipe(name: str) -> Recipe:
    """The recipe of a named method; a `UserError` suggests the nearest name."""
    if name not in CATALOG:
        raise unknown("method", name, CATALOG)
    return CATALOG[name]
