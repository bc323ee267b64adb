"""Analyses of users: classes that their files define, and what is expected of them and of their rows."""

import inspect
from collections.abc import Mapping
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.provenance import TEXT_COLUMNS
from fedflat.bench.code.user_code import failure
from fedflat.bench.code.user_function import NAME_OF_CODE, OWN_PREFIX, in_snake_case
from fedflat.bench.experiments.results import RESERVED
from fedflat.bench.experiments.sections.own_analysis import OwnAnalysis
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.columns import metric_column
from fedflat.bench.metrics.quantity import Quantity


def class_of(own: OwnAnalysis, known: Mapping[str, type[Analysis]]) -> type[Analysis]:
    """The class that a user's file defines; a `UserError` if the file cannot be executed, or the class is no analysis.

    A name that one of those `known`, FedFlat's, has begins with own_ then.
    """
    return own.named(lambda given: _completed(given, own, known))


def _completed(given: Any, own: OwnAnalysis, known: Mapping[str, type[Analysis]]) -> type[Analysis]:
    if not inspect.isclass(given) or not issubclass(given, Analysis) or inspect.isabstract(given):
        lacks = ", ".join(sorted(getattr(given, "__abstractmethods__", ())))
        raise UserError(
            f"{own.function} is no analysis{f', it lacks {lacks}' if lacks else ''} (allowed: a class below Analysis, "
            "with of_run)"
        )
    name = getattr(given, "name", None) or in_snake_case(given.__name__)
    if not isinstance(name, str) or not NAME_OF_CODE.fullmatch(name):
        raise UserError(f"name = {name!r} (allowed: lower-case letters, digits and '_', the first one a letter)")
    columns, quantities = getattr(given, "columns", None), given.quantities
    if not isinstance(columns, tuple) or not columns or not all(isinstance(one, str) for one in columns):
        raise UserError(f"columns = {columns!r} (allowed: names in a tuple, such as ('metric', 'value'))")
    if not isinstance(quantities, Mapping) or not all(isinstance(one, Quantity) for one in quantities.values()):
        raise UserError("quantities are no mapping of names to Quantity")
    if quantities and not {"metric", "value"} <= {*columns}:
        raise UserError("quantities need the columns metric and value")
    measured = {name for kind in known.values() for name in kind.quantities}
    if taken := [one for one in quantities if one in measured or metric_column(one) is not None]:
        raise UserError(f"the quantity '{taken[0]}' has the name of one of FedFlat's (allowed: another name)")
    if required := [option for option, field in given.model_fields.items() if field.is_required()]:
        raise UserError(f"the option '{required[0]}' has no default (allowed: options with defaults)")
    if "code" in given.model_fields:
        raise UserError("an option is named 'code' (allowed: another name; it is that of the file's hash)")
    given.name = OWN_PREFIX + name if name in (*known, *RESERVED) else name
    given.own = own
    return given


def rows_of(analysis: Analysis, table: Any) -> pd.DataFrame:
    """The rows that a user's analysis has returned, with a definition; a `UserError` if they are not as announced."""
    own = analysis.own
    assert own is not None
    where = f"the {own.kind_of_file()} '{own.file}': {own.function}.of_run"
    if not isinstance(table, pd.DataFrame):
        raise UserError(f"{where} returns {type(table).__name__} (allowed: a pandas DataFrame)")
    if missing := [name for name in analysis.columns if name not in table]:
        raise UserError(f"{where} returns no column '{missing[0]}', which is among its columns")
    texts = [name for name in table if name not in TEXT_COLUMNS and not is_numeric_dtype(table[name])]
    if texts:
        allowed = ", ".join(sorted(TEXT_COLUMNS))
        raise UserError(f"{where}: the column '{texts[0]}' contains no numbers (allowed with text: {allowed})")
    return table if "definition" in table else table.assign(definition=first_line(type(analysis)))


def failed(own: OwnAnalysis, error: BaseException) -> UserError:
    """The error of a user's analysis in one line, with file and line if its code has raised it."""
    assert own.file is not None  # validated
    return error if isinstance(error, UserError) else failure(own.file, own.kind_of_file(), error)


def first_line(analysis: type[Analysis]) -> str:
    """What a user's analysis computes, by the first line of its docstring, or its name."""
    return (vars(analysis).get("__doc__") or analysis.name).strip().partition("\n")[0]
