"""Read YAML strictly: every value is what it looks like, and the size is limited.

PyYAML follows YAML 1.1, where ``010`` is 8, ``1:30`` is 90, ``no`` is false and ``2024-03-12`` is a date, where the
last of two equal keys wins, and where a few aliases can stand for billions of values. Here ambiguous numbers and
repeated keys are refused with their line, words and dates are text, and the number of values, with aliases written out,
is limited.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from sfumato.system.errors import RecipeError

__all__ = ["MOST", "Document", "read"]

MOST = 1_000_000
"""Most characters and values in a text, with aliases written out."""
_MOST_DIGITS = 100
_TAG = "tag:yaml.org,2002:"
_INT, _FLOAT, _BOOL, _NULL, _MERGE = (f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null", "merge"))
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?\.[0-9_]+([eE][-+]?[0-9]+)?")
_PREFIXED = re.compile(r"[-+]?0(x[0-9a-fA-F_]+|b[01_]+)")


class Document(NamedTuple):
    """The values of a text, and their lines."""

    values: Any
    root: yaml.Node | None

    def line(self, place: Sequence[Any]) -> int | None:
        """Line, from 1, of the key at a path of keys, or of its nearest parent in the text."""
        line, node = None, self.root
        for key in place:
            if not isinstance(node, yaml.MappingNode):
                break
            found = [pair for pair in node.value if pair[0].value == str(key)]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        return line


def read(text: str, *, source: str) -> Document:
    """Read one YAML document.

    Args:
        text: The whole text.
        source: Name used in errors.

    Raises:
        RecipeError: If the text is not YAML, is too large, repeats a key or has an ambiguous number.

    Example:
        >>> read("steps: 10", source="an example").values
        {'steps': 10}
    """
    if len(text) > MOST:
        raise RecipeError(f"{source} has {len(text)} characters; expected at most {MOST}; give a recipe")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return Document(None, None)
        if _size(root, {}) > MOST:
            raise RecipeError(
                f"{source} stands for more than {MOST} values once its aliases (*name) are written out; expected a "
                "recipe; write the values out yourself"
            )
        return Document(loader.construct_document(root), root)
    except _UnclearError as error:
        raise RecipeError(f"{source}, line {error.line}: {error}") from None
    except (yaml.YAMLError, KeyError) as error:  # a KeyError for `!!bool maybe`
        raise RecipeError(f"{source} is not YAML: {error}; check indentation and quotes at that place") from error
    except RecursionError as error:
        raise RecipeError(f"{source} is nested too deeply to be a recipe; flatten it") from error


class _UnclearError(Exception):
    """A value that different YAML readers would read differently."""

    def __init__(self, node: yaml.Node, text: str) -> None:
        super().__init__(text)
        self.line = node.start_mark.line + 1


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, restricted to numbers, booleans, null, text, lists and mappings by :func:`_restrict`."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping, refusing repeated keys."""
        node = super().compose_mapping_node(anchor)
        assert node is not None
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (name := (key.tag, key.value)) in lines:
                raise _UnclearError(key, f"the key {_short(key.value)!r} is on line {lines[name]} too; remove one")
            lines[name] = key.start_mark.line + 1
        return node

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Construct a finite number, if it is written in a way that all YAML readers share."""
        text = str(node.value)
        if _PREFIXED.fullmatch(text) and len(text) <= _MOST_DIGITS:
            return int(text, 0)
        if not _DECIMAL.fullmatch(text) or len(text) > _MOST_DIGITS:
            raise _UnclearError(node, f"{_short(text)} {_advice(text)}")
        number = text.replace("_", "")
        value = float(number) if node.tag == _FLOAT else int(number)
        if not math.isfinite(value):
            raise _UnclearError(node, f"{_short(text)} {_advice('inf')}")
        return value


def _advice(number: str) -> str:
    if ":" in number:
        return "would be read in base 60; give a decimal number, or quote it if it is text"
    if number.lower().endswith(("inf", "nan")):
        return "is not a finite number; give one, or quote it if it is text"
    return "is not a plain number, or has a leading 0 that some read as octal; give a decimal number, or quote text"


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values and characters of a node, with aliases written out; a node that contains itself is too large."""
    if id(node) not in known:
        known[id(node)] = MOST + 1
        held = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for item in held for part in (item if isinstance(item, tuple) else (item,))]
        own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        known[id(node)] = 1 + own + sum(_size(part, known) for part in inner)
    return known[id(node)]


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def _restrict(loader: type[_Loader]) -> None:
    """Recognise numbers as PyYAML does, to be checked later, and of words only true, false and null; the rest is text.

    Plain text written by PyYAML is read as text, so that the output of :func:`yaml.safe_dump` reads back unchanged.
    """
    known, built = yaml.SafeLoader.yaml_implicit_resolvers, yaml.SafeLoader.yaml_constructors
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in (_INT, _FLOAT, _NULL, _MERGE)]
        for first, resolvers in known.items()
    }
    loader.add_implicit_resolver(_BOOL, re.compile("^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    kept = (_NULL, _BOOL, *(f"{_TAG}{kind}" for kind in ("str", "seq", "map")), None)
    loader.yaml_constructors = {tag: built[tag] for tag in kept}
    for tag in (_INT, _FLOAT):
        loader.add_constructor(tag, _Loader.construct_number)


_restrict(_Loader)
