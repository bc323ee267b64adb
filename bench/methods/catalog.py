"""The named methods. Each is a composition of components, and its equations are in the modules of its components.

For example, FedSMOO is `Components(SMOO, DynamicRegulariser, DynServer)`: its equations are in the docstrings of
perturbations/smoo.py, corrections/dyn.py and servers/dyn.py, and `fedflat methods fedsmoo` prints all of them.

The names here are used in configurations, on the command line and in tables. The hyper-parameter values that a paper
chooses are listed with the experiments of that paper (`paper_tables/`).
"""

from fedflat.bench.input.errors import unknown
from fedflat.bench.methods.corrections.adabest import FadingMemory
from fedflat.bench.methods.corrections.client_momentum import ClientMomentum
from fedflat.bench.methods.corrections.clipped_noise import ClippedNoise
from fedflat.bench.methods.corrections.dual_only import DualOnly
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser
from fedflat.bench.methods.corrections.falling_rate import FallingRate
from fedflat.bench.methods.corrections.feddc import DriftCorrection
from fedflat.bench.methods.corrections.mime import ServerMomentumMimic
from fedflat.bench.methods.corrections.moswa import ForgettingControl
from fedflat.bench.methods.corrections.prox import Prox
from fedflat.bench.methods.corrections.scaffold import ControlVariates
from fedflat.bench.methods.corrections.toga_dual import CorrectedDual
from fedflat.bench.methods.corrections.wmsam import WeightedMomentum
from fedflat.bench.methods.losses.affine_shift import AffineShift
from fedflat.bench.methods.losses.relaxed_contrastive import RelaxedContrastive
from fedflat.bench.methods.losses.trajectory import TrajectoryTeacher
from fedflat.bench.methods.perturbations.asam import ASAM
from fedflat.bench.methods.perturbations.dp_sam import PlainOrAdaptiveSAM
from fedflat.bench.methods.perturbations.gf import GF
from fedflat.bench.methods.perturbations.gloss import WarmedUpSAM
from fedflat.bench.methods.perturbations.lesam import LESAM
from fedflat.bench.methods.perturbations.nsam import NesterovSAM
from fedflat.bench.methods.perturbations.sam import SAM, MixedSAM
from fedflat.bench.methods.perturbations.scam import PilotSAM
from fedflat.bench.methods.perturbations.smoo import SMOO
from fedflat.bench.methods.perturbations.toga import TOGA
from fedflat.bench.methods.perturbations.wmsam import MomentumTarget
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.methods.servers.adabest import MeanMovement
from fedflat.bench.methods.servers.adaptive import AdaGrad, Adam, Yogi
from fedflat.bench.methods.servers.average import AverageOrDirection
from fedflat.bench.methods.servers.dyn import DynServer
from fedflat.bench.methods.servers.gloss import GlobalAscent
from fedflat.bench.methods.servers.look_ahead import LookAhead
from fedflat.bench.methods.servers.momentum import Momentum
from fedflat.bench.methods.servers.nsam import NesterovServer

