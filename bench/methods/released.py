"""Differences between released codes and papers, by method: the settings of `variant: released`.

`Code` holds the settings that all methods of a repository share, and `RELEASES` the settings of each method. Values
that papers tune, such as learning rates and radii, are listed with the experiments. The settings of a release take
precedence over an experiment's common `training`; values that the experiment sets for the method itself take precedence
over the release. Faults of the code that no setting reproduces are listed in `not_covered`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.catalog import recipe

Sampling = Literal["fixed", "bernoulli"]
Report = Literal["best", "last", "mean_last_50", "mean_last_100"]


@dataclass(frozen=True)
class Release:
    """The settings of one method in one released code.

    `hyperparameters` are those that differ from the default. `training`: the `StepSettings` that the code sets.
    `report`: which rounds the code's summary reports; None: as in the experiment. `swa` applies only if the method uses
    SWA. `faults` are values that the code uses even if the experiment's file sets another value.
    """

    repository: str
    hyperparameters: Mapping[str, Any]
    training: Mapping[str, Any]
    sampling: Sampling | None
    report: Report | None
    not_covered: tuple[str, ...]
    swa: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Code:
    """One repository, with the settings that all of its methods share."""

    repository: str
    training: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = None
    report: Report | None = None
    not_covered: tuple[str, ...] = ()
    swa: Mapping[str, Any] = field(default_factory=dict)

    def bundle(self, *not_covered: str, training: Mapping[str, Any] | None = None, **hyperparameters: Any) -> Release:
        """The release of a method: the settings of the repository, and these settings of the method in addition."""
        return Release(
            repository=self.repository,
            hyperparameters=hyperparameters,
            training={**self.training, **(training or {})},
            sampling=self.sampling,
            report=self.report,
            not_covered=(*not_covered, *self.not_covered),
            swa=self.swa,
        )


FL_SIMULATOR = Code(
    "woodenchild95/FL-Simulator",
    training={"clip": 10.0, "lr_decay": 0.998, "aggregation": "uniform"},
    sampling="bernoulli",
    report="best",
    not_covered=(
        "NumPy's seed is seed + round: seed 21 samples the clients of seed 20 one round earlier",
        "its Dirichlet partition refills exhausted classes: images repeat (set partition variant: released)",
    ),
)
FEDLESAM = replace(
    FL_SIMULATOR,
    repository="MediaBrain-SJTU/FedLESAM",
    not_covered=(*FL_SIMULATOR.not_covered, "torch has no seed: initial model and batches differ between runs"),
)
OFFICIAL_FEDGF = Code(
    "hwan-sig/Official-FedGF",
    training={"clip": None, "lr_decay": 1.0},
    sampling="fixed",
    report="mean_last_100",
    not_covered=(
        "--seed is not read: torch's seed is always 0, and the sampling of clients has no seed",
        "runs one round more than requested",
    ),
)
CALDAROLA = Code(
    "debcaldarola/fedsam",
    training={"clip": None, "lr_decay": 1.0, "aggregation": "samples"},
    sampling="fixed",
    report="mean_last_100",
    not_covered=(
        "the round is the only seed for sampling clients: every run has the same active clients",
        "cutout has 16 pixels also for CIFAR-100: set its size",
    ),
    swa={"collect": "release"},
)
FEDDC = Code("gaoliang13/FedDC", training={"clip": 10.0, "aggregation": "uniform"})
FEDACG = Code("geehokim/FedACG", training={"clip": 10.0, "aggregation": "uniform"})
FEDRCL = Code("skynbe/FedRCL", training={"clip": 10.0, "lr_decay": 0.998})
FEDSIM = Code("varnio/fedsim")
DP_FEDSAM = Code(
    "YMJS-Irfan/DP-FedSAM",
    training={"local_momentum": 0.5, "lr_decay": 0.998, "aggregation": "samples"},
    sampling="fixed",
    not_covered=(
        "the round is the only seed for sampling clients: every run has the same active clients",
        "clips BatchNorm's statistics, and adds noise to them, too",
    ),
)
FEDGLOSS = Code(
    "pietrocagnasso/fedgloss",
    training={"clip": None, "lr_decay": 1.0, "aggregation": "samples"},
    sampling="fixed",
    not_covered=("no guard against a zero update: NaN",),
)
FEDGMT = Code(
    "harrylee999/FL-SAM",
    training={"local_momentum": 0.9, "aggregation": "samples"},
    sampling="fixed",
    report="mean_last_50",
    not_covered=("the weight decay is 1e-5, a constant of the code",),
)
FEDSWA = Code(
    "junkangLiu0/FedSWA", training={"clip": 10.0, "lr_schedule": {"name": "cosine"}, "aggregation": "uniform"}
)
FEDSWA_MAY = replace(
    FEDSWA,
    training={"clip": 10.0, "lr_decay": 0.998, "aggregation": "uniform"},
    not_covered=("the rate has decayed once before the first round",),
)
FEDWMSAM = Code(
    "Huang-Yongzhi/NeurlPS_FedWMSAM",
    training={"clip": 10.0, "lr_decay": 0.998, "aggregation": "uniform"},
    sampling="bernoulli",
    report="best",
)
FEDNSAM = replace(
    FEDSWA, repository="junkangLiu0/FedNSAM", not_covered=("extrapolates BatchNorm's statistics like parameters",)
)

UNIFORM = {"aggregation": "uniform"}
SAMPLES = {"aggregation": "samples"}
SPLIT = {"prox_split": True}

REAL_STEPS = "1/(K η) uses K = E n/B of client 0, unrounded, for every client"
MIXED_PRECISION = "trains in mixed precision"

RELEASES: dict[str, dict[str, Release]] = {
    "fedavg": {
        "fl_simulator": FL_SIMULATOR.bundle(),
        "fedlesam": FEDLESAM.bundle(),
        "official_fedgf": OFFICIAL_FEDGF.bundle(training=UNIFORM),
        "caldarola": CALDAROLA.bundle(),
    },
    "fedavgm": {"caldarola": CALDAROLA.bundle(), "official_fedgf": OFFICIAL_FEDGF.bundle(training=SAMPLES)},
    "fedadam": {
        "fl_simulator": FL_SIMULATOR.bundle(init_v="zero", tau=0.01),
        "fedlesam": FEDLESAM.bundle(init_v="zero", tau=0.01),
        "caldarola": CALDAROLA.bundle(init_v="zero", tau=0.1, bias_correction=True),
    },
    "fedadagrad": {"caldarola": CALDAROLA.bundle(init_v="zero", tau=0.01)},
    "fedprox": {
        "fl_simulator": FL_SIMULATOR.bundle(training=SPLIT),
        "official_fedgf": OFFICIAL_FEDGF.bundle(training=UNIFORM),
    },
    "scaffold": {
        "fl_simulator": FL_SIMULATOR.bundle(REAL_STEPS),
        "fedlesam": FEDLESAM.bundle(REAL_STEPS),
        "official_fedgf": OFFICIAL_FEDGF.bundle(
            "c − c_i never reaches the gradients: local training is plain SGD", training=UNIFORM
        ),
    },
    "feddyn": {
        "fl_simulator": FL_SIMULATOR.bundle(training=SPLIT),
        "fedlesam": FEDLESAM.bundle(training=SPLIT),
        # In this code, the client's terms have no gradient and α cancels in the server's step: this equals λ = 0.
        "official_fedgf": replace(OFFICIAL_FEDGF.bundle(training=UNIFORM), faults={"lam": 0.0}),
    },
    "feddc": {
        "feddc": FEDDC.bundle(
            "1/(K η) uses the η of the first round",
            "λ and c are divided by the client's size relative to the mean size",
        )
    },
    "fedcm": {"fl_simulator": FL_SIMULATOR.bundle(REAL_STEPS), "fedlesam": FEDLESAM.bundle(REAL_STEPS)},
    # The penalty in this code lacks the factor 1/2: its weight 1e-3 is λ/2.
    "fedacg": {"fedacg": FEDACG.bundle(MIXED_PRECISION, beta=0.85, lam=2e-3)},
    "fedrcl": {"fedrcl": FEDRCL.bundle(MIXED_PRECISION)},
    "adabest": {
        "fedsim": FEDSIM.bundle(
            "μ is scaled by the mean client size over the client's own",
            "the mean model of the server is evaluated in addition to w",
        )
    },
    "fedsam": {
        "caldarola": CALDAROLA.bundle(),
        "fl_simulator": FL_SIMULATOR.bundle(),
        "fedlesam": FEDLESAM.bundle(),
        "official_fedgf": OFFICIAL_FEDGF.bundle(training=SAMPLES),
    },
    "fedasam": {"caldarola": CALDAROLA.bundle(), "official_fedgf": OFFICIAL_FEDGF.bundle(training=SAMPLES)},
    "mofedsam": {
        "fl_simulator": FL_SIMULATOR.bundle(REAL_STEPS),
        "fedlesam": FEDLESAM.bundle("α is not applied to the gradient: q = g + (1−α) D", REAL_STEPS),
        "official_fedgf": OFFICIAL_FEDGF.bundle(
            "D shrinks by 1−α at every local step, from client to client", training=UNIFORM, server_step="literal"
        ),
    },
    "fedgamma": {
        "fl_simulator": FL_SIMULATOR.bundle(REAL_STEPS),
        "official_fedgf": OFFICIAL_FEDGF.bundle("c moves by 1/M of what it should", training=UNIFORM),
    },
    "fedsmoo": {
        "fl_simulator": FL_SIMULATOR.bundle(training=SPLIT, s_rule="mu_only"),
        "official_fedgf": OFFICIAL_FEDGF.bundle(
            "no guard against a zero norm: NaN", training=SAMPLES, regulariser=False
        ),
    },
    "fedspeed": {"fl_simulator": FL_SIMULATOR.bundle(training=SPLIT)},
    "fedlesam": {"fedlesam": FEDLESAM.bundle(estimate="released_literal")},
    "fedlesam_s": {"fedlesam": FEDLESAM.bundle(REAL_STEPS, estimate="released_literal", correction_weight=0.1)},
    "fedlesam_d": {"fedlesam": FEDLESAM.bundle(training=SPLIT, estimate="released_literal")},
    "dp_fedsam": {"dp_fedsam": DP_FEDSAM.bundle(clip_scope="tensor", ascent="adaptive")},
    "fedgloss": {"fedgloss": FEDGLOSS.bundle(server_radius="released", dual_norm="NM")},
    "fedgmt": {"fedgmt": FEDGMT.bundle()},
    # Two scripts of one repository: of November 2025 and of May 2025. Some of their values are constants.
    "fedswa": {
        "fedswa": replace(
            FEDSWA.bundle("the local rate is twice the given one, and the server's is 1 by default"),
            faults={"lr_ratio": 0.0},
        ),
        "fedswa_may": FEDSWA_MAY.bundle(),
    },
    "fedmoswa": {
        "fedswa": replace(
            FEDSWA.bundle(
                "the server's rate is 1, whatever is given",
                "c_i belongs to the worker, that is to the client's position in the drawn order",
                control_start="mean",
            ),
            faults={"lr_ratio": 1.0, "control_rate": 0.4},
        ),
        "fedswa_may": replace(
            FEDSWA_MAY.bundle(
                "c_i belongs to the worker process, unless the same process served the client before",
                control_norm="trapezoid",
                control_start="mean",
            ),
            faults={"control_rate": 0.1},
        ),
    },
    "fedwmsam": {
        "fedwmsam": FEDWMSAM.bundle(
            REAL_STEPS, "D has another factor, the decay of the rate", estimate="released_literal"
        )
    },
    # Two versions of one script, of November 2025 and of March 2026.
    "fednsam": {
        "fednsam": replace(FEDNSAM.bundle(), faults={"rho": 0.05, "beta": 0.85}),
        "fednsam_march": replace(FEDNSAM.bundle(momentum="last_update"), faults={"rho": 0.05, "beta": 0.85}),
    },
    "fedgf": {
        "official_fedgf": OFFICIAL_FEDGF.bundle(
            "no guard against a zero update: NaN",
            "its script passes --c_o instead of --T_D, which its parser refuses",
            training=SAMPLES,
        )
    },
}
"""Releases by method and short name of the code. The variant `released` is the first one: the code of the method's
authors, or else FL-Simulator, or else the code of Caldarola et al."""


def release(method: str, variant: str) -> Release:
    """The settings of the variant `released`, or of a named code: `released:official_fedgf`.

    Raises `UserError` for an unknown method or variant, and for a method without released code.
    """
    recipe(method)
    if method not in RELEASES:
        raise UserError(
            f"{method} has no variant '{variant}', because no released code of it is known "
            f"(methods with variants: {', '.join(RELEASES)})"
        )
    releases = RELEASES[method]
    variants = {"released": next(iter(releases.values()))} | {f"released:{name}": r for name, r in releases.items()}
    if variant not in variants:
        raise unknown(f"variant of {method}", variant, variants)
    return variants[variant]
