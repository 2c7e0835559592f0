"""Write docs/notebooks from the tutorial pages, one notebook for each.

python docs/make_notebooks.py

Python blocks become cells, shell blocks cells of bash; blocks that are marked as not run, or as needing what a reader
must bring, stay text. Notebooks have no outputs: those would differ from machine to machine, and without them a
notebook is what its page says and nothing else. What to expect stands on the pages.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from page_blocks import Block, parts

__all__ = ["TUTORIALS", "notebook", "path_of"]

DOCS = Path(__file__).parent

TUTORIALS = (
    "five_minutes",
    "train_on_your_own_images",
    "train_on_a_cluster",
    "restore_a_folder",
    "restore_a_terabyte",
    "trust",
    "your_own_network",
    "in_python",
    "audit",
    "calibration",
    "export",
    "problems/microscopy",
    "problems/phase",
    "problems/natural",
)
"""Pages that are notebooks too."""

START = """# {what}
import os
import sys
import tempfile
from pathlib import Path

{find}os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.chdir(tempfile.mkdtemp(prefix="sfumato-"))
{link}print(Path.cwd())"""
FIND = 'recipes = next(path for up in Path.cwd().resolve().parents if (path := up / "recipes").is_dir())\n'
LINK = 'Path("recipes").symlink_to(recipes)\n'

_LINK = re.compile(r"(\]\()(?!https?:)([^)#\s]*)(#[^)\s]*)?(\))")
_HERE = re.compile(r"^\[This page as a notebook\]\([^)]*\)\.\n+", re.MULTILINE)


def path_of(page: str) -> Path:
    """Where the notebook of a page is."""
    return DOCS / "notebooks" / f"{page.rpartition('/')[2]}.ipynb"


def notebook(page: str) -> str:
    """The notebook of a page, a name of `TUTORIALS`, as text."""
    source = DOCS / f"{page}.md"
    found = list(parts(source.read_text(encoding="utf-8")))
    uses_recipes = any(isinstance(part, Block) and "recipes/" in part.code for part in found)
    cells: list[tuple[str, str]] = []
    for part in found:
        if isinstance(part, Block) and part.is_run and not part.needs and part.kind in ("python", "sh"):
            if not any(kind == "code" for kind, _ in cells):
                cells.append(("code", _start(uses_recipes)))
            cells.append(("code", part.code.strip() if part.kind == "python" else f"%%bash -e\n{part.code.strip()}"))
            continue
        if isinstance(part, Block):
            text = f"```{part.kind}\n{part.code}```"
            why = f"needs {part.needs}" if part.needs else part.reason
            text = f"*Not run here: {why}.*\n\n{text}" if why else text
        else:
            text = _moved(_HERE.sub("", part), source).strip()
        if text and cells and cells[-1][0] == "markdown":
            cells[-1] = ("markdown", f"{cells[-1][1]}\n\n{text}")
        elif text:
            cells.append(("markdown", text))
    content = {
        "cells": [_cell(number, *cell) for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _start(uses_recipes: bool) -> str:
    what = "What this page writes goes into a new folder; commands are those of this Python"
    what += ", recipes those of the repository." if uses_recipes else "."
    return START.format(what=what, find=FIND if uses_recipes else "", link=LINK if uses_recipes else "")


def _moved(text: str, source: Path) -> str:
    """A text whose links start at the folder of notebooks, not at the page's."""

    def point(match: re.Match[str]) -> str:
        target = source.parent / match[2] if match[2] else source
        return f"{match[1]}{Path(os.path.relpath(target, DOCS / 'notebooks')).as_posix()}{match[3] or ''}{match[4]}"

    return _LINK.sub(point, text)


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


if __name__ == "__main__":
    for name in TUTORIALS:
        path_of(name).parent.mkdir(exist_ok=True)
        path_of(name).write_text(notebook(name), encoding="utf-8")
