"""Runs docs/tour.ipynb in this process. `python -m tests.notebook` stores its new outputs in the file, too.

No kernel is needed: a cell is Python without magics. Its outputs are what it prints, the value of its last line, and
the figures that it draws.
"""

import ast
import base64
import contextlib
import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import nbformat
from matplotlib import pyplot as plt
from nbformat.v4 import new_output

from fedflat.bench.files.atomic import write_text
from tests.places import ROOT

NOTEBOOK = ROOT / "docs" / "tour.ipynb"


def load(file: Path = NOTEBOOK) -> Any:
    """The notebook, validated."""
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(notebook: Any) -> None:
    """Run the code cells in order, in one namespace, and replace their outputs."""
    mpl.use("agg")
    plt.close("all")
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = _outputs(cell.source, names, count)


def _outputs(source: str, names: dict[str, Any], count: int) -> list[Any]:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, outputs, value = io.StringIO(), [], None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"<cell {count}>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    if text := printed.getvalue():
        outputs.append(new_output("stream", name="stdout", text=text))
    if value is not None:
        outputs.append(new_output("execute_result", {"text/plain": repr(value)}, execution_count=count))
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=80, metadata={"Software": None})
        encoded = base64.b64encode(picture.getvalue()).decode("ascii")
        outputs.append(new_output("display_data", {"image/png": encoded, "text/plain": "<Figure>"}))
    plt.close("all")
    return outputs


def main() -> None:
    """Execute the notebook and write it again."""
    notebook = load()
    execute(notebook)
    write_text(NOTEBOOK, nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    main()
