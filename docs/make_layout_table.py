"""Write the table of folders into docs/contributing.md: lines of code, purpose, and what each may import.

python docs/make_layout_table.py
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # where the rules are, which a test enforces

from layout_rules import FOLDERS, may_import  # noqa: E402

__all__ = ["code_lines", "table", "table_of", "without_lines"]

BEGIN, END = "<!-- made by make_layout_table.py -->", "<!-- end of it -->"
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(path: Path) -> int:
    """Lines of a file without blanks, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def table() -> str:
    """Folders from the top to the bottom."""
    rows = ["| folder | lines | is for | may import |", "|---|---:|---|---|"]
    total = 0
    for folder in reversed(FOLDERS):
        lines = sum(map(code_lines, (ROOT / "src" / "sfumato" / folder).rglob("*.py")))
        total += lines
        lower = ", ".join(f"`{name}`" for name in may_import(folder)) or "none"
        rows.append(f"| `{folder}` | {lines:,} | {FOLDERS[folder]} | {lower} |")
    rows.append(f"| all | {total:,} | | |")
    return "\n".join(rows)


def table_of(page: str) -> str:
    """The table that a page has."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def without_lines(text: str) -> str:
    """A table without its numbers."""
    return re.sub(r"\| [\d,]+ \|", "| |", text)


if __name__ == "__main__":
    place = ROOT / "docs" / "contributing.md"
    before, _, rest = place.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    place.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")