_RECIPES = (
    Recipe("fedavg", "FedAvg", "McMahan et al., AISTATS 2017"),
    Recipe("fedavgm", "FedAvgM", "Hsu et al., 2019", Components(server=Momentum)),
    Recipe("fedadam", "FedAdam", "Reddi et al., ICLR 2021", Components(server=Adam)),
    Recipe("fedadagrad", "FedAdaGrad", "Reddi et al., ICLR 2021", Components(server=AdaGrad)),
    Recipe("fedyogi", "FedYogi", "Reddi et al., ICLR 2021", Components(server=Yogi)),
    Recipe("fedprox", "FedProx", "Li et al., MLSys 2020", Components(correction=Prox)),
    Recipe(
        "scaffold",
        "SCAFFOLD",
        "Karimireddy et al., ICML 2020, option II",
        Components(correction=ControlVariates),
        takes=(),
    ),
    Recipe(
        "feddyn",
        "FedDyn",
        "Acar et al., ICLR 2021",
        Components(correction=DynamicRegulariser, server=DynServer),
        takes=("lam", "server_correction"),
    ),
    Recipe(
        "feddc",
        "FedDC",
        "Gao et al., CVPR 2022, as released",
        Components(correction=DriftCorrection, server=DynServer),
        takes=("lam", "control", "server_dual"),
    ),
    Recipe("fedcm", "FedCM", "Xu et al., 2021", Components(correction=ClientMomentum, server=AverageOrDirection)),
    Recipe("fedacg", "FedACG", "Kim et al., CVPR 2024", Components(correction=Prox, server=LookAhead)),
    Recipe("fedrcl", "FedRCL", "Seo et al., CVPR 2024, as released", Components(loss=RelaxedContrastive)),
    Recipe("mimelite", "MimeLite", "Karimireddy et al., NeurIPS 2021", Components(correction=ServerMomentumMimic)),
    Recipe("fedrobust", "FedRobust", "Reisizadeh et al., NeurIPS 2020", Components(loss=AffineShift)),
    Recipe("adabest", "AdaBest", "Varno et al., ECCV 2022", Components(correction=FadingMemory, server=MeanMovement)),
    Recipe("fedsam", "FedSAM", "Qu et al., ICML 2022, Alg. 1; Caldarola et al., ECCV 2022, Alg. 1", Components(SAM)),
    Recipe("fedasam", "FedASAM", "Caldarola et al., ECCV 2022, Alg. 1", Components(ASAM)),
    Recipe("mofedsam", "MoFedSAM", "Qu et al., ICML 2022, Alg. 2", Components(SAM, ClientMomentum, AverageOrDirection)),
    Recipe("fedgamma", "FedGAMMA", "Dai et al., TNNLS 2023", Components(SAM, ControlVariates), takes=("rho",)),
    Recipe(
        "fedsmoo",
        "FedSMOO",
        "Sun et al., ICML 2023; FedTOGA paper, Alg. 2",
        Components(SMOO, DynamicRegulariser, DynServer),
        takes=("rho", "lam", "s_rule", "regulariser"),
    ),
    Recipe(
        "fedspeed",
        "FedSpeed",
        "Sun et al., ICLR 2023",
        Components(MixedSAM, DynamicRegulariser, DynServer),
        takes=("rho", "lam", "alpha", "server_dual"),
    ),
    Recipe("fedlesam", "FedLESAM", "Fan et al., ICML 2024, Alg. 1", Components(LESAM)),
    Recipe(
        "fedlesam_s",
        "FedLESAM-S",
        "Fan et al., ICML 2024, Alg. 3, with SCAFFOLD's sign",
        Components(LESAM, ControlVariates),
    ),
    Recipe(
        "fedlesam_d",
        "FedLESAM-D",
        "Fan et al., ICML 2024, Alg. 4, with FedDyn's signs",
        Components(LESAM, DynamicRegulariser, DynServer),
        takes=("rho", "lam", "first_seen", "estimate", "server_correction"),
    ),
    Recipe("fedgf", "FedGF", "Lee and Yoon, ICML 2024, Alg. 1", Components(GF)),
    Recipe(
        "fedtoga",
        "FedTOGA",
        "FedTOGA paper, Alg. 1",
        Components(TOGA, CorrectedDual, DynServer),
        takes=("rho", "lam", "kappa", "beta", "direction", "dual_norm", "scale_A"),
    ),
    Recipe("dp_fedsam", "DP-FedSAM", "Shi et al., CVPR 2023", Components(PlainOrAdaptiveSAM, ClippedNoise)),
    Recipe(
        "fedgloss",
        "FedGloSS",
        "Caldarola et al., CVPR 2025, Alg. 1",
        Components(WarmedUpSAM, DynamicRegulariser, GlobalAscent),
        takes=("rho", "rho_g", "lam", "rho_0", "warmup", "server_radius", "dual_norm"),
        weighting="samples",
    ),
    Recipe(
        "fedgmt",
        "FedGMT",
        "Li et al., ICML 2025",
        Components(correction=DualOnly, server=DynServer, loss=TrajectoryTeacher),
        takes=("lam", "ema_decay", "weight_kl", "temperature", "server_dual"),
    ),
    Recipe("fedswa", "FedSWA", "Liu et al., ICML 2025", Components(correction=FallingRate)),
    Recipe("fedmoswa", "FedMoSWA", "Liu et al., ICML 2025", Components(correction=ForgettingControl)),
    Recipe("fedwmsam", "FedWMSAM", "Li et al., NeurIPS 2025", Components(MomentumTarget, WeightedMomentum)),
    Recipe("fednsam", "FedNSAM", "Liu et al., 2026", Components(NesterovSAM, server=NesterovServer)),
    Recipe("fedscam", "FedSCAM", "Rahil et al., 2025, as restated by a third party", Components(PilotSAM)),
)

CATALOG: dict[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}


def recipe(name: str) -> Recipe:
    """The recipe of a named method. A `UserError` suggests the nearest name."""
    if name not in CATALOG:
        raise unknown("method", name, CATALOG)
    return CATALOG[name]
