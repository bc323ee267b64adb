"""Values at the points of a grid, as a table."""

import pandas as pd

from fedflat.bench.input.errors import UserError


def grid(rows: pd.DataFrame, x: str, y: str, value: str, title: str) -> pd.DataFrame:
    """The values `[y, x]`; a `UserError` that names the figure by its `title` if points of the grid are missing."""
    table = rows.pivot_table(index=y, columns=x, values=value, dropna=False)
    if min(table.shape) < 2 or table.size != len(rows):
        raise UserError(
            f"nothing to draw for '{title}': {len(rows)} points are no complete grid in {x} and {y}; "
            "compute the analysis again"
        )
    return table
