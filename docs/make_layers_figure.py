"""Draw docs/figures/layers.svg: the layers of the package, as the test of the architecture has them.

python docs/make_layers_figure.py
"""

import ast
import textwrap
from pathlib import Path

__all__ = ["layers", "picture"]

ROOT = Path(__file__).parents[1]
TITLES = {
    4: ("shells", "parse, call, show"),
    3: ("runs", "training, restoring, judging, exporting"),
    2: ("data", "image files, pairs, problems"),
    1: ("method", "losses, model, sampling"),
    0: ("mathematics", "tensors in, tensors out"),
}
COLOURS = {4: "#fdae6b", 3: "#fdd0a2", 2: "#deebf7", 1: "#9ecae1", 0: "#6baed6"}
WIDTH, LINE, GAP = 760, 20, 14


def layers() -> dict[int, list[str]]:
    """Units of the package by layer."""
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LAYERS" and node.value is not None:
            found = ast.literal_eval(node.value)
            return {layer: [unit for unit, at in found.items() if at == layer] for layer in sorted(TITLES)}
    raise LookupError("tests/test_architecture.py has no LAYERS")


def picture() -> str:
    """The figure as SVG."""
    parts, top = [], 8
    found = layers()
    for layer, (title, does) in TITLES.items():
        units = ", ".join(unit for unit in found[layer] if unit != "__main__")
        lines = textwrap.wrap(units, 64)
        height = max(2, len(lines)) * LINE + 16
        parts.append(
            f'<rect x="8" y="{top}" width="{WIDTH - 16}" height="{height}" rx="6" fill="{COLOURS[layer]}"/>'
            f'<text x="20" y="{top + 24}" font-weight="bold">{layer} {title}</text>'
            f'<text x="20" y="{top + 44}" font-size="11">{textwrap.shorten(does, 40)}</text>'
        )
        for number, line in enumerate(lines):
            y = top + 24 + number * LINE
            parts.append(f'<text x="250" y="{y}" font-family="monospace" font-size="12.5">{line}</text>')
        top += height + GAP
        if layer:
            x, y = WIDTH / 2, top - GAP
            parts.append(f'<path d="M{x - 7} {y + 2} h14 l-7 10 z" fill="#555"/>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - GAP + 8}" font-family="sans-serif" '
        f'font-size="15" fill="#111">\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    (ROOT / "docs" / "figures" / "layers.svg").write_text(picture(), encoding="utf-8")
