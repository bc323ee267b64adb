"""Every section of `make bench` runs, at toy size, and the report goes where it should."""

import json
import re
import subprocess

import pytest
import torch

from fedflat.bench.input.errors import UserError
from studies.marked_text import marks
from tests import commands
from tests.benchmarks import planning
from tests.benchmarks.__main__ import SECTIONS, run
from tests.benchmarks.ours import VARIANTS
from tests.benchmarks.passes import FEWEST, VectorTraffic, vectors_per_step
from tests.benchmarks.process import Process
from tests.benchmarks.report import PART, Report, Spread, Table, existing_report, write_report
from tests.benchmarks.search import CONTENDERS
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import TOY
from tests.benchmarks.workload import GRADIENTS, Workload
from tests.tiers import thorough

BEGIN, END = marks(PART)


@pytest.fixture
def forks(monkeypatch):
    """The benchmark's processes are forks: the imports of a new one take longer than toy measurements."""

    def run(words, cwd, environment):
        done = commands.run(words, cwd, environment)
        assert done.returncode == 0, done.stderr
        return done

    monkeypatch.setattr("tests.benchmarks.process.start", commands.Piped)
    monkeypatch.setattr("tests.benchmarks.process.run", run)


@pytest.fixture
def setting(forks):
    with Setting("cpu", TOY, lambda line: None, passes=1, all_cores=1) as setting:
        yield setting


def measured(name, title, setting):
    """The rows of all tables of a section."""
    [section] = SECTIONS[name](setting)
    assert section.title == title
    return [table["rows"] for table in json.loads(json.dumps(section.data()))["tables"]]


def test_the_report_goes_where_it_should(setting, tmp_path, capsys, monkeypatch):
    """All sections, of which there are only two here."""
    names, titles = ["landscape", "memory"], ["Landscape", "Passes over memory"]
    monkeypatch.setattr("tests.benchmarks.__main__.SECTIONS", {name: SECTIONS[name] for name in names})
    files = [tmp_path / "performance.md", tmp_path / "performance.json"]
    files[0].write_text(f"How to read it.\n{BEGIN}\nold\n{END}\nThe end.\n", encoding="utf-8")
    run(setting, names, files)
    assert re.findall(r"^### (.*)$", capsys.readouterr().out, re.MULTILINE) == titles
    text = files[0].read_text(encoding="utf-8")
    assert text.startswith(f"How to read it.\n{BEGIN}\n\n- processor: ")
    assert text.endswith(f"\n{END}\nThe end.\n")
    assert "old" not in text
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == titles
    sections = json.loads(files[1].read_text(encoding="utf-8"))["sections"]
    assert [section["title"] for section in sections] == titles


def test_hessian(setting):
    [rows] = measured("hessian", "Hessian eigenvalues", setting)
    assert [row[:2] for row in rows] == [
        ["FedFlat, Lanczos", 5], ["PyHessian, its defaults", 2], ["PyHessian, to such residuals", 2],
    ]  # fmt: skip
    assert all(row[2] > row[1] for row in rows), "several products for each eigenvalue"
    assert rows[0][3] <= 1e-3
    assert rows[2][3] < rows[1][3], "a smaller residual"


@thorough
@pytest.mark.long
def test_high_resolution(setting):
    [rows] = measured("high_resolution", "High resolution", setting)
    assert [row[:6] for row in rows] == [
        ["vit_b_32", "224×224", 1, "1 client × 1 steps", "fedavg", name] for name in VARIANTS
    ]  # fmt: skip
    assert all(row[-1] > 4 * 4 * 88e6 / 2**20 for row in rows), "MiB: several vectors of 88 million parameters"


def test_landscape(setting):
    [rows] = measured("landscape", "Landscape", setting)
    assert [row[0] for row in rows] == ["cnn_gn"]


def test_large(setting):
    against_plain, floor, overhead = measured("large", "lenet, batch 2, 1 threads", setting)
    assert [row[:2] for row in against_plain] == [["fedsmoo", name] for name in ("plain", *VARIANTS)]
    assert all(row[-1] > 100 for row in against_plain), "MiB of a process that has torch"
    assert {row[0] for row in floor} >= {"fp32"}
    assert all(value > 0 for row in floor for value in row[2])
    assert overhead[0][2] == GRADIENTS["fedsmoo"]


def test_memory(setting):
    [rows] = measured("memory", "Passes over memory", setting)
    assert [row[:3] for row in rows] == [["lenet", "fedsmoo", 797_962]]


@thorough
@pytest.mark.long
def test_planning(setting):
    [rows] = measured("planning", "Planning", setting)
    words = ["snakemake -n", "fedflat plan", "snakemake -n, empty workflow"]
    assert [row[:3] for row in rows] == [[24, 48, command] for command in words]


def test_profile(setting):
    [rows] = measured("profile", "Profile of a round", setting)
    assert all(0 < share < 100 for share in rows[0][3:])


