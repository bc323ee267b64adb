"""The key `analyses` of an experiment: analyses of a user, by the file and class that define them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from fedflat.bench.code.named_code import parse_reference
from fedflat.bench.code.user_function import UserFunction

NOUN = "analysis"


class OwnAnalysis(UserFunction):
    """An analysis that a class of a file or module defines. It is executed where runs are analysed or shown."""

    in_words: ClassVar[str] = "an analysis of yours"
    noun: ClassVar[str] = NOUN

    function: str = Field(description="a class below Analysis")

    @property
    def reference(self) -> str:
        """The short form: path/to/file.py:Class, or package.module:Class."""
        return f"{self.module or self.file}:{self.function}"


Named = Annotated[OwnAnalysis, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})]
"""One in an experiment's file: as path/to/file.py:Class, or by its fields."""


def referenced_analysis(given: Any) -> Any:
    """The fields of an analysis instead of its short form."""
    return parse_reference(given, NOUN) if isinstance(given, str) else given


def parse_own_analysis(given: str | Mapping[str, Any]) -> OwnAnalysis:
    """The analysis of a short form, or of its fields; the file is read, but not executed."""
    return OwnAnalysis.parse(referenced_analysis(given))
