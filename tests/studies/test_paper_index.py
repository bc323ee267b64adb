"""The index of tables and figures: the committed page, what it counts, and the file of times that it is made from."""

import io
import pickle
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.planning.gradient_times import Gradient, GradientTimes
from fedflat.analysis.planning.plan import plan, total
from fedflat.analysis.published.numbers import papers
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_names
from fedflat.bench.input.errors import UserError
from studies.papers.index import main
from studies.papers.printed_coverage import coverage
from tests.analysis.papers import requested, tables
from tests.analysis.published.published_counts import ROWS
from tests.commands import run
from tests.tiers import thorough

CPU = torch.device("cpu")
COSTS = PAPER_TABLES / "costs.csv"
SMALL = Gradient('{"name":"cnn_gn"}', (1, 8, 8), 10, 16)


def _generate(folder: Path) -> None:
    """The page that `python -m studies.papers.index` writes, and the gradients whose times it needs."""
    shutil.copy(COSTS, folder)
    time_of, timed = GradientTimes.__call__, set[Gradient]()

    def recorded(times: GradientTimes, gradient: Gradient) -> float:
        timed.add(gradient)
        return time_of(times, gradient)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(GradientTimes, "__call__", recorded)
        main(out=folder)
    assert printed.getvalue() == f"{folder / 'README.md'}\n"
    (folder / "timed").write_bytes(pickle.dumps(timed))


@pytest.fixture(scope="module")
def folder(once: Callable[[Callable[[Path], object]], Path]) -> Path:
    """Generated once for all processes, because that takes long."""
    return once(_generate)


@pytest.fixture(scope="module")
def generated(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows(generated: str) -> dict[str, list[str]]:
    """The cells of each line, by target."""
    lines = re.findall(r"^\| \[?`(\w+)`.*? \| (.*) \|$", generated, re.MULTILINE)
    return {target: re.split(r" \| ", rest) for target, rest in lines}


@thorough
def test_the_committed_page_is_what_the_code_generates(generated: str) -> None:
    committed = (PAPER_TABLES / "README.md").read_text(encoding="utf-8")
    assert committed == generated, "run: python -m studies.papers.index"


@thorough
def test_the_stored_times_are_those_that_the_page_needs(folder: Path) -> None:
    timed = pickle.loads((folder / "timed").read_bytes())
    assert set(GradientTimes.read(COSTS).known) == timed, "run: python -m studies.papers.index --measure"


@thorough
def test_every_table_and_figure_of_the_papers_has_a_line(rows: dict[str, list[str]]) -> None:
    targets = {
        f"{paper}_{folder[:-1]}_{name}"
        for paper in papers()
        for folder in ("tables", "figures")
        for name in layout_names(paper, folder)
    }
    assert set(rows) == {*targets, *experiment_names(), "all_tables", "all_figures"}


@thorough
def test_printed_numbers_with_runs_are_counted(generated: str) -> None:
    """Of all papers and of each: nine numbers of FedTOGA's Table 7 are printed out of line, so that their entries are
    unknown; the one readable number of Caldarola et al.'s Table 7 has runs in a reading only."""
    other = "1 of them only in another reading (`fedsam_caldarola_table_7`)"
    assert f"\n3,356 of 3,365 printed numbers have a run behind them, {other}.\n" in generated
    expected = {paper: str(sum(tables.values())) for paper, tables in ROWS.items()}
    found = {}
    for section in generated.split("\n## ")[1:]:
        name, text = section.split("\n", 1)
        found[name] = re.search(r"^([\d,]+) of ([\d,]+) printed numbers have a run", text, re.MULTILINE).groups()
    assert {paper: of.replace(",", "") for paper, (_, of) in found.items()} == expected
    assert {paper for paper, (runs, of) in found.items() if runs != of} == {"fedtoga"}
    assert found["fedtoga"] == ("825", "834")


def test_a_table_that_is_left_out_lowers_the_count() -> None:
    experiment = requested("fedlesam").experiment
    layouts = {name: tables("fedlesam").layout(name) for name in tables("fedlesam").names()}
    without = coverage("fedlesam", experiment, (one for name, one in layouts.items() if name != "3"))
    assert (without.printed, without.own, without.other) == (596, 596 - ROWS["fedlesam"]["3"], 16)
    assert without.places == ("fedlesam_table_3",)
    columns = tuple(column for column in layouts["3"].columns if column.group == "OfficeHome")
    homes = coverage("fedlesam", experiment, [layouts["3"].model_copy(update={"columns": columns})])
    assert (homes.own, homes.other) == (2 * 4 * 12, 0)


@thorough
def test_what_has_no_target_is_reported(generated: str) -> None:
    assert "| Table 6 | sizes of the data sets: settings, no target |" in generated
    assert generated.count("no target |") == 10


@thorough
def test_runs_are_those_of_the_plan(rows: dict[str, list[str]]) -> None:
    for target in ("fedlesam_figure_4", "fedsam_caldarola_figure_14a_b", "quick"):
        runs = total(plan([target], Path("none"), {}, GradientTimes.read(COSTS)).values()).runs
        # A line of a paper's own: what, runs, ...; one of an experiment: what, tables, figures, runs, ...
        assert rows[target][3 if target == "quick" else 1] == str(runs)
    assert rows["fedsam_caldarola_figure_14a_b"][1] == "9", "FedAvg's, and those that its plane goes through"


@thorough
def test_means_over_held_out_domains_need_the_runs_of_all(rows: dict[str, list[str]]) -> None:
    table, means = rows["fedlesam_table_3"], rows["fedlesam_table_4"]
    assert (table[1], table[4]) == ("720", "DomainNet, OfficeHome")
    assert (means[1], means[4]) == ("648", "CIFAR-10, CIFAR-100, DomainNet, OfficeHome")


@thorough
def test_data_sets_of_analyses_are_named(rows: dict[str, list[str]]) -> None:
    assert rows["fedsam_caldarola_figure_6a"][4] == "CIFAR-10, CIFAR-10-C"


@pytest.mark.parametrize("paper", papers())
def test_smoke_scale_has_as_many_runs(paper: str) -> None:
    assert load_experiment(paper, {"scale": "smoke"}).paths() == requested(paper).experiment.paths()


def test_measured_times_are_read_as_they_are_written(tmp_path: Path) -> None:
    times = GradientTimes.measured(CPU)
    assert 0 < times(SMALL) < 10
    times.write(tmp_path / "costs.csv")
    assert GradientTimes.read(tmp_path / "costs.csv") == replace(times, device=None)


def test_times_that_are_not_there_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the time of Gradient.*cnn_gn.*is not known"):
        GradientTimes("here", "today")(SMALL)
    file = tmp_path / "costs.csv"
    for text in ("", "model,batch\nlenet,2\n", COSTS.read_text(encoding="utf-8").replace(",3,", ",three,")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=r"costs.csv' is not a table with the columns model, channels"):
            GradientTimes.read(file)


@pytest.mark.parametrize("number", ["nan", "inf", "0", "-3"])
def test_times_are_finite_and_above_zero(number: str, tmp_path: Path) -> None:
    file = tmp_path / "costs.csv"
    replace(GradientTimes("here", "today"), known={SMALL: float(number)}).write(file)
    with pytest.raises(UserError, match=rf"costs.csv': milliseconds {number} .allowed: finite numbers above 0"):
        GradientTimes.read(file)


def test_the_command_refuses_folders_without_times(tmp_path: Path) -> None:
    done = run(["python", "-m", "studies.papers.index", "--out", str(tmp_path / "other")])
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"studies: .*costs.csv': No such file.*\n", done.stderr)
