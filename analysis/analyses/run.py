"""From run directories to tidy files: one analysis of the runs in a folder.

The output has the columns that name a run, those of the analysis, and how that was made. Runs that diverged have no
rows, unless the analysis has an answer for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from analysis.analyses.base import Analysis
from analysis.analyses.provenance import MADE, analysis_fingerprint, in_words
from analysis.analyses.subject import Subject
from bench.experiments.columns import IDS
from bench.files.csv_json import write_csv
from bench.host.progress import Progress
from bench.input.errors import UserError
from bench.training.run_directory import RunDirectory, identified

CELL_COLUMNS = ["experiment", *IDS]


@dataclass(frozen=True)
class Runs:
    """Finished runs of one cell by seed, and the columns that name the cell."""

    cell: Mapping[str, str]
    by_seed: Mapping[int, RunDirectory]

    @property
    def labels(self) -> tuple[str, str]:
        """The method's and the partition's."""
        return self.cell["method"], self.cell["partition"]


def find_runs(folder: Path) -> Runs:
    """The run in a run directory, or all runs in a cell's folder; a `UserError` if it is neither.

    Their names are those which the cell's metrics.csv tells; a run outside of a cell is named by its configuration.
    """
    if (folder / "config.json").is_file():
        run = RunDirectory(folder)
        known = _named(folder.parent).get(run.config.seed)
        names = known[1] if known is not None and known[0] == run.identity else _own_names(run)
        return Runs(names, {run.config.seed: run})
    listed = _named(folder)
    if not listed:
        raise UserError(
            f"'{folder}' is neither a run directory (with config.json) nor the folder of a cell (with metrics.csv)"
        )
    runs = {seed: RunDirectory(folder / f"seed-{seed}") for seed in listed}
    for seed, (identity, _) in listed.items():
        if runs[seed].identity != identity:
            raise UserError(f"'{runs[seed].path}' is a run of another configuration than '{folder / 'metrics.csv'}'")
    return Runs(next(iter(listed.values()))[1], runs)


def _named(folder: Path) -> dict[int, tuple[str, dict[str, str]]]:
    """Identity and cell of each seed that a cell's metrics.csv lists; nothing if there is no such file."""
    file, columns = folder / "metrics.csv", [*CELL_COLUMNS, "seed", "identity"]
    if not file.is_file():
        return {}
    try:
        rows = pd.read_csv(file, usecols=columns, dtype=dict.fromkeys([*CELL_COLUMNS, "identity"], str))
    except ValueError:  # of one run: it names none
        return {}
    return {
        int(row["seed"]): (row["identity"], {column: row[column] for column in CELL_COLUMNS})
        for row in rows.drop_duplicates().to_dict("records")
    }


def _own_names(run: RunDirectory) -> dict[str, str]:
    config = run.config
    labels = (config.dataset.label, config.partition.label, config.participation.label(config.partition.clients))
    return dict(zip(CELL_COLUMNS, ("custom", *labels, config.method.recipe.name), strict=True))


def default_output(folder: Path, name: str) -> Path:
    """The tidy file of a folder of runs: results/analysis/custom/... for results/runs/..., else in analysis/ within it.

    Not where the pipeline puts an experiment's own: tables would take it for one with the experiment's options.
    """
    parts = folder.absolute().parts
    if "runs" not in parts:
        return folder / "analysis" / f"{name}.csv"
    last = len(parts) - 1 - parts[::-1].index("runs")
    below = parts[last + 2 :] if parts[last + 1 : last + 2] == ("custom",) else parts[last + 1 :]
    return Path(*parts[:last], "analysis", "custom", *below, f"{name}.csv")


def analyse(
    analysis: Analysis,
    folder: Path,
    out: Path,
    device: torch.device,
    tell: Progress,
    beside: Sequence[Path] = (),
) -> None:
    """Do an analysis of the runs in a folder and write its tidy file.

    `beside`: folders of the runs of other methods, or partitions, for analyses that compare.
    """
    runs, others = find_runs(folder), [find_runs(other) for other in beside]
    unfinished: list[Path] = []
    tables = [pd.DataFrame(columns=[*CELL_COLUMNS, "identity", "seed", *analysis.columns, "definition", *MADE])]
    for seed in analysis.chosen(list(runs.by_seed)):
        run = runs.by_seed[seed]
        for compared in others:
            if seed not in compared.by_seed:
                raise UserError(f"{analysis.name} needs seed {seed} of {compared.cell['method']} too")
        known = [Subject(one.by_seed[seed], device, tell=tell, labels=one.labels) for one in others]
        unfinished.append(out.with_name(f".{out.stem}-seed-{seed}.unfinished"))
        subject = Subject(run, device, known, unfinished[-1], tell, runs.labels)
        reason = _nothing_to_say(analysis, [subject, *known])
        if reason is not None:
            tell(f"seed {seed}: {reason}: no rows")
            continue
        analysis.check(run.config.evaluation)
        made = _made(analysis, subject)
        tables.append(identified(analysis.of_run(subject).assign(**made), runs.cell, run.config))
    write_csv(out, pd.concat(tables[1:] or tables, ignore_index=True))
    for parts in unfinished:
        parts.unlink(missing_ok=True)


def _made(analysis: Analysis, subject: Subject) -> dict[str, str]:
    """What each row tells of its making; a `UserError` if other runs are beside than those which are needed."""
    beside = zip(analysis.compared(), analysis.beside(subject), strict=True)
    identities = in_words((label, other.run.identity) for label, other in beside)
    return dict(
        zip(MADE, (in_words(analysis.options().items()), identities, analysis_fingerprint(analysis.name)), strict=True)
    )


def _nothing_to_say(analysis: Analysis, subjects: Sequence[Subject]) -> str | None:
    if analysis.of_diverged:
        return None
    for subject in subjects:
        if subject.run.diverged:
            return f"'{subject.run.path}' diverged"
        if not bool(subject.w.isfinite().all()):
            return f"the final model of '{subject.run.path}' has parameters that are not finite"
    return None
