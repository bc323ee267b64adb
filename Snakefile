# Rules only: expand grids -> train -> analyse -> tables and figures -> one page. All work is done by `fedflat`.
#
#   snakemake --cores 2                            everything of the embedded default experiment
#   snakemake --cores 2 quick_table_accuracy       one table, with the runs it needs
#   snakemake --cores 2 --config rounds=5 seeds=[0] results=/tmp/try     the same at a smaller scale, elsewhere
#   snakemake --cores 8 --config device=cuda       on a GPU, one job at a time; with --resources gpu=4: on four

import shlex
import sys
from pathlib import Path

from snakemake.utils import min_version, validate

from analysis.planning.workflow import Workflow
from fedflat import warm
from bench.experiments.resolving import experiment_data
from bench.input.errors import UserError

min_version("9.0")


def stop(error):
    """Bad input is one line, not a traceback."""
    sys.exit(f"fedflat: {error}")


try:
    FLOW = Workflow.of(config)
except UserError as error:
    stop(error)
REPORTS = FLOW.reports
for name in FLOW.asked:
    validate(experiment_data(REPORTS[name].source), workflow.source_path("bench/experiments/experiment.schema.json"), set_default=False)
    for line in REPORTS[name].left_out():
        print(line, file=sys.stderr)
RESULTS = str(FLOW.results)
REPORT_FOLDER = FLOW.report_folder
GPU = int(FLOW.device != "cpu")
ON_DEVICE = f"--device {FLOW.device}"
COMMON = FLOW.options
REPLACE = "--replace" if FLOW.replace else ""
CELL = "{experiment}/{dataset}/{partition}/{participation}/{method}"

# `fedflat` is that of the environment in which Snakemake runs, activated or not.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")


def cell_path(w):
    return f"{w.dataset}/{w.partition}/{w.participation}/{w.method}"


def source(w):
    return REPORTS[w.experiment].source


def answer(function, *arguments):
    """What a function says; bad input ends everything."""
    try:
        return function(*arguments)
    except UserError as error:
        stop(error)


def identity(w):
    return answer(FLOW.identity, w.experiment, cell_path(w))


def threads(w):
    return FLOW.threads(w.experiment, cell_path(w), workflow.cores or 1)


def inputs(kind):
    """The files that a table or figure is made from."""

    def files(w):
        made = REPORTS[w.experiment]
        return answer(made.table_inputs if kind == "table" else made.figure_inputs, w.name)

    return files


def asked(w):
    return REPORTS[w.experiment].analyses[w.analysis]


def compared_with(w):
    """Folders of the other runs that an analysis compares with."""
    paths = answer(FLOW.compared, w.experiment, cell_path(w), w.analysis)
    return [f"{RESULTS}/runs/{w.experiment}/{path}" for path in paths]


def trained(experiment):
    """The files of all runs of an experiment."""
    return lambda w: [f"{RESULTS}/runs/{experiment}/{path}/metrics.csv" for path in answer(FLOW.trained, experiment)]


def analysed(experiment, analysis):
    """The files of an analysis of all cells of an experiment."""
    return lambda w: [
        f"{RESULTS}/analysis/{experiment}/{path}/{analysis}.csv"
        for path in answer(FLOW.analysed, experiment, analysis)
    ]


def shown(w, input):
    return answer(FLOW.shown, w.experiment, map(Path, input))


onstart:
    # Jobs on this machine need not import torch anew. Not in the processes that Snakemake starts on a cluster's nodes.
    if workflow.is_main_process and workflow.local_exec and not workflow.touch:
        warm.start()


wildcard_constraints:
    experiment="|".join(REPORTS),
    dataset="[^/]+",
    partition="[^/]+",
    participation="[^/]+",
    method="[^/]+",
    analysis="|".join(dict.fromkeys(analysis for made in REPORTS.values() for analysis in made.analysis_names)),
    name="[a-z0-9_]+",
    seed="[0-9]+",


rule all:
    input:
        expand(f"{REPORT_FOLDER}/index.html", experiment=FLOW.asked),


rule train:
    message:
        "train {params.cell}"
    output:
        f"{RESULTS}/runs/{CELL}/metrics.csv",
    params:
        identity=identity,
        source=source,
        cell=cell_path,
    log:
        f"{RESULTS}/logs/{CELL}/train.log",
    threads: threads
    resources:
        gpu=GPU,
    shell:
        "fedflat run {params.source:q} {params.cell} --out \"$(dirname {output:q})\" {ON_DEVICE} --threads {threads}"
        " {COMMON} {REPLACE} > {log:q} 2>&1"


rule split:
    message:
        "split of {params.cell}"
    output:
        f"{RESULTS}/partitions/{CELL}/seed-{{seed}}/partition.csv.gz",
    params:
        identity=lambda w: answer(FLOW.cell, w.experiment, cell_path(w)).identity,
        source=source,
        cell=cell_path,
    log:
        f"{RESULTS}/logs/{CELL}/split-{{seed}}.log",
    shell:
        "fedflat data split {params.source:q} {params.cell} --seed {wildcards.seed} {COMMON} > {log:q} 2>&1"


