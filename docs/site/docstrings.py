r"""An extension of griffe: the few marks of reStructuredText in our docstrings, as Markdown that the site renders.

Docstrings write ``:math:`\gamma``` and ``.. math::``, as most of scientific Python does; editors show them well.
"""

import re
import textwrap
from typing import Any

import griffe

__all__ = ["Docstrings", "as_markdown"]

INLINE_MATH = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
BLOCK = re.compile(
    r"^(?P<indent> *)\.\. (?P<kind>math::|code-block:: python)(?P<text>[^\n]*(?:\n(?:(?P=indent) +[^\n]*|(?=\n)))*)",
    re.MULTILINE,
)
TABLE = re.compile(r"^(?P<rule> *=+(?: +=+)+)\n(?P<head>.+)\n(?P=rule)\n(?P<rows>(?:.+\n)+?)(?P=rule)$", re.MULTILINE)


def as_markdown(text: str) -> str:
    """The same docstring in Markdown, with mathematics between dollars."""
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.MULTILINE)  # griffe knows the plural only
    text = BLOCK.sub(_block, text)
    text = TABLE.sub(_table, text)
    text = INLINE_MATH.sub(lambda match: f"${' '.join(match[1].split())}$", text)
    text = ROLE.sub(lambda match: f"`{match[1].removeprefix('sfumato.')}`", text)
    text = re.sub(r"(?<!`)``(?!`)([^`]+)``(?!`)", r"`\1`", text)
    return re.sub(r"\[((?:CVDM|SR3|VDM|DPM-Solver|Nichol|Salimans)[^\]]*)\](?!\()", r"\\[\1\\]", text)


def _block(match: re.Match[str]) -> str:
    indent, text = match["indent"], match["text"]
    if match["kind"] == "math::":
        formula = re.sub(r"\s*\[CVDM[^\]]*\]\s*$", "", " ".join(text.split()))
        formula = re.sub(r"\\qquad\s*$", "", formula).strip()
        return f"{indent}$${_functions(formula)}$$\n"
    code = textwrap.indent(textwrap.dedent(text).strip(), indent)
    return f"{indent}```python\n{code}\n{indent}```\n"


def _functions(formula: str) -> str:
    """Names of functions upright, as they are in print."""
    return re.sub(r"(?<![\\\w])(expm1|log1p|network|diag|SNR|softplus|mean)(?![\w}])", r"\\mathrm{\1}", formula)


def _table(match: re.Match[str]) -> str:
    starts = [span.start() for span in re.finditer(r"=+", match["rule"])]

    def row(line: str) -> str:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        return f"| {' | '.join(cells)} |"

    rows = [row(match["head"]), "|---" * len(starts) + "|", *map(row, match["rows"].splitlines())]
    return "\n".join(rows)


class Docstrings(griffe.Extension):
    """Rewrites every docstring when it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """See to one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
