"""A function in a user-defined Python file that a configuration names: a model, a data set, a metric, an analysis."""

import re
from collections.abc import Callable, Mapping
from importlib.util import decode_source
from pathlib import Path
from symtable import symtable
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, model_validator

from fedflat.bench.code.module_places import found
from fedflat.bench.code.modules import checked_imports
from fedflat.bench.code.named_code import CodeFile, NamedCode
from fedflat.bench.code.user_code import check_suffix, failure, refuse_own_imports, run_file
from fedflat.bench.input.bounds import LONGEST_NAME
from fedflat.bench.input.content import code_hash, expanded, read_own, short_hash
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.field_words import FilledIn
from fedflat.bench.input.frozen import Frozen

T = TypeVar("T")

NAME_OF_CODE = re.compile(rf"[a-z][a-z0-9_]{{0,{LONGEST_NAME - 1}}}")
"""The names that metrics and analyses of users have in tables."""

OWN_PREFIX = "own_"
"""The beginning of such a name if FedFlat has something of this name: a stored column of a name means one thing, and
the name of the file is no part of a run's identity."""


def in_snake_case(name: str) -> str:
    """The name of a class in lower-case letters: WorstTwo is worst_two."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class UserFunction(NamedCode, Frozen):
    """A `function` of a file or module; modules may be in the current folder. `noun` names its result in messages.

    The identity of a run depends on `code`, the hash of this file, and on the name of the function. It does not depend
    on the path of the file. A file may not import others of its folder; a module may, but the identity does not depend
    on them.
    """

    noun: ClassVar[str]

    file: Path | None = Field(default=None, description="a Python file; for a module: filled in")
    module: str | None = Field(default=None, description="the dotted name of a module, instead of a file")
    function: str
    code: Annotated[str | None, FilledIn()] = Field(default=None, description="hash of the file; filled in")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        file, module, kind = data.get("file"), data.get("module"), cls.kind_of_file()
        if file is None and isinstance(module, str):
            file = _file_of(module, cls.noun)
        if not isinstance(file, str | Path):
            return data
        file = expanded(file, f"the path of the {kind}")
        check_suffix(file, kind)
        return cls.with_path({**data, "file": file, "code": code_hash(file, data.get("code"), kind)}, file)

    @classmethod
    def with_path(cls, data: dict[str, Any], file: Path) -> dict[str, Any]:
        """The fields, completed by those that depend on the path of the file."""
        return data

    @model_validator(mode="after")
    def _found(self) -> "UserFunction":
        if self.file is None:
            raise UserError(f"a user-defined {self.noun} needs a file or a module")
        return self

    @classmethod
    def kind_of_file(cls) -> str:
        """The kind of the file in messages, such as "model file"."""
        return f"{cls.noun} file"

    @property
    def code_file(self) -> CodeFile | None:
        """The file, if it is given."""
        return None if self.file is None else CodeFile(self.kind_of_file(), self.file, self.code)

    def source(self) -> bytes:
        """The content of the file. A `UserError` if it cannot be read, or was edited after the command had started."""
        assert self.file is not None  # validated
        kind = self.kind_of_file()
        source = read_own(self.file, kind)
        if short_hash(source) != self.code:
            raise UserError(
                f"the {kind} '{self.file}' was edited after the command had started; start the command again"
            )
        return source

    def call(self, *arguments: object, then: Callable[[Any], T]) -> T:
        """What `then` makes of the function's result.

        Every mistake in the file is reported as a `UserError` of one line, also one that shows only in `then`.
        """
        return self.named(lambda function: then(function(*arguments)))

    def named(self, then: Callable[[Any], T]) -> T:
        """What `then` makes of the function itself; errors as those of `call`."""
        assert self.file is not None  # validated
        kind, source = self.kind_of_file(), self.source()
        with checked_imports(from_current_folder=True):
            module = run_file(self.file, source, kind, (self.module or "").rpartition(".")[0])
            if self.module is None:
                refuse_own_imports(self.file, source, kind)
            function = self._function(vars(module), source)
            try:
                return then(function)
            except (Exception, SystemExit) as error:
                raise failure(self.file, kind, error) from None

    def _function(self, values: Mapping[str, Any], source: bytes) -> Callable[..., Any]:
        """The function among the values of the file.

        A `UserError` if it has been imported from elsewhere: a file that is trusted is no reason to call, say, a
        function of Python's that deletes files.
        """
        what, function = f"the {self.kind_of_file()} '{self.file}'", values.get(self.function)
        symbols = symtable(decode_source(source), str(self.file), "exec").get_symbols()
        own = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
        if not callable(function):
            functions = [name for name in values if name in own and callable(values[name]) and name[0] != "_"]
            raise unknown(f"function of {what}", self.function, functions)
        package = (self.module or "").partition(".")[0]
        is_of_package = package != "" and str(getattr(function, "__module__", "")).partition(".")[0] == package
        if self.function not in own and not is_of_package:
            raise UserError(f"{what} imports '{self.function}' from elsewhere (allowed: a function that it defines)")
        own_function: Callable[..., Any] = function
        return own_function


def _file_of(module: str, noun: str) -> Path:
    """The source file of a module. Neither it nor its packages are imported."""
    spec = found(module)
    if spec is None:
        raise UserError(f"the {noun}'s module '{module}' is neither on Python's path nor in the current folder")
    if spec.origin is None or not spec.has_location:
        raise UserError(f"the {noun}'s module '{module}' is not a Python file")
    return Path(spec.origin)
