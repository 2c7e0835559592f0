"""The base of a recipe's sections: no unknown keys, no changes, no booleans for numbers."""

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

__all__ = ["Positive", "Section"]

Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """Some fields of a recipe, described by the texts below them."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse booleans where numbers are expected; pydantic would read true as 1."""
        takes_numbers = _takes_numbers(cls.model_fields[str(info.field_name)].annotation)
        if takes_numbers and any(isinstance(number, bool) for number in _parts(value)):
            raise ValueError("true and false are not numbers; give one")
        return value


def _takes_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(_takes_numbers(part) for part in get_args(annotation))


def _parts(value: Any) -> list[Any]:
    """The single values of a field."""
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else [value]