rule analyse:
    message:
        "{wildcards.analysis} of {params.cell}"
    input:
        f"{RESULTS}/runs/{CELL}/metrics.csv",
        compared_with=lambda w: [f"{folder}/metrics.csv" for folder in compared_with(w)],
    output:
        f"{RESULTS}/analysis/{CELL}/{{analysis}}.csv",
    params:
        identity=identity,
        name=lambda w: asked(w).name,
        cell=cell_path,
        compare_with=lambda w: shlex.join(f"--compare-with={folder}" for folder in compared_with(w)),
        options=lambda w: shlex.join(f"--set={name}={value}" for name, value in asked(w).options().items()),
    log:
        f"{RESULTS}/logs/{CELL}/{{analysis}}.log",
    threads: threads
    resources:
        gpu=GPU,
    shell:
        "fedflat analyse {params.name} \"$(dirname {input[0]:q})\" {params.compare_with} {params.options}"
        " --out {output:q} {ON_DEVICE} --threads {threads} > {log:q} 2>&1"


rule table:
    message:
        "table {wildcards.name} of {wildcards.experiment}"
    input:
        inputs("table"),
    output:
        report(f"{REPORT_FOLDER}/tables/{{name}}.md", category="{experiment}", subcategory="tables"),
        f"{REPORT_FOLDER}/tables/{{name}}.tex",
        f"{REPORT_FOLDER}/tables/{{name}}.csv",
        f"{REPORT_FOLDER}/tables/{{name}}.html",
    params:
        cells=shown,
        source=source,
    log:
        f"{RESULTS}/logs/{{experiment}}/table-{{name}}.log",
    shell:
        "fedflat table {params.source:q} {wildcards.name} {COMMON} > {log:q} 2>&1"


rule figure:
    message:
        "figure {wildcards.name} of {wildcards.experiment}"
    input:
        inputs("figure"),
    output:
        report(f"{REPORT_FOLDER}/figures/{{name}}.png", category="{experiment}", subcategory="figures"),
        f"{REPORT_FOLDER}/figures/{{name}}.pdf",
        f"{REPORT_FOLDER}/figures/{{name}}.md",
    params:
        cells=shown,
        source=source,
    log:
        f"{RESULTS}/logs/{{experiment}}/figure-{{name}}.log",
    shell:
        "fedflat figure {params.source:q} {wildcards.name} {COMMON} > {log:q} 2>&1"


rule page:
    message:
        "page of {wildcards.experiment}"
    input:
        lambda w: expand(rules.table.output[0], experiment=w.experiment, name=REPORTS[w.experiment].tables_shown()),
        lambda w: expand(rules.figure.output[0], experiment=w.experiment, name=REPORTS[w.experiment].figures_shown()),
    output:
        report(f"{REPORT_FOLDER}/index.html", category="{experiment}"),
    params:
        source=source,
        description=lambda w: answer(FLOW.description, w.experiment),
    log:
        f"{RESULTS}/logs/{{experiment}}/page.log",
    shell:
        "fedflat report {params.source:q} {COMMON} > {log:q} 2>&1"


# Targets by name: an experiment (quick), all its runs (quick_runs), one analysis of all of them (quick_analysis_hessian),
# its tables and figures (quick_table_accuracy, fedgf_figure_4), whatever the scale; and those of all papers (all_tables).
for experiment, made in REPORTS.items():
    target = made.target

    rule:
        name: target
        input:
            expand(rules.page.output, experiment=experiment),

    rule:
        name: f"{target}_runs"
        input:
            trained(experiment),

    for analysis in made.analysis_names:

        rule:
            name: f"{target}_analysis_{analysis}"
            input:
                analysed(experiment, analysis),

    for table in made.table_names():

        rule:
            name: f"{target}_table_{table}"
            input:
                expand(rules.table.output, experiment=experiment, name=table),

    for figure in made.figure_names():

        rule:
            name: f"{target}_figure_{figure}"
            input:
                expand(rules.figure.output, experiment=experiment, name=figure),

    for figure, parts in made.subfigures().items():

        rule:
            name: f"{target}_figure_{figure}"
            input:
                expand(rules.figure.output, experiment=experiment, name=parts),


PAPERS = [experiment for experiment, made in REPORTS.items() if made.is_paper]

rule all_tables:
    input:
        lambda w: [f for p in PAPERS for f in expand(rules.table.output, experiment=p, name=REPORTS[p].tables_shown())],


rule all_figures:
    input:
        lambda w: [f for p in PAPERS for f in expand(rules.figure.output, experiment=p, name=REPORTS[p].figures_shown())],
