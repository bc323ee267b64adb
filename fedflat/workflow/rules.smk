# The rules of the pipeline, for any Snakefile (fedflat/workflow/__init__.py). Every job runs a `fedflat` command.

import gc
import os
import sys
from pathlib import Path
from subprocess import CalledProcessError

# Snakemake puts the folders of Snakefiles first, where a user's statistics.py would hide that of Python.
sys.path.sort(key={workflow.basedir, str(workflow.current_basedir)}.__contains__)

from snakemake.utils import min_version

from fedflat.bench.host.threads import ONE_THREAD

os.environ.update(ONE_THREAD)  # before NumPy is loaded: the jobs are forks of this process
gc.disable()  # imports leave no garbage, and the search for it takes a fifth of their time

from snakemake.executors import local

from fedflat.analysis.planning.demands import JOB_THREADS
from fedflat.analysis.planning.given_config import check_numbers
from fedflat.analysis.planning.left_locks import begin_work
from fedflat.analysis.planning.workflow import Workflow, one_line_errors
from fedflat.command_server import CommandServer
from fedflat.job_lines import print_job_lines

gc.enable()
gc.freeze()  # what has been imported is not searched again

min_version("9.0")

LINES = print_job_lines(workflow.output_settings)
DEFAULTS = f"{workflow.basedir}/config/config.yaml"

if os.path.isfile(DEFAULTS):

    configfile: DEFAULTS


fedflat = CommandServer()  # before torch looks for a GPU, which a fork then could not use
SUBMITTED = workflow.remote_exec  # this process runs jobs that another one has submitted to a cluster
if not SUBMITTED:
    begin_work(Path(".snakemake"))
SUBMITS = workflow.nodes is not None and not SUBMITTED
CORES = workflow.resource_settings.max_threads or JOB_THREADS if SUBMITS or SUBMITTED else workflow.cores
one_line_errors(check_numbers)(workflow.config_settings.config_args, workflow.configfiles)
FLOW = one_line_errors(Workflow.of)(config, CORES, submits=SUBMITS, checks=not SUBMITTED)
if SUBMITTED:
    # Jobs of a group share this process and its command server, as local jobs do with --force-use-threads, which
    # Snakemake does not pass on to groups.
    local.Executor.use_threads = property(lambda executor: True, lambda executor, value: None)
else:
    for line in FLOW.left_out():
        print(line, file=sys.stderr)
GROUP = FLOW.group if SUBMITS or SUBMITTED else None
if GROUP:
    workflow.register_resource("slot", 1)

# `tmpdir=None` below: no job needs it, and Snakemake would evaluate its default again for each job.
PATHS, E, CELL = FLOW.paths, "{experiment}", "{dataset}/{partition}/{participation}/{method}"
REPORT = FLOW.report(E)
SHOWN = CELL.replace("{", "{wildcards.")
# Files of an archive have the times at which it was unpacked, which do not show what was computed from what.
TRAINED = ancient if PATHS.unpacked else str
TABLE, FIGURE = REPORT.table("{name}"), REPORT.figure("{name}")


def print_findings():
    """Print what check-method finds in the method that is compared. It takes seconds; tuning and training take minutes."""
    try:
        fedflat([FLOW.compared.check_log], "check-method", FLOW.compared.checked)
    except CalledProcessError:
        print(*FLOW.compared.findings, sep="\n", file=sys.stderr)


def force_outdated(wildcards):
    """No input; a list that is outdated counts as forced."""
    workflow.dag.forcefiles.update(map(str, FLOW.outdated_lists(wildcards)))
    return []


onstart:
    if not SUBMITTED:
        jobs = [(job.rule.name, job.wildcards) for job in workflow.dag.needrun_jobs()]
        FLOW.require_stored_runs(jobs)
        FLOW.require_data(jobs)
        if FLOW.compared and {"tune", "train"} & {rule for rule, _ in jobs}:
            print_findings()
    # Snakemake's limit of jobs per second polls once a second for each job that has ended. One machine needs no
    # limit, so `--max-jobs-per-timespan` has no effect there.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    else:
        # --group-components is needed in the submitted job, too: it keeps the cells there in one group.
        workflow.executor_plugin.common_settings.pass_group_args = True


def print_answer():
    """Print the answer of a comparison that was requested, also if it was finished earlier."""
    if any(job.rule.name == "compared" for job in workflow.dag.jobs):
        print("", *FLOW.compared.answer, sep="\n")


