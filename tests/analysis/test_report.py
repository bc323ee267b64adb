"""The report: layouts that fit their experiment, files where they belong, and a page that links them."""

import re
from pathlib import Path

import pytest

from analysis import figures, report, tables
from analysis.tidy import FILES, CellKey, Tidy
from bench.config import Experiment
from bench.errors import UserError
from tests.analysis.conftest import HARD, metrics, write


def test_inputs_of_quick_are_cells_of_quick(quick: Experiment) -> None:
    named = {file.name for file in FILES.values()}
    layouts = [tables.inputs(tables.load_table("quick", name), quick) for name in report.table_names("quick")]
    layouts += [
        figures.inputs(figures.load_figure("quick", name), quick) for name in report.figure_names("quick")
    ]
    for paths in layouts:
        assert paths
        assert len(set(paths)) == len(paths)
        for path in paths:
            stage, experiment, *cell, name = Path(path).parts
            assert (stage in {"runs", "analysis"}, experiment, name in named) == (True, "quick", True)
            assert "/".join(part for part in cell if not part.startswith("seed-")) in quick.cells()


def test_inputs_are_the_files_that_exist_when_all_is_run(realistic: Tidy, quick: Experiment) -> None:
    for name in report.figure_names("quick"):
        for path in figures.inputs(figures.load_figure("quick", name), quick):
            assert (realistic.results / path).is_file() or "/fedgf/" in path


def test_tables_and_figures_of_quick() -> None:
    assert report.table_names("quick") == ["accuracy", "flatness"]
    assert report.figure_names("quick") == ["convergence", "drift", "labels", "perturbation", "surfaces"]


def test_render_writes_where_it_says(realistic: Tidy, tmp_path: Path) -> None:
    folder = realistic.results / "reports" / "quick"
    written = report.render_table("quick", "accuracy", realistic.results)
    assert written == [folder / "tables" / f"accuracy.{extension}" for extension in ("md", "tex", "csv")]
    written += report.render_figure("quick", "labels", realistic.results)
    assert written[3:] == [folder / "figures" / f"labels.{extension}" for extension in ("png", "pdf")]
    assert all(path.stat().st_size for path in written)
    (elsewhere, *_) = report.render_table("quick", "accuracy", realistic.results, tmp_path / "other")
    assert elsewhere == tmp_path / "other" / "accuracy.md"


def test_page_holds_all_tables_and_links_only_what_exists(realistic: Tidy) -> None:
    report.render_table("quick", "accuracy", realistic.results)
    report.render_figure("quick", "labels", realistic.results)
    page = report.render_index("quick", realistic.results)
    text = page.read_text()
    assert text.count("<table>") == 2
    assert text.count("Not drawn yet.") == 4
    images = re.findall(r'src="([^"]+)"', text)
    assert images == ["figures/labels.png"]
    assert (page.parent / images[0]).is_file()
    assert "http" not in text


def test_render_all_leaves_no_dead_link(realistic: Tidy) -> None:
    *_, page = report.render_all("quick", realistic.results)
    links = re.findall(r'(?:src|href)="([^"#]+)"', page.read_text())
    assert len(links) == 2 * 3 + 5 * 3
    assert all((page.parent / link).is_file() for link in links)


def test_render_all_skips_figures_without_data(tmp_path: Path) -> None:
    write(tmp_path, CellKey(HARD, "fedavg"), "metrics", metrics([80, 90, 85]))
    names = {path.name for path in report.render_all("quick", tmp_path)}
    assert "convergence.png" in names
    assert "drift.png" not in names


def test_summary_names_leader_runner_up_and_counts(tmp_path: Path, quick: Experiment) -> None:
    finals = {"fedavg": [80, 80, 80], "fedsam": [81, 83, 85], "fedlesam": [82, 82, 82], "fedgf": [99, 99, 99]}
    for path in quick.cells():
        *place, method = path.split("/")
        if method in finals:
            ends = (
                {1: 2}
                if method == "fedgf" and tuple(place) == ("digits", "dirichlet-0.1", "4-of-20")
                else None
            )
            cell = CellKey(type(HARD)(*place), method)
            write(tmp_path, cell, "metrics", metrics(finals[method], diverged=ends))
    lines = report.summary("quick", tmp_path).splitlines()
    assert 3 <= len(lines) <= 5
    assert lines[0] == "quick: 48 of 144 runs, 1 of them diverged"
    # FedGF is higher, but one of its runs diverged.
    assert lines[1].endswith("FedSAM with 83.00 %, then FedLESAM with 82.00 %")
    assert str(tmp_path / "reports" / "quick" / "index.html") in lines[2]


def test_summary_does_not_crown_a_method_with_missing_settings(tmp_path: Path) -> None:
    write(tmp_path, CellKey(HARD, "fedavg"), "metrics", metrics([80, 90, 85]))
    assert "none leads" in report.summary("quick", tmp_path)


def test_unknown_names_and_no_runs_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="unknown table of experiment quick 'acuracy'; did you mean 'accuracy'"
    ):
        report.render_table("quick", "acuracy", tmp_path)
    with pytest.raises(UserError, match="unknown figure of experiment quick 'drifts'; did you mean 'drift'"):
        report.render_figure("quick", "drifts", tmp_path)
    with pytest.raises(UserError, match="no run of experiment quick"):
        report.summary("quick", tmp_path)
