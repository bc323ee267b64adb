"""Code of users that imports FedFlat by the names that its packages had before: bench.X is now fedflat.bench.X.

The file, and so its hash, stays as it is; its imports are replaced when it is compiled.
"""

import ast
import logging
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

from fedflat.bench.code.module_places import EARLIER, is_of_others

LOGGER = logging.getLogger("fedflat.code")

PUBLIC = {
    "bench.methods": "fedflat.methods",
    "bench.models": "fedflat.models",
    "bench.data": "fedflat.datasets",
    "analysis.analyses": "fedflat.analyses",
}
"""The modules with the names of a package that users may rely on."""

_reported: set[bytes] = set()


def compiled(source: bytes, file: Path) -> CodeType:
    """The code of a file; a warning, once per process and content, if it has earlier names."""
    tree = ast.parse(source, str(file))
    earlier = use_present_names(tree)
    if earlier and source not in _reported:
        _reported.add(source)
        write = dict.fromkeys(_public(name) for name in sorted(earlier))
        LOGGER.warning(
            f"'{file}' imports {', '.join(sorted(earlier))} by the earlier name, which still works; "
            f"write {', '.join(write)}"
        )
    code: CodeType = compile(tree, str(file), "exec", dont_inherit=True)
    return code


def _public(earlier: str) -> str:
    return next(
        (name for package, name in PUBLIC.items() if f"{earlier}.".startswith(f"{package}.")), f"fedflat.{earlier}"
    )


def use_present_names(tree: ast.Module) -> set[str]:
    """Replace the imports of a module by earlier names, in place; returns these names."""
    present = _PresentNames()
    present.visit(tree)
    return present.earlier


class _PresentNames(ast.NodeTransformer):
    def __init__(self) -> None:
        self.earlier: set[str] = set()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module is not None and not node.level and self._is_earlier(node.module):
            node.module = f"fedflat.{node.module}"
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.AST]:
        names: list[ast.AST] = []
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if self._is_earlier(alias.name):
                alias.name = f"fedflat.{alias.name}"
                if alias.asname is None:  # `import bench.x` binds bench
                    names.append(ast.copy_location(ast.ImportFrom("fedflat", [ast.alias(top)], 0), node))
        return [node, *map(ast.fix_missing_locations, names)]

    def _is_earlier(self, module: str) -> bool:
        """Whether it is a module of FedFlat, and none of the user has this name."""
        if module.partition(".")[0] not in EARLIER or is_of_others(module) or not _is_present(f"fedflat.{module}"):
            return False
        self.earlier.add(module)
        return True


def _is_present(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # it has no such package
        return False