if LINES:
    LINES.idle = print_answer


onsuccess:
    print_answer()


onerror:
    for line in LINES.failures() if LINES else ():
        print(line, file=sys.stderr)


# Limits that hold on one machine, or within one group of jobs on a cluster, but not for the sum of all submitted jobs.
# A group has one slot: its jobs run one after the other.
resource_scopes:
    gpu="local",
    slot="local",


# Rendering takes seconds, less than submitting a job.
localrules: split, tuned, table, figure, claims, explore, page, study, tuning_report, compared


def slot(wildcards):
    """The slots of a job: 0 on one machine, where their number would limit all jobs."""
    return int(SUBMITTED or not workflow.local_exec)


wildcard_constraints:
    experiment="|".join(FLOW.experiments),
    dataset="[^/]+",
    partition="[^/]+",
    participation="[^/]+",
    method="[^/]+",
    analysis="|".join(FLOW.analysis_names),
    name="[a-z0-9_]+",
    seed="[0-9]+",
    target="[A-Za-z0-9_-]+",


rule train:
    message: "train " + SHOWN
    input: force_outdated
    output: PATHS.runs(E, CELL)
    log: PATHS.log(E, "train", CELL)
    threads: FLOW.threads
    resources: gpu=FLOW.gpus, slot=slot, mem_mb=FLOW.mebibytes, runtime=FLOW.minutes, tmpdir=None
    group: GROUP
    run:
        fedflat(log, "run", FLOW.name_or_file(wildcards), FLOW.cell_path(wildcards), "--list", "--replace-damaged",
                "--device", FLOW.device, "--threads", threads, *FLOW.replace, *FLOW.logging, *FLOW.options)


rule tune:
    message: "tune " + SHOWN
    output: PATHS.trials(E, CELL)
    params: search=FLOW.checked_search
    log: PATHS.log(E, "tune", CELL)
    threads: FLOW.threads
    resources: gpu=FLOW.gpus, slot=slot, mem_mb=FLOW.mebibytes, runtime=FLOW.minutes_of_tuning, tmpdir=None
    run:
        fedflat(log, "tune", FLOW.name_or_file(wildcards), FLOW.cell_path(wildcards),
                "--device", FLOW.device, "--threads", threads, *FLOW.replace, *FLOW.options)


checkpoint tuned:
    message: "tuned values of {wildcards.experiment}"
    input: FLOW.trials
    output: PATHS.tuned(E)
    params: name_or_file=FLOW.name_or_file, searches=FLOW.searches
    log: PATHS.log(E, "tuned")
    run:
        fedflat(log, "tune", params.name_or_file, "--out", output[0], "--device", "cpu", *FLOW.strict(wildcards),
                *FLOW.options)


rule split:
    message: "split of " + SHOWN
    output: PATHS.partition(E, CELL, "{seed}")
    params: identity=FLOW.identity
    log: PATHS.log(E, "split-{seed}", CELL)
    run:
        fedflat(log, "data", "split", FLOW.name_or_file(wildcards), FLOW.cell_path(wildcards), "--seed", wildcards.seed,
                *FLOW.options)


rule analyse:
    message: "{wildcards.analysis} of " + SHOWN
    input:
        TRAINED(PATHS.runs(E, CELL)),
        lambda w: [TRAINED(file) for file in FLOW.runs_compared_with(w)],
        force_outdated,
    output: PATHS.analysis(E, CELL, "{analysis}")
    params: analysis=FLOW.analysis
    log: PATHS.log(E, "{analysis}", CELL)
    threads: FLOW.threads
    resources: gpu=FLOW.gpus, slot=slot, mem_mb=FLOW.mebibytes, runtime=FLOW.minutes, tmpdir=None
    group: GROUP
    run:
        folder, *others = (Path(file).parent for file in input)
        fedflat(log, "analyse", *params.analysis, folder, *(f"--compare-with={other}" for other in others),
                "--list", output[0], "--device", FLOW.device, "--threads", threads, *FLOW.replace)


rule table:
    message: "table {wildcards.name} of {wildcards.experiment}"
    input: FLOW.table_inputs
    output:
        report(TABLE[0], category=E, subcategory="tables"),
        TABLE[1:],
    params: cells=FLOW.identities_shown, name_or_file=FLOW.name_or_file
    log: PATHS.log(E, "table-{name}")
    run:
        fedflat(log, "table", params.name_or_file, wildcards.name, *FLOW.options)


