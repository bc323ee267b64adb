"""Code of users that imports FedFlat by the names that its packages had before: bench.X is now fedflat.bench.X.

The file, and so its hash, stays as it is; its imports are replaced when it is compiled.
"""

import ast
import logging
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

from fedflat.bench.code.module_places import EARLIER

LOGGER = logging.getLogger("fedflat.code")

PUBLIC: Mapping[str, str] = {
    **dict.fromkeys(("bench.methods.base", "bench.methods.marks", "bench.methods.recipe"), "fedflat.methods"),
    **dict.fromkeys(("bench.models", "bench.models.dropout"), "fedflat.models"),
    **dict.fromkeys(("analysis.analyses.base", "analysis.analyses.analysed_run"), "fedflat.analyses"),
}
"""The modules whose names users may rely on, by the earlier names of modules that had them."""

COMPONENTS = tuple(f"bench.methods.{kind}." for kind in ("perturbations", "corrections", "servers", "losses"))
"""The begin of the earlier names of modules with components of the catalog, which fedflat.methods has, too."""

_reported: set[bytes] = set()


def compiled(source: bytes, file: Path) -> CodeType:
    """The code of a file; a warning, once per process and content, if it has earlier names."""
    if not any(name.encode() in source for name in EARLIER):
        return _compiled(source, file)
    tree = ast.parse(source, str(file))
    if not (earlier := use_present_names(tree)):
        return _compiled(source, file)
    is_of_run = (file.parent / "config.json").is_file()  # a copy, which must stay as it is
    if source not in _reported and not is_of_run:
        _reported.add(source)
        names = sorted(earlier)
        LOGGER.warning(
            f"'{file}' imports {', '.join(names)} by the earlier name, which still works; "
            f"write {', '.join(dict.fromkeys(map(_public, names)))}"
        )
    return _compiled(tree, file)


def _compiled(source: bytes | ast.Module, file: Path) -> CodeType:
    code: CodeType = compile(source, str(file), "exec", dont_inherit=True)
    return code


def _public(earlier: str) -> str:
    """Where to import from instead."""
    return "fedflat.methods" if earlier.startswith(COMPONENTS) else PUBLIC.get(earlier, f"fedflat.{earlier}")


def use_present_names(tree: ast.Module) -> set[str]:
    """Replace the imports of a module by earlier names, in place; returns these names."""
    earlier: set[str] = set()
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, field, None), list):
                statements[:] = [new for old in statements for new in _replaced(old, earlier)]
    return earlier


def _replaced(statement: ast.stmt, earlier: set[str]) -> Iterator[ast.stmt]:
    """The statement with present names, which are added to `earlier`; `import bench.x` also binds bench."""
    yield statement
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        if _is_earlier(statement.module):
            earlier.add(statement.module)
            statement.module = f"fedflat.{statement.module}"
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            if _is_earlier(alias.name):
                earlier.add(alias.name)
                if alias.asname is None:
                    bound = ast.ImportFrom("fedflat", [ast.alias(alias.name.partition(".")[0])], 0)
                    yield ast.fix_missing_locations(ast.copy_location(bound, statement))
                alias.name = f"fedflat.{alias.name}"


def _is_earlier(module: str) -> bool:
    """Whether it is a module in a package of FedFlat. The names bench and analysis alone are free for users."""
    top, *below = module.split(".")
    return top in EARLIER and bool(below) and find_spec(f"fedflat.{top}.{below[0]}") is not None
