"""The summary of an experiment: how many runs are finished, which method leads, and where the report is stored."""

from collections import Counter

from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import FinalValue, diverged_seeds, final_values, stopped_runs
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.sections.evaluation import score_column
from fedflat.bench.input.errors import counted
from fedflat.bench.metrics.columns import score_words


def summary(requested: RequestedExperiment) -> str:
    """The headline of an experiment, and the paths of its report."""
    requested.check_runs(requested.target)
    report = requested.report_paths
    return "\n".join(
        [*headline(requested.tidy), f"report: {report.page}", f"tables: {report.tables}, figures: {report.figures}"]
    )


def headline(tidy: Tidy) -> list[str]:
    """A line with counts of runs, and a line with the leading method and the runner-up.

    Methods are compared by their mean over all settings and seeds; methods with missing or diverged runs are excluded.
    """
    experiment = tidy.experiment
    cells, settings = experiment.addresses, experiment.settings
    metrics = tidy.gather("metrics", cells)
    runs = diverged_seeds(metrics)
    planned: Counter[str] = Counter()
    for cell in cells:
        planned[cell.method] += len(experiment.resolved_parts[cell.setting.dataset].grid.seeds)
    finished, diverged = runs["seeds"].sum(), runs["diverged"].sum()
    stopped = sum(len(seeds) for seeds in stopped_runs(metrics).values())
    early = f", {stopped} stopped early" if stopped else ""
    lines = [f"{experiment.name}: {finished} of {planned.total()} runs, {diverged} of them diverged{early}"]

    final, most_runs = FinalValue(), max(planned.values())
    score = score_column(metrics.dropna(axis="columns", how="all"), "test_")
    values = final_values(metrics, score, final, "higher")
    complete = [
        method for method, rows in values.groupby("method") if len(rows) == most_runs and rows["value"].notna().all()
    ]
    means = values[values["method"].isin(complete)].groupby("method")["value"].mean().sort_values(ascending=False)
    names = method_titles(experiment)
    ranked = [f"{names[str(method)]} with {mean:.2f} %" for method, mean in means.items()]
    of = "" if len(ranked) == len(experiment.methods) else f", of the {len(ranked)} methods that finished all of them"
    if len(ranked) > 1 or len(experiment.methods) == len(ranked) == 1:
        runner_up = f", then {ranked[1]}" if len(ranked) > 1 else ""
        lines.append(
            f"highest mean {score_words(score)} over {counted(len(settings), 'setting')}{of} "
            f"({final.description}): {ranked[0]}{runner_up}"
        )
    else:
        lines.append("fewer than two methods have finished all settings without divergence: none leads")
    return lines
