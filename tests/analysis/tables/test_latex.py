"""Tables compile with LaTeX, and fit their pages; skipped where no LaTeX is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.formats import latex
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.table import Entry, Table
from fedflat.bench.experiments.address import CellAddress
from tests.analysis.conftest import metrics, write

PREAMBLE = r"\usepackage[T1]{fontenc}\usepackage{booktabs,adjustbox}"
SPECIAL = "\\ & % $ # _ { } ~ ^ < > | ± × ≤ ≥ ↑ ↓ → · √ ∇ ∞ ≈ ‖ − – αβγδεηθκλμνπρστφψωΓΔΘΛΣΦΨΩ λ_max Müller a--b"
AT = {"dataset": "digits", "partition": "dirichlet-0.1", "participation": "4-of-20"}


def table(columns: int, rows: int, notes: int) -> Table:
    """A table with special characters wherever a text of a user may stand, and negative numbers."""
    column = {"header": SPECIAL[:9], "group": SPECIAL, "metric": "test_accuracy", "select": AT}
    layout = TableLayout.parse(
        {
            "title": SPECIAL,
            "caption": SPECIAL,
            "methods": ["fedavg"],
            "columns": [column] * columns,
            "blocks": [{"header": SPECIAL, "select": {}}],
        }
    )
    caption = Caption(SPECIAL, SPECIAL, (SPECIAL,) * notes)
    entry = Entry(mean=-1.25, std=0.5, place=1, note=SPECIAL[:9])
    return Table("t", layout, (f"Method {SPECIAL[:20]}",) * rows, (((entry,) * columns,) * rows,), lambda: caption)


def rendered(results: Path, other: Path) -> list[str]:
    """Quick's tables, and a wide one of a paper, with a run in the folder `other`."""
    cell = CellAddress.of("officehome_art_1/by_group/all-of-3/fedavg")
    write(other, cell, "metrics", metrics([70]), experiment="fedlesam")
    named = [("quick", results, "accuracy"), ("quick", results, "flatness"), ("fedlesam", other, "3")]
    files = (Tables(RequestedExperiment(paper, folder)).render(name)[1] for paper, folder, name in named)
    return [file.read_text(encoding="utf-8") for file in files]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_tables_compile_and_fit_the_page(realistic, tmp_path):
    """In one column and in two."""
    sizes = [(1, 1, 1), (3, 10, 1), (12, 5, 3), (2, 120, 3), (9, 60, 20)]
    parts = [*(latex(table(*size)) for size in sizes), *rendered(realistic.results, tmp_path)]
    body = "\\clearpage\n".join(parts)
    for options in ("10pt", "10pt,twocolumn"):
        start = rf"\documentclass[{options}]{{article}}{PREAMBLE}\begin{{document}}\listoftables\clearpage"
        (tmp_path / "all.tex").write_text(f"{start}\n{body}\n\\end{{document}}\n", encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        log = (tmp_path / "all.log").read_text(encoding="utf-8", errors="replace")
        for problem in ("Float too large", "Overfull \\hbox", "Missing character"):
            assert problem not in log


def test_numbers_have_a_minus_sign():
    assert r"$-$1.25 $\pm$ 0.50" in latex(table(1, 1, 1))
