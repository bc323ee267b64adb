"""The base of everything that is configured: immutable, validated, no unknown keys."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from bench.errors import UserError, unknown


class Frozen(BaseModel):
    """A frozen pydantic model whose unknown keys are refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    raise unknown(f"key of {cls.__name__}", key, cls.model_fields)
        return data

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str = "") -> Self:
        """Validate; every mistake is a `UserError` of one line that begins with `where`, such as a file's name."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            problem = explain(error)
        except UserError as error:
            problem = error
        raise UserError(f"{where}: {problem}" if where else str(problem))


def explain(error: ValidationError) -> UserError:
    """The first mistake that pydantic found, as one line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        allowed = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
        return unknown(where, context["tag"], allowed)
    if first["type"] == "missing":
        return UserError(f"{where} is missing")
    given = "" if isinstance(first["input"], dict | list) else f" = {first['input']!r}"
    return UserError(f"{where}{given}: {first['msg']}")
