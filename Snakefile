# Rules only: expand grids -> train -> analyse -> tables and figures -> one page. All work is done by `fedflat`.
#
#   snakemake --cores 2                            everything of the embedded default experiment
#   snakemake --cores 2 quick_table_accuracy       one table, with the runs it needs
#   snakemake --cores 2 --config rounds=5 seeds=[0] results=/tmp/try     the same at a smaller scale, elsewhere
#   snakemake --cores 2 --config device=cuda       training on a GPU (one job at a time; four: --resources gpu=4)

import sys
from pathlib import Path

from snakemake.utils import min_version, validate

from analysis.report import figure_inputs, figure_names, table_inputs, table_names
from analysis.settings import AnalysisSettings, load_settings
from bench.config import Experiment, experiment_file, load_experiment, read_yaml

min_version("9.0")

SCHEMA = workflow.source_path("bench/experiment.schema.json")
RESULTS = config.get("results", "results")
DEVICE = config.get("device", "cpu")
CHANGES = {
    key: config[short]
    for short, key in {"rounds": "training.rounds", "seeds": "grid.seeds"}.items()
    if short in config
}
SET = " ".join(f"--set '{key}={value}'" for key, value in CHANGES.items())
COMMON = f"--results {RESULTS} {SET}"
REPLACE = "--replace" if config.get("replace") else ""

EXPERIMENTS = {}
for name in ["quick"]:
    validate(read_yaml(experiment_file(name)), SCHEMA, set_default=False)
    EXPERIMENTS[name] = load_experiment(name, CHANGES)
CELLS = {(name, path): cell for name, experiment in EXPERIMENTS.items() for path, cell in experiment.cells().items()}

# `fedflat` is taken from the environment that Snakemake runs in, activated or not.
shell.prefix(f"export PATH={Path(sys.executable).parent}:$PATH; ")


wildcard_constraints:
    experiment="|".join(EXPERIMENTS),
    setting="[^/]+/[^/]+/[^/]+",
    method="[^/]+",
    analysis="|".join(AnalysisSettings.model_fields),
    name="[a-z0-9_]+",


rule all:
    input:
        expand(f"{RESULTS}/reports/{{experiment}}/index.html", experiment=EXPERIMENTS),


rule train:
    output:
        f"{RESULTS}/runs/{{experiment}}/{{setting}}/{{method}}/metrics.csv",
    params:
        identity=lambda w: CELLS[w.experiment, f"{w.setting}/{w.method}"].identity,
    log:
        f"{RESULTS}/logs/{{experiment}}/{{setting}}/{{method}}/train.log",
    benchmark:
        f"{RESULTS}/logs/{{experiment}}/{{setting}}/{{method}}/train.tsv"
    resources:
        gpu=int(DEVICE != "cpu"),
    shell:
        "fedflat run {wildcards.experiment} {wildcards.setting}/{wildcards.method}"
        " --out $(dirname {output}) --device {DEVICE} --threads {threads} {COMMON} {REPLACE} > {log} 2>&1"


rule analyse:
    input:
        f"{RESULTS}/runs/{{experiment}}/{{setting}}/{{method}}/metrics.csv",
    output:
        f"{RESULTS}/analysis/{{experiment}}/{{setting}}/{{method}}/{{analysis}}.csv",
    params:
        settings=lambda w: getattr(load_settings(w.experiment), w.analysis).model_dump_json(),
    log:
        f"{RESULTS}/logs/{{experiment}}/{{setting}}/{{method}}/{{analysis}}.log",
    benchmark:
        f"{RESULTS}/logs/{{experiment}}/{{setting}}/{{method}}/{{analysis}}.tsv"
    resources:
        gpu=int(DEVICE != "cpu"),
    shell:
        "fedflat analyse {wildcards.analysis} {wildcards.experiment} {wildcards.setting}/{wildcards.method}"
        " --device {DEVICE} --threads {threads} {COMMON} > {log} 2>&1"


rule table:
    input:
        lambda w: table_inputs(EXPERIMENTS[w.experiment], w.name, Path(RESULTS)),
    output:
        report(f"{RESULTS}/reports/{{experiment}}/tables/{{name}}.md", category="{experiment}", subcategory="tables"),
        f"{RESULTS}/reports/{{experiment}}/tables/{{name}}.tex",
        f"{RESULTS}/reports/{{experiment}}/tables/{{name}}.csv",
    log:
        f"{RESULTS}/logs/{{experiment}}/table-{{name}}.log",
    shell:
        "fedflat table {wildcards.experiment} {wildcards.name} {COMMON} > {log} 2>&1"


rule figure:
    input:
        lambda w: figure_inputs(EXPERIMENTS[w.experiment], w.name, Path(RESULTS)),
    output:
        report(f"{RESULTS}/reports/{{experiment}}/figures/{{name}}.png", category="{experiment}", subcategory="figures"),
        f"{RESULTS}/reports/{{experiment}}/figures/{{name}}.pdf",
    log:
        f"{RESULTS}/logs/{{experiment}}/figure-{{name}}.log",
    shell:
        "fedflat figure {wildcards.experiment} {wildcards.name} {COMMON} > {log} 2>&1"


rule report_page:
    input:
        tables=lambda w: expand(rules.table.output[0], experiment=w.experiment, name=table_names(w.experiment)),
        figures=lambda w: expand(rules.figure.output[0], experiment=w.experiment, name=figure_names(w.experiment)),
    output:
        report(f"{RESULTS}/reports/{{experiment}}/index.html", category="{experiment}"),
    log:
        f"{RESULTS}/logs/{{experiment}}/report.log",
    shell:
        "fedflat report {wildcards.experiment} {COMMON} > {log} 2>&1"


# A target per table and figure, such as quick_table_accuracy and quick_figure_drift; and one per experiment.
for experiment in EXPERIMENTS:
    for table in table_names(experiment):

        rule:
            name: f"{experiment}_table_{table}"
            input:
                expand(rules.table.output, experiment=experiment, name=table),

    for figure in figure_names(experiment):

        rule:
            name: f"{experiment}_figure_{figure}"
            input:
                expand(rules.figure.output, experiment=experiment, name=figure),

    rule:
        name: experiment
        input:
            f"{RESULTS}/reports/{experiment}/index.html",