rule figure:
    message: "figure {wildcards.name} of {wildcards.experiment}"
    input: FLOW.figure_inputs
    output:
        report(FIGURE[0], category=E, subcategory="figures"),
        FIGURE[1:],
    params: cells=FLOW.identities_shown, name_or_file=FLOW.name_or_file
    log: PATHS.log(E, "figure-{name}")
    run:
        fedflat(log, "figure", params.name_or_file, wildcards.name, *FLOW.options)


rule claims:
    message: "claims of {wildcards.experiment}"
    input: FLOW.claims_inputs
    output: report(REPORT.claims, category=E)
    params: cells=FLOW.identities_shown, name_or_file=FLOW.name_or_file
    log: PATHS.log(E, "claims")
    run:
        fedflat(log, "claims", params.name_or_file, "--out", output[0], *FLOW.options)


rule explore:
    message: "interactive page of {wildcards.experiment}"
    input: FLOW.explorer_inputs
    output: REPORT.explorer
    params: cells=FLOW.identities_shown, name_or_file=FLOW.name_or_file, description=FLOW.description
    log: PATHS.log(E, "explore")
    run:
        pages = [job.wildcards.experiment for job in workflow.dag.jobs if job.rule.name == "page"]
        fedflat(log, "explore", params.name_or_file, *["--link-report"] * (wildcards.experiment in pages), *FLOW.options)


rule page:
    message: "page of {wildcards.experiment}"
    input: FLOW.page_inputs
    output: report(REPORT.page, category=E)
    params: name_or_file=FLOW.name_or_file, description=FLOW.description
    log: PATHS.log(E, "page")
    run:
        fedflat(log, "report", params.name_or_file, *FLOW.options)


rule study:
    message: "study of flatness of {wildcards.experiment}"
    input: FLOW.study_inputs
    output: report(REPORT.study / "study.md", category=E)
    params: cells=FLOW.identities_shown, command=FLOW.study_command
    log: PATHS.log(E, "study")
    run:
        fedflat(log, *params.command, "--out", Path(output[0]).parent, *FLOW.options)


def tuning_reported(wildcards):
    """The files of a report on tuning; tuned configurations are known when the tuned values are written."""
    if FLOW.reports_on_runs(wildcards):
        checkpoints.tuned.get(experiment=wildcards.experiment)
    return FLOW.tuning_report_inputs(wildcards)


rule tuning_report:
    message: "what tuning changes in {wildcards.experiment}"
    input: tuning_reported
    output: report(REPORT.tuning / "tuning.md", category=E)
    params: cells=FLOW.identities_shown, command=FLOW.tuning_report_command
    log: PATHS.log(E, "tuning_report")
    run:
        fedflat(log, *params.command, "--out", Path(output[0]).parent, *FLOW.options)


def runs_compared(wildcards):
    """The files of the compared runs; their configurations are known when the tuned values are written."""
    if FLOW.compared.is_tuned:
        checkpoints.tuned.get(experiment=FLOW.compared.name)
    return FLOW.comparison_inputs(wildcards)


rule compared:
    message: "comparison of {wildcards.experiment} with stored baselines"
    input: runs_compared, baselines=FLOW.stored_runs
    output: report(REPORT.comparison / "report.md", category=E)
    params: cells=FLOW.identities_compared
    log: PATHS.log(E, "compared")
    run:
        fedflat(log, "compare", FLOW.compared.label, "--grid", FLOW.compared.grid,
                "--experiment", FLOW.name_or_file(wildcards), "--out", Path(output[0]).parent, *FLOW.options)


# Targets by name: an experiment (quick), all its runs (quick_runs), its interactive page (quick_explore), its tuned
# values (quick_tune), one analysis of all its runs (quick_analysis_hessian), one table or figure
# (quick_table_accuracy, fedgf_figure_4), the claims of a paper (fedgf_claims), the study of flatness (quick_study), what
# tuning changes (quick_tuning_report), all_tables, all_figures, and compare.
for target, files in () if SUBMITTED else FLOW.targets.items():

    rule:
        name: target
        input: files


# The file without a folder that no other rule writes: a mistyped target.
rule unknown:
    output: "{target}"
    input: FLOW.unknown_target


if LINES:
    LINES.targets |= {"all", *FLOW.targets}
    LINES.unfinished = lambda: [job.rule.name for job in workflow.dag.needrun_jobs()]
