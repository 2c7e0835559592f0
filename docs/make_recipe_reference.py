"""Write docs/recipe.md and docs/recipe.schema.json from the recipe's own definition.

python docs/make_recipe_reference.py
"""

from pathlib import Path
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sfumato.models import recipe

__all__ = ["reference"]

DOCS = Path(__file__).parent

HEAD = """# The recipe

A run is one YAML file. Every field has a default; an unknown key is refused with the nearest name and its line, and so
is a key that is given twice or a number that YAML reads in another way than people do (`010`, `1:30`, `.inf`). In an
editor that knows JSON schemas, point it at `recipe.schema.json` beside this page for completion and checks. This page
is generated from the code by `python docs/make_recipe_reference.py`.

```yaml
preset: default
data:
  inputs: low/
  targets: high/
train:
  steps: 20000
```

`preset` (`small`, `default` or `large`) sets the fields listed in [its module](api/training.md); own fields win. The
defaults below are those of version 0.1: they hold where neither the recipe nor its preset gives a field, and for
everything stored.
"""


def reference() -> str:
    """The recipe's fields as a Markdown page."""
    lines = [HEAD, *_table("recipe", recipe.Recipe, skip_sections=True)]
    for name, field in recipe.Recipe.model_fields.items():
        section = _section(field)
        if section is not None:
            lines += _table(name, section)
    return "\n".join(lines)


def _table(name: str, section: type[BaseModel], *, skip_sections: bool = False) -> list[str]:
    rows = [f"## `{name}`", "", section.__doc__ or "", "", "| field | type | default | meaning |", "|---|---|---|---|"]
    for key, field in section.model_fields.items():
        if not (skip_sections and _section(field)):
            rows.append(f"| `{key}` | {_type(section, key)} | `{_default(field)}` | {field.description} |")
    return [*rows, ""]


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field is, maybe one that can be left out; None for any other field."""
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _default(field: FieldInfo) -> object:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return str(value).lower() if value is None or isinstance(value, bool) else value


def _type(section: type[BaseModel], key: str) -> str:
    """The field's type as the schema says it, with its bounds."""
    entry = section.model_json_schema()["properties"][key]
    options = [option for option in entry.get("anyOf", [entry]) if option.get("type") != "null"]
    words = []
    for option in options:
        if "enum" in option:
            words.append(", ".join(f"`{value}`" for value in option["enum"]))
        else:
            limits = {
                "exclusiveMinimum": "above",
                "minimum": "at least",
                "exclusiveMaximum": "below",
                "maximum": "at most",
            }
            bounds = [f"{word} {option[name]:g}" for name, word in limits.items() if name in option]
            words.append(" ".join([option.get("type", "any"), ", ".join(bounds)]).strip())
    return " or ".join(words)


if __name__ == "__main__":
    (DOCS / "recipe.md").write_text(reference(), encoding="utf-8")
    (DOCS / "recipe.schema.json").write_text(recipe.schema() + "\n", encoding="utf-8")