def test_scaling(setting):
    per_round, registered, seeds, side_by_side = measured("scaling", "Scaling", setting)
    assert [row[0] for table in (per_round, registered, seeds) for row in table] == ["1", "2", "10", "1", "2"]
    contenders = ["loop", "loop, channels-last", "parallel", "parallel, channels-last"]
    assert [row[1] for row in side_by_side] == [f"{name}, 1 thread" for name in contenders]
    assert {row[0] for row in side_by_side} == {"lenet, 2 clients × 1 steps, fedsam"}
    assert all(row[-1] > 100 for row in side_by_side), "MiB of a process that has torch"
    assert registered[0][4] > 2, "other clients in other rounds"


def test_small(setting):
    [rows] = measured("small", "Small models", setting)
    assert [row[:2] for row in rows] == [["mlp fedsam", "plain"], ["mlp fedsam", "FedFlat fp32"]]


def test_search(setting):
    [rows] = measured("search", "Trials of a search", setting)
    assert [row[:2] for row in rows] == [["fedsam", name] for name in CONTENDERS]
    assert all(row[2] > 0 for row in rows)


def test_whole(setting):
    [rows] = measured("whole", "A whole run", setting)
    names = ("plain", "FedFlat fp32, first run", "FedFlat fp32, later runs")
    assert [row[:2] for row in rows] == [["fedsam", name] for name in names]


def test_all_sections_are_tested():
    """Each by a test of its name."""
    assert [name for name in SECTIONS if f"test_{name}" not in globals()] == []


def test_programs_are_measured_in_new_interpreters(tmp_path):
    seconds, memory = planning.measured("timeit", "-n", "1", "pass", folder=tmp_path)
    assert 0 < seconds < 5
    assert 1 < memory < 100, "MiB without torch"
    with pytest.raises(subprocess.CalledProcessError):
        planning.measured("no_such_module", folder=tmp_path)


def test_a_contender_s_failure_is_reported():
    with Process("cpu", 1, keeps_memory=False) as process:
        process.build("run", "plain", workload=Workload("mlp", 2, 8, 8), method="fedsgd")
        with pytest.raises(RuntimeError, match="KeyError: 'fedsgd'"):
            process.ask("run", "seconds", clients=1, images=8)


def test_operations_on_vectors_are_counted():
    a, b, matrix = torch.ones(6), torch.ones(6), torch.ones(6, 5)
    with VectorTraffic(6) as traffic:
        c = a + b  # reads 12, writes 6
        c.mul_(2)  # reads 6, writes 6
        c.copy_(a)  # reads 6, writes 6
        c.view(2, 3).t()
        matrix.sum()  # not of this length
        torch.zeros_like(a)  # writes 6
        torch.linalg.vector_norm(a)  # reads 6, writes 1
        torch.cat([b[:4].clone(), b[4:].clone()])  # reads 6, writes 6; the clones are no vectors
        torch._foreach_add_(list(a.split([4, 2])), 1)  # reads 6, writes 6
        a * a  # reads 6, writes 6
        torch.stack([a, b])  # reads 12, writes 12
    assert traffic.read == 12 + 6 + 6 + 6 + 6 + 6 + 6 + 12
    assert traffic.written == 6 + 6 + 6 + 6 + 1 + 6 + 6 + 6 + 12


@pytest.mark.parametrize("method", FEWEST)
def test_no_method_needs_less_than_the_fewest(method):
    read, written = vectors_per_step(Workload("mlp", 1, 6, 2), method, torch.device("cpu"))
    assert FEWEST[method].total <= read + written


def test_a_report_is_put_only_where_it_belongs(tmp_path):
    file = tmp_path / "notes.md"
    file.write_text("my notes\n", encoding="utf-8")
    with pytest.raises(UserError, match="has no place for a generated part"):
        existing_report(file)
    assert file.read_text(encoding="utf-8") == "my notes\n"


def test_a_page_keeps_its_other_sections(tmp_path):
    file = tmp_path / "page.md"
    assert existing_report(file) is None
    write_report(file, Report({"system": "one"}, {"A": "old\n\n| x |", "B": "b"}))
    file.write_text(f"Before.\n\n{file.read_text(encoding='utf-8')}\nAfter.\n", encoding="utf-8")
    page = existing_report(file)
    assert page == Report({"system": "one"}, {"A": "old\n\n| x |", "B": "b"})
    write_report(file, Report(page.facts, dict(page.sections) | {"A": "new"}))
    assert file.read_text(encoding="utf-8") == (
        f"Before.\n\n{BEGIN}\n\n- system: one\n\n### A\n\nnew\n\n### B\n\nb\n\n{END}\n\nAfter.\n"
    )


def test_spreads():
    """Ratios are of values of the same turn, whose drift cancels."""
    a, b = Spread((10.0, 20.0, 12.0)), Spread((5.0, 10.0, 6.0))
    assert a / b == Spread((2.0, 2.0, 2.0))
    assert a - b == b
    assert str(a * 100) == "1,200 [1,000 to 2,000]"
    assert str(Spread((0.01234,))) == "0.012"
    table = Table("About.", ("name", "ms", "n", "ratio"), [("x", b, 1234, None)])
    assert table.markdown().splitlines()[2:] == [
        "| name | ms | n | ratio |",
        "| --- | ---: | ---: | ---: |",
        "| x | 6.00 [5.00 to 10.0] | 1,234 |  |",
    ]
