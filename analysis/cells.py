"""From run directories to tidy files: each analysis of a cell, over its seeds.

The output has one row per number: the cell's names, the seed, the quantity, and in `definition` what was computed on
which data. All is computed in float32, whatever precision a run was trained in. Runs that diverged have no rows. Data
are normalised a batch at a time, so they need not fit into memory.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analysis.drift import perturbation_drift
from analysis.flatness import flatness_discrepancy, loss_along_perturbation, low_pass_filter, sharpness
from analysis.hessian import top_eigenvalues
from analysis.landscape import filter_normalised_directions, plane
from analysis.settings import AnalysisSettings, Drift, Flatness, Line, Surface
from analysis.tidy import FILES, IDS, check_states
from bench.config import RunConfig
from bench.data.dataset import Batches
from bench.data.partitions import Indices
from bench.engine.federation import FederationState
from bench.engine.participation import active_clients
from bench.engine.streams import numpy_stream, torch_stream
from bench.errors import UserError, unknown
from bench.experiments import Cell
from bench.methods.perturbations.none import NoPerturbation
from bench.parts import Bench
from bench.records import RunDirectory, identified, write_csv

BATCH = 2000
"""Images at once."""


def analyse_cell(
    name: str, settings: AnalysisSettings, experiment: str, cell: Cell, runs: Path, out: Path, device: torch.device
) -> None:
    """Do one analysis of a cell, whose run directories are `runs/seed-<s>`, and write its tidy file."""
    if name not in _ANALYSES:
        raise unknown("analysis", name, _ANALYSES)
    check_states(name, cell.runs[0].evaluation)
    options = getattr(settings, name)
    configs = [_shown(cell, options)] if isinstance(options, Surface) else list(cell.runs)
    tables = [pd.DataFrame(columns=[*_ID_COLUMNS, *FILES[name].columns])]
    for config in configs:
        run = RunDirectory(runs / f"seed-{config.seed}")
        if run.identity != config.identity:
            raise UserError(f"'{run.path}' is a run of another configuration than {cell.path} of {experiment}")
        if not run.diverged:
            table = _ANALYSES[name](run, Bench.set_up(config, device, run.split(), "fp32"), options)
            tables.append(identified(table, experiment, cell, config))
    write_csv(out, pd.concat(tables[1:] or tables, ignore_index=True))


def _shown(cell: Cell, options: Surface) -> RunConfig:
    seeds = [config.seed for config in cell.runs]
    if options.seed is not None and options.seed not in seeds:
        raise UserError(f"surface.seed = {options.seed}, but the seeds of {cell.path} are {', '.join(map(str, seeds))}")
    return cell.runs[0 if options.seed is None else seeds.index(options.seed)]


def flatness(run: RunDirectory, bench: Bench, options: Flatness) -> pd.DataFrame:
    """λ_max, λ_1/λ_5, LPF, sharpness and flatness discrepancy of the final global model.

    The local models of the flatness discrepancy are those of all clients, each trained for one round's local steps from
    the final global model with its own state, as if the next round had full participation.
    """
    state = run.snapshot(bench.config.training.rounds, bench.objective.device)
    w, objective = bench.federation.evaluated(state), bench.objective
    chosen = numpy_stream(bench.config.seed, "analysis-samples").permutation(len(bench.train))[: options.samples]
    sample = _some(bench, np.sort(chosen))
    everything = Batches(bench.train, BATCH)
    spectrum = top_eigenvalues(objective, w, sample, options.eigenvalues, tolerance=options.tolerance)
    lpf = low_pass_filter(
        objective, w, sample,
        sigma=options.sigma, draws=options.draws, stream=torch_stream(bench.config.seed, "low-pass-filter"),
    )  # fmt: skip
    local = bench.federation.train_clients(state, range(len(bench.split)))
    local_data = [_some(bench, indices) for indices in bench.split]
    discrepancy = flatness_discrepancy(
        objective, w, everything, [result.w for result in local.values()], local_data, rho=options.rho
    )
    on_sample = f"mean cross-entropy of {len(chosen)} training images"
    on_all = f"mean cross-entropy of all {len(bench.train)} training images"
    lanczos = f"Lanczos, {on_sample}"
    ascent = f"one ascent step of length {options.rho:g}"
    gaussian = f"{options.draws} draws, sigma {options.sigma:g}, {on_sample}"
    rows: list[tuple[str, float, float | None, str]] = [
        ("lambda_max", spectrum.eigenvalues[0], None, lanczos),
        ("lambda_ratio_1_5", spectrum.ratio(5), None, lanczos),
        ("lambda_residual", spectrum.residuals[0], None, f"|Hv - lambda v| of the largest eigenvalue, {lanczos}"),
        ("lambda_converged", float(spectrum.converged), None, f"1 if all {options.eigenvalues} eigenvalues, {lanczos}"),
        ("lpf", lpf.value, lpf.standard_error, gaussian),
        ("sharpness", sharpness(objective, w, everything, options.rho), None, f"{ascent}, {on_all}"),
        (
            "flatness_discrepancy",
            discrepancy,
            None,
            f"{ascent}, {on_all}; local models: all clients', after one more round of local steps, on their own data",
        ),
    ]
    return pd.DataFrame(rows, columns=["metric", "value", "stderr", "definition"])


def drift(run: RunDirectory, bench: Bench, options: Drift) -> pd.DataFrame:
    """Perturbation drift and global sharpness after each kept round.

    The drift after round r is that of the round which follows: it is replayed from the kept state with the clients that
    the schedule names. Empty for methods that do not perturb.
    """
    config, train = bench.config, Batches(bench.train, BATCH)
    perturbs = not isinstance(bench.federation.method.perturbation, NoPerturbation)
    rows: list[tuple[int, float | None, float]] = []
    for finished in config.snapshots:
        state = run.snapshot(finished, bench.objective.device)
        sharp = sharpness(bench.objective, bench.federation.evaluated(state), train, options.rho)
        rows.append((finished, _round_drift(bench, state, train) if perturbs else None, sharp))
    table = pd.DataFrame(rows, columns=["round", "perturbation_drift", "sharpness"])
    return table.assign(
        definition=f"PD of the following round's clients; sharpness: one ascent step of length {options.rho:g}; "
        f"global objective: mean cross-entropy of all {len(bench.train)} training images"
    )


def _some(bench: Bench, indices: Indices) -> Batches:
    """Those training images, in batches."""
    return Batches(bench.train, BATCH, torch.from_numpy(indices).to(bench.objective.device))


def _round_drift(bench: Bench, state: FederationState, train: Batches) -> float:
    config = bench.config
    active = active_clients(config.participation, config.partition.clients, config.seed, state.round)
    deltas: dict[int, list[Tensor]] = {i: [] for i in active}
    iterates: dict[int, list[Tensor]] = {i: [] for i in active}

    def watch(client: int, step: int, w: Tensor, delta: Tensor) -> None:
        deltas[client].append(delta)
        iterates[client].append(w)

    bench.federation.train_clients(state, active, probe=watch)
    return perturbation_drift(
        [torch.stack(deltas[i]) for i in active],
        [torch.stack(iterates[i]) for i in active],
        lambda w: bench.objective.full_gradient(w, train),
    )


def surface(run: RunDirectory, bench: Bench, options: Surface) -> pd.DataFrame:
    """Training loss on a filter-normalised plane around the final model; the same random draws for every method."""
    w = run.final(bench.objective.device).w
    d1, d2 = filter_normalised_directions(
        bench.objective.layout, w, torch_stream(bench.config.seed, "surface-directions")
    )
    train = Batches(bench.train, BATCH)
    table = plane(bench.objective, w, train, d1=d1, d2=d2, extent=options.extent, points=options.points)
    return table.assign(
        definition=f"mean cross-entropy of all {len(bench.train)} training images; filter-normalised directions"
    )


def perturbation(run: RunDirectory, bench: Bench, options: Line) -> pd.DataFrame:
    """Training loss of the final model along random directions; the same directions for every method."""
    train = Batches(bench.train, BATCH)
    table = loss_along_perturbation(
        bench.objective, run.final(bench.objective.device).w, train,
        radii=options.radii, draws=options.draws, stream=torch_stream(bench.config.seed, "perturbation-directions"),
    )  # fmt: skip
    return table.assign(
        definition=f"mean cross-entropy of all {len(bench.train)} training images; random unit directions"
    )


_ID_COLUMNS = ["experiment", *IDS]
_ANALYSES: dict[str, Callable[..., pd.DataFrame]] = {
    "flatness": flatness,
    "drift": drift,
    "surface": surface,
    "perturbation": perturbation,
}
