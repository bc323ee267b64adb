"""Every section of `make bench` runs, at toy size, and the report goes where it should."""

import json
import re

import pytest
import torch

from bench.files.marked_text import marks
from bench.input.errors import UserError
from tests.benchmarks.__main__ import SECTIONS, run
from tests.benchmarks.ours import VARIANTS
from tests.benchmarks.passes import FEWEST, VectorTraffic, vectors_per_step
from tests.benchmarks.process import Process
from tests.benchmarks.report import PART, Report, Spread, Table, existing_report, write_report
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import TOY
from tests.benchmarks.workload import GRADIENTS, Workload

BEGIN, END = marks(PART)


@pytest.mark.long
def test_the_whole_benchmark(tmp_path, capsys):
    said: list[str] = []
    files = [tmp_path / "performance.md", tmp_path / "performance.json"]
    files[0].write_text(f"How to read it.\n{BEGIN}\nold\n{END}\nThe end.\n", encoding="utf-8")
    with Setting("cpu", TOY, said.append, passes=1, all_cores=1) as setting:
        run(setting, list(SECTIONS), files)
    printed = capsys.readouterr().out
    titles = [
        "Hessian eigenvalues",
        "High resolution",
        "Landscape",
        "lenet, batch 2, 1 threads",
        "Passes over memory",
        "Planning",
        "Profile of a round",
        "Scaling",
        "Small models",
        "A whole run",
    ]
    assert re.findall(r"^### (.*)$", printed, re.MULTILINE) == titles
    text = files[0].read_text(encoding="utf-8")
    assert text.startswith(f"How to read it.\n{BEGIN}\n\n- processor: ")
    assert text.endswith(f"\n{END}\nThe end.\n")
    assert "old" not in text
    sections = json.loads(files[1].read_text(encoding="utf-8"))["sections"]
    assert [section["title"] for section in sections] == titles
    hessian, high, landscape, large, memory, planning, profiled, scaling, small, whole = (
        [table["rows"] for table in section["tables"]] for section in sections
    )
    assert [row[:2] for row in hessian[0]] == [
        ["FedFlat, Lanczos", 5], ["PyHessian, its defaults", 2], ["PyHessian, to such residuals", 2],
    ]  # fmt: skip
    assert all(row[2] > row[1] for row in hessian[0]), "several products for each eigenvalue"
    assert hessian[0][0][3] <= 1e-3
    assert hessian[0][2][3] < hessian[0][1][3], "a smaller residual"
    assert [row[:6] for row in high[0]] == [
        ["vit_b_32", "224×224", 1, "1 client × 1 steps", "fedavg", name] for name in VARIANTS
    ]  # fmt: skip
    assert all(row[-1] > 4 * 4 * 88e6 / 2**20 for row in high[0]), "MiB: several vectors of 88 million parameters"
    assert [row[0] for row in landscape[0]] == ["cnn_gn"]
    assert [row[:2] for row in large[0]] == [["fedsmoo", name] for name in ("plain", *VARIANTS)]
    assert all(row[-1] > 100 for row in large[0]), "MiB of a process that has torch"
    assert {row[0] for row in large[1]} >= {"fp32"}
    assert all(value > 0 for row in large[1] for value in row[2])
    assert large[2][0][2] == GRADIENTS["fedsmoo"]
    assert all(0 < share < 100 for share in profiled[0][0][3:])
    commands = ["snakemake -n", "fedflat plan", "snakemake -n, empty workflow"]
    assert [row[:3] for row in planning[0]] == [[24, 48, command] for command in commands]
    assert [row[:3] for row in memory[0]] == [["lenet", "fedsmoo", 797_962]]
    assert [row[0] for table in scaling[:3] for row in table] == ["1", "2", "10", "1", "2"]
    contenders = ["loop", "loop, channels-last", "parallel", "parallel, channels-last"]
    assert [row[1] for row in scaling[3]] == [f"{name}, 1 thread" for name in contenders]
    assert {row[0] for row in scaling[3]} == {"lenet, 2 clients × 1 steps, fedsam"}
    assert all(row[-1] > 100 for row in scaling[3]), "MiB of a process that has torch"
    assert scaling[1][0][4] > 2, "other clients in other rounds"
    assert [row[:2] for row in small[0]] == [["mlp fedsam", "plain"], ["mlp fedsam", "FedFlat fp32"]]
    names = ("plain", "FedFlat fp32, first run", "FedFlat fp32, later runs")
    assert [row[:2] for row in whole[0]] == [["fedsam", name] for name in names]


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
