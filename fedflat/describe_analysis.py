"""Text of `fedflat analyses`: all analyses, or one with its options.

The list of all is parsed from the source files: importing them imports torch, and every start of `fedflat` would take
two seconds of CPU time more.
"""

import ast
from pathlib import Path
from typing import Any

from bench.files.text_table import aligned

_ANALYSES = Path(__file__).parents[1] / "analysis" / "analyses"


def first_lines() -> dict[str, str]:
    """The first line of each analysis's module docstring, by name."""
    files = sorted((f for f in _ANALYSES.glob("*/*.py") if f.stem != "__init__"), key=lambda f: f.stem)
    return {file.stem: (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0] for file in files}


def overview() -> str:
    """All analyses, a line each."""
    return "\n".join(aligned(list(first_lines().items())))


def describe(name: str) -> str:
    """One analysis: what it computes, its columns, and its options with their defaults."""
    from analysis.analyses import analysis_class  # noqa: PLC0415 - imports torch

    cls = analysis_class(name)
    lines = [
        f"{name}: {first_lines()[name]}",
        f"columns: {', '.join(cls.columns)}",
        "options:" if cls.model_fields else "options: none",
    ]
    for option, field in cls.model_fields.items():
        lines.append(f"  {option} = {_shown(field.default)}: {field.description}")
    return "\n".join(lines)


def _shown(default: Any) -> str:
    if default is None:
        return "null"
    if isinstance(default, tuple):
        return f"[{', '.join(map(_shown, default))}]"
    if hasattr(default, "model_dump"):
        return f"{{{', '.join(f'{key}: {value}' for key, value in default.model_dump(exclude_none=True).items())}}}"
    return str(default)
