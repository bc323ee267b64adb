# Rules only: expand grids -> train -> analyse -> tables and figures -> one page. All work is done by `fedflat`.
#
#   snakemake --cores 2                            everything of the embedded default experiment
#   snakemake --cores 2 quick_table_accuracy       one table, with the runs it needs
#   snakemake --cores 2 --config rounds=5 seeds=[0] results=/tmp/try     the same at a smaller scale, elsewhere
#   snakemake --cores 2 --config device=cuda       training on a GPU, one job at a time

import shlex
import sys
from pathlib import Path

from snakemake.utils import min_version, validate

from analysis.report import Report
from analysis.settings import AnalysisSettings, load_settings
from bench.config import experiment_file, read_yaml
from bench.errors import unknown
from bench.records import is_finished

min_version("9.0")

KEYS = ["device", "experiments", "replace", "results", "rounds", "seeds"]
for key in config:
    if key not in KEYS:
        raise unknown("--config key", key, KEYS)

RESULTS = str(config.get("results", "results"))
DEVICE = config.get("device", "cpu")
GPU = int(DEVICE != "cpu")
SHORT = {"rounds": "training.rounds", "seeds": "grid.seeds"}
CHANGES = {key: config[short] for short, key in SHORT.items() if short in config}
COMMON = shlex.join(["--results", RESULTS, *(f"--set={key}={value}" for key, value in CHANGES.items())])
REPLACE = "--replace" if config.get("replace") else ""

# Experiments by name: those of paper_tables/, or YAML files.
REPORTS = {}
sources = config.get("experiments", ["quick"])
for source in [sources] if isinstance(sources, str) else sources:
    report_of_source = Report(source, Path(RESULTS), CHANGES)
    REPORTS[report_of_source.experiment.name] = report_of_source
    validate(read_yaml(experiment_file(source)), workflow.source_path("bench/experiment.schema.json"), set_default=False)
CELLS = {(name, path): cell for name, r in REPORTS.items() for path, cell in r.experiment.cells().items()}
CELL = "{experiment}/{dataset}/{partition}/{participation}/{method}"

# `fedflat` is that of the environment in which Snakemake runs, activated or not.
shell.prefix(f"export PATH={Path(sys.executable).parent}:$PATH; ")


def cell_path(w):
    return f"{w.dataset}/{w.partition}/{w.participation}/{w.method}"


def source(w):
    return REPORTS[w.experiment].source


def identity(w):
    """A cell's identity. Runs of another configuration in its place are told here, before anything is touched."""
    cell = CELLS[w.experiment, cell_path(w)]
    for run in cell.runs:
        place = Path(RESULTS, "runs", w.experiment, cell.path, f"seed-{run.seed}")
        is_finished(place, run, replace=bool(REPLACE))
    return cell.identity


def made_by_rules(files):
    """A run directory is not an output by itself: whoever reads its partition asks for its metrics."""
    return [f.parents[1] / "metrics.csv" if f.name == "partition.csv" else f for f in files]


wildcard_constraints:
    experiment="|".join(REPORTS),
    dataset="[^/]+",
    partition="[^/]+",
    participation="[^/]+",
    method="[^/]+",
    analysis="|".join(AnalysisSettings.model_fields),
    name="[a-z0-9_]+",


rule all:
    input:
        expand(f"{RESULTS}/reports/{{experiment}}/index.html", experiment=REPORTS),


rule train:
    output:
        f"{RESULTS}/runs/{CELL}/metrics.csv",
    params:
        identity=identity,
        source=source,
        cell=cell_path,
    log:
        f"{RESULTS}/logs/{CELL}/train.log",
    benchmark:
        f"{RESULTS}/logs/{CELL}/train.tsv"
    resources:
        gpu=GPU,
    shell:
        "fedflat run {params.source:q} {params.cell} --out \"$(dirname {output:q})\" --device {DEVICE} --threads {threads}"
        " {COMMON} {REPLACE} > {log:q} 2>&1"


rule analyse:
    input:
        f"{RESULTS}/runs/{CELL}/metrics.csv",
    output:
        f"{RESULTS}/analysis/{CELL}/{{analysis}}.csv",
    params:
        settings=lambda w: getattr(load_settings(source(w)), w.analysis).model_dump_json(),
        source=source,
        cell=cell_path,
    log:
        f"{RESULTS}/logs/{CELL}/{{analysis}}.log",
    benchmark:
        f"{RESULTS}/logs/{CELL}/{{analysis}}.tsv"
    resources:
        gpu=GPU,
    shell:
        "fedflat analyse {wildcards.analysis} {params.source:q} {params.cell} --device {DEVICE} --threads {threads}"
        " {COMMON} > {log:q} 2>&1"


rule table:
    input:
        lambda w: made_by_rules(REPORTS[w.experiment].table_inputs(w.name)),
    output:
        report(f"{RESULTS}/reports/{{experiment}}/tables/{{name}}.md", category="{experiment}", subcategory="tables"),
        f"{RESULTS}/reports/{{experiment}}/tables/{{name}}.tex",
        f"{RESULTS}/reports/{{experiment}}/tables/{{name}}.csv",
    params:
        source=source,
    log:
        f"{RESULTS}/logs/{{experiment}}/table-{{name}}.log",
    shell:
        "fedflat table {params.source:q} {wildcards.name} {COMMON} > {log:q} 2>&1"


rule figure:
    input:
        lambda w: made_by_rules(REPORTS[w.experiment].figure_inputs(w.name)),
    output:
        report(f"{RESULTS}/reports/{{experiment}}/figures/{{name}}.png", category="{experiment}", subcategory="figures"),
        f"{RESULTS}/reports/{{experiment}}/figures/{{name}}.pdf",
    params:
        source=source,
    log:
        f"{RESULTS}/logs/{{experiment}}/figure-{{name}}.log",
    shell:
        "fedflat figure {params.source:q} {wildcards.name} {COMMON} > {log:q} 2>&1"


rule page:
    input:
        lambda w: expand(rules.table.output[0], experiment=w.experiment, name=REPORTS[w.experiment].table_names()),
        lambda w: expand(rules.figure.output[0], experiment=w.experiment, name=REPORTS[w.experiment].figure_names()),
    output:
        report(f"{RESULTS}/reports/{{experiment}}/index.html", category="{experiment}"),
    params:
        source=source,
        description=lambda w: REPORTS[w.experiment].experiment.description,
    log:
        f"{RESULTS}/logs/{{experiment}}/page.log",
    shell:
        "fedflat report {params.source:q} {COMMON} > {log:q} 2>&1"


# Targets by name: an experiment (quick), its tables and figures (quick_table_accuracy, quick_figure_drift).
for name, made in REPORTS.items():

    rule:
        name: name
        input:
            expand(rules.page.output, experiment=name),

    for table in made.table_names():

        rule:
            name: f"{name}_table_{table}"
            input:
                expand(rules.table.output, experiment=name, name=table),

    for figure in made.figure_names():

        rule:
            name: f"{name}_figure_{figure}"
            input:
                expand(rules.figure.output, experiment=name, name=figure),
