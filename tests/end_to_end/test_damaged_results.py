"""Files of results are damaged in many ways and read again: the result is right, or the error is one line.

FEDFLAT_DAMAGES sets how many damages each test draws.
"""

import functools
import html
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.comparison.adding import add
from fedflat.analysis.comparison.compare import compare
from fedflat.analysis.figures.draw import caption, draw
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.headline import summary
from fedflat.analysis.report.report import render_page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import read_checked_json
from fedflat.bench.files.tensor_file import open_tensors
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.train import train_cell
from tests import commands
from tests.analysis.conftest import analysed, words
from tests.bench.training.small_runs import InterruptedRunError, config, contents, interrupted_after_three_rounds
from tests.places import MINI
from tests.problems import train
from tests.tables import without_checksum

CPU = torch.device("cpu")
EXPERIMENT = {"training.rounds": 2, "evaluation.every": 1, "evaluation.local_models": [2]}
METHODS = [f"digits/dirichlet-0.1/4-of-20/{method}" for method in ("fedavg", "fedsam")]
ANALYSES = {
    "cost": parse_analysis("cost", {}),
    "drift": parse_analysis("drift", {}),
    "discrepancy": parse_analysis("discrepancy", {"local_models": "kept"}),
}

many = settings(
    max_examples=int(os.environ.get("FEDFLAT_DAMAGES", "5")),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a damaged file would take minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def requested(results: Path) -> RequestedExperiment:
    return RequestedExperiment(MINI, results, EXPERIMENT)


# Commands, without the start of a process: each returns what it shows or writes


def run_again(results: Path) -> list[str]:
    experiment, paths = load_experiment(MINI, EXPERIMENT), ResultPaths(results)
    for cell in METHODS:
        train_cell("mini", experiment.cell(cell), results, CPU, silent)
    return [paths.runs("mini", cell).read_text(encoding="utf-8") for cell in METHODS]


def analyse(name: str) -> Callable[[Path], list[str]]:
    def texts(results: Path) -> list[str]:
        found = []
        for cell in METHODS:
            run_analysis(ANALYSES[name], ResultPaths(results).lists("mini", cell), results / "out.csv", CPU, silent)
            found.append((results / "out.csv").read_text(encoding="utf-8"))
        return found

    return texts


def table(results: Path) -> list[str]:
    tables = Tables(requested(results))
    return [file.read_text(encoding="utf-8") for name in tables.names() for file in tables.render(name)]


def report(results: Path) -> str:
    return render_page(requested(results)).read_text(encoding="utf-8")


def figure(name: str) -> Callable[[Path], str]:
    def text(results: Path) -> str:
        figures = Figures(requested(results))
        draw(figures.layout(name), figures.requested.tidy).clear()
        return words(caption(figures.layout(name), figures.requested.tidy))

    return text


def baselines(results: Path) -> str:
    folder = add([requested(results)], "mini", results / "stored", analyses=False, replace=True)
    return "".join(file.read_text(encoding="utf-8") for file in sorted(folder.iterdir()))


def comparison(results: Path) -> str:
    options = {"experiment": MINI, "overrides": EXPERIMENT, "baselines": results / "baselines" / "mini"}
    found = compare("fedsam", "mini", results, **options)
    return found.rows.to_csv() + found.curves.to_csv()


RUN = r"fedsam-\w+/seed-1/"
METRICS = rf"fedsam/runs\.csv|{RUN}(metrics\.csv|provenance\.json)"


def of_analyses(*names: str) -> str:
    """The lists and the files of FedSAM's analyses with these names."""
    any_of = "|".join(names)
    return rf"fedsam/({any_of})\.csv|fedsam-\w+/seed-0/analyses/({any_of})-\w+\.csv"


COMMANDS = {
    "run again": (run_again, rf"{RUN}(metrics\.csv|times\.csv|provenance\.json)"),
    "analyse cost": (analyse("cost"), rf"{METRICS}|{RUN}(metrics|times|config|provenance|final)\..*"),
    "analyse drift": (analyse("drift"), rf"{RUN}(snapshots/.*|partition.*|config.*|provenance.*)"),
    "analyse discrepancy": (analyse("discrepancy"), rf"{RUN}(local_models/.*)"),
    "table": (
        table,
        rf"{METRICS}|{of_analyses('hessian', 'flatness', 'discrepancy')}",
    ),
    "summary": (lambda results: summary(requested(results)), METRICS),
    "report": (report, rf"{METRICS}|{of_analyses('flatness', 'drift', 'surface')}"),
    "figure convergence": (figure("convergence"), METRICS),
    "figure drift": (figure("drift"), of_analyses("drift")),
    "figure surfaces": (figure("surfaces"), of_analyses("surface")),
    "figure perturbation": (
        figure("perturbation"),
        of_analyses("perturbation"),
    ),
    "figure labels": (figure("labels"), r"partitions/.*partition\.csv\.gz"),
    "baselines": (baselines, rf"{RUN}(metrics|times|partition|config|provenance)\..*"),
    "compare": (comparison, rf"mini/(runs|about|curves)\.csv|{RUN}(metrics|config|provenance)\..*"),
}
"""Each command, and the files that it reads."""


def files_read(results: Path, pattern: str) -> list[Path]:
    files = sorted(file for file in results.rglob("*") if file.is_file())
    found = [file for file in files if re.search(f"(^|/)({pattern})$", str(file.relative_to(results)))]
    assert found, pattern
    return found


def undamaged(results: Path) -> None:
    """Runs, analyses, splits and baselines of the experiment mini, two rounds each."""
    experiment, paths, wanted = load_experiment(MINI, EXPERIMENT), ResultPaths(results), requested(results)
    for cell in METHODS:
        train_cell("mini", experiment.cell(cell), results, CPU, silent)
        for name in ("hessian", "flatness", "discrepancy", "drift", "surface", "perturbation"):
            analysed(paths, "mini", cell, name, wanted.analyses[name])
    split = paths.partition("mini", METHODS[0], 0)
    split.parent.mkdir(parents=True)
    shutil.copy(paths.run(experiment.cell(METHODS[0]).runs[0]) / "partition.csv.gz", split)
    add([wanted], "mini", results / "baselines" / "mini", analyses=False)


@pytest.fixture(scope="session")
def finished(once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of these results for this process, which damages them."""
    return Path(shutil.copytree(once(undamaged), tmp_path_factory.mktemp("finished") / "results"))


@pytest.fixture(scope="session")
def is_right(finished: Path) -> Callable[[str, object], bool]:
    """Whether a command shows what it shows while nothing is damaged."""
    right = functools.cache(lambda name: COMMANDS[name][0](finished))
    return lambda name, shown: shown == right(name)


@pytest.fixture(scope="session")
def unchecked(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same results as an earlier version wrote them, without checksums."""
    results = Path(shutil.copytree(finished, tmp_path_factory.mktemp("unchecked") / "results"))
    for file in (file for file in results.rglob("*") if file.is_file()):
        remove_checksum(file)
    return results


def remove_checksum(file: Path) -> None:
    if file.suffix == ".csv":
        without_checksum(file)
    elif file.suffix == ".json":
        file.write_text(json.dumps(read_checked_json(file, ""), indent=2) + "\n", encoding="utf-8")
    elif file.suffix == ".safetensors":
        with open_tensors(file, "") as tensors:
            copies = {name: tensors.read(name, CPU) for name in tensors.names}
            about = {"about": tensors.metadata["about"]}
        safetensors.torch.save_file(copies, file, about)


# Damages

ODD_BYTES = [
    b"",
    b"\0",
    b"\xe9",
    b'"',
    b",",
    b"\n",
    b"-",
    b"0",
    b"7",
    b"nan",
    b"1e999",
    b"x",
    b"9" * 25,
    b"{",
    b"[" * 50_000,
]


@st.composite
def damages(draw: st.DrawFn, data: bytes) -> tuple[bytes, str]:
    """The content of a file after one damage, and what was done."""
    at = draw(st.integers(0, len(data) - 1))
    end = draw(st.integers(at, min(len(data), at + 200)))
    lines = data.splitlines(keepends=True)
    line = draw(st.integers(0, len(lines) - 1))
    fields = re.split(rb"([,:\n])", lines[line])
    field = 2 * draw(st.integers(0, len(fields) // 2))
    odd = draw(st.sampled_from(ODD_BYTES) | st.binary(max_size=9))
    kinds = {
        "a flipped bit": lambda: data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :],
        "cut": lambda: data[:at],
        "inserted bytes": lambda: data[:at] + odd + data[at:],
        "missing bytes": lambda: data[:at] + data[end:],
        "replaced bytes": lambda: data[:at] + odd + data[end:],
        "zeros": lambda: data[:at] + bytes(end - at) + data[end:],
        "a missing line": lambda: b"".join(lines[:line] + lines[line + 1 :]),
        "missing lines": lambda: b"".join(lines[:line]),
        "a repeated line": lambda: b"".join(lines[: line + 1] + lines[line:]),
        "another value": lambda: b"".join(
            [*lines[:line], *fields[:field], odd, *fields[field + 1 :], *lines[line + 1 :]]
        ),
    }
    kind = draw(st.sampled_from(list(kinds)))
    changed = kinds[kind]()
    assume(changed != data)
    return changed, f"{kind} at byte {at}, line {line + 1}, field {field // 2 + 1}, {odd[:9]!r}"


@contextmanager
def replaced(file: Path, content: bytes) -> Iterator[None]:
    """The file with other content; afterwards all files are as before."""
    before = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


def outcome(command: Callable[[Path], object], results: Path) -> tuple[object, str | None]:
    """What a command shows, or its error, which must be one line; any other exception fails the test."""
    try:
        return command(results), None
    except UserError as error:
        assert str(error).isprintable(), "one line, without control characters"
        return None, str(error)


@pytest.mark.parametrize("name", COMMANDS)
@many
@given(data=st.data())
def test_a_damaged_file_is_refused_or_does_no_harm(name, data, finished, is_right):
    command, pattern = COMMANDS[name]
    file = data.draw(st.sampled_from(files_read(finished, pattern)))
    content, kind = data.draw(damages(file.read_bytes()))
    with replaced(file, content):
        shown, error = outcome(command, finished)
    if error is None and name == "report" and not is_right(name, shown):
        error = html.unescape(shown)  # the page says it in the place of a figure
    damaged = str(file).removesuffix(".sha256")  # one of both does not fit the other
    assert is_right(name, shown) if error is None else f"'{damaged}' is damaged" in error, (kind, file.name, error)


@pytest.mark.parametrize("name", COMMANDS)
@many
@given(data=st.data())
def test_a_damaged_file_without_a_checksum_gives_no_traceback(name, data, unchecked):
    command, pattern = COMMANDS[name]
    file = data.draw(st.sampled_from(files_read(unchecked, pattern)))
    with replaced(file, data.draw(damages(file.read_bytes()))[0]):
        outcome(command, unchecked)


# Unfinished runs


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A folder with a run of three of six rounds, and the files of the same run when it is finished."""
    folder = tmp_path_factory.mktemp("interrupted")
    with (
        pytest.MonkeyPatch.context() as patch,
        interrupted_after_three_rounds(patch),
        pytest.raises(InterruptedRunError),
    ):
        train(config(), folder / "run", CPU)
    assert len(list(folder.glob("run.partial-*/checkpoint*"))) == 2
    return folder, contents(train(config(), tmp_path_factory.mktemp("undisturbed") / "run", CPU).path)


@many
@given(data=st.data())
def test_after_any_damage_of_a_checkpoint_the_run_ends_with_the_same_bits(data, interrupted):
    folder, right = interrupted
    names = ["checkpoint.safetensors", "checkpoint.older.safetensors", "clients.slots"]
    with tempfile.TemporaryDirectory() as again:
        shutil.copytree(folder, again, dirs_exist_ok=True)
        for name in data.draw(st.sets(st.sampled_from(names), min_size=1)):
            [file] = Path(again).glob(f"run.partial-*/{name}")
            file.write_bytes(data.draw(damages(file.read_bytes()))[0])
        said = []
        assert contents(train(config(), Path(again, "run"), CPU, progress=said.append).path) == right
        assert all(line.isprintable() for line in said)


# The commands themselves


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["run", METHODS[1]], f"store/{METHODS[1]}-*/seed-1/provenance.json"),
        (["table", "accuracy"], f"experiments/mini/{METHODS[1]}/runs.csv"),
        (["figure", "drift"], f"store/{METHODS[1]}-*/seed-0/analyses/drift-*.csv"),
        (["summary"], f"store/{METHODS[1]}-*/seed-1/metrics.csv"),
        (["report"], f"experiments/mini/{METHODS[1]}/runs.csv"),
        (["baselines", "add", "--grid", "again", "--without-analyses"], f"store/{METHODS[1]}-*/seed-0/config.json"),
        (["compare", "fedsam", "--grid", "mini"], "baselines/mini/runs.csv"),
    ],
)
def test_the_command_ends_with_one_line_and_code_2(words, file, finished, tmp_path):
    results = Path(shutil.copytree(finished, tmp_path / "results"))
    [damaged] = results.glob(file)
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    name, *others = words
    command, others = (["baselines", "add"], others[1:]) if name == "baselines" else ([name], others)
    experiment = ["--experiment", MINI] if name == "compare" else [MINI]
    options = [f"--set={key}={json.dumps(value)}" for key, value in EXPERIMENT.items()]
    done = commands.run(["fedflat", *command, *experiment, *others, "--results", str(results), *options], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    place = damaged.relative_to(results)
    assert re.fullmatch(rf"fedflat: '.*{place}' is damaged \(.*\): .*", line)
