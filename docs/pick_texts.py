"""Print texts of the package that a person reads, picked by a seed, to judge their English.

    python docs/pick_texts.py --seed 0 --number 30

Texts are the first paragraphs of docstrings, the messages of errors, and the help of options.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

__all__ = ["texts"]

SOURCE = Path(__file__).parents[1] / "src" / "sfumato"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SHORTEST = 25


def texts(source: Path = SOURCE) -> Iterator[tuple[str, str]]:
    """Each text with its place, in the order of the files."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in _texts_of(node):
                plain = " ".join(text.split())
                if len(plain) >= _SHORTEST:
                    yield f"{path.relative_to(source).as_posix()}:{getattr(node, 'lineno', 1)}", plain


def _texts_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _DOCUMENTED) and (documented := ast.get_docstring(node)):
        yield documented.split("\n\n")[0]
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
        yield _literal(node.exc.args[0])
    if isinstance(node, ast.keyword) and node.arg == "help":
        yield _literal(node.value)


def _literal(node: ast.expr) -> str:
    """A string with names in place of what is inserted; empty if it is none."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder of the package, of another checkout too")
    given = parser.parse_args()
    for place, text in sorted(random.Random(given.seed).sample(list(texts(given.source)), given.number)):
        print(f"{place}\n    {text}")
