"""Figures with bars: every benchmark prints one line per figure and, with --check, fails if a bar is missed."""

import math
import sys
from pathlib import Path

__all__ = ["DOCS", "Bars", "write_table"]

DOCS = Path(__file__).parents[1] / "docs"


def write_table(document: Path, lines: list[str], name: str = "table") -> None:
    """Replace what stands between two marks of a document."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = document.read_text(encoding="utf-8").partition(start)
    if not found or end not in rest:
        raise ValueError(
            f"{document.name} has no place for a table: expected the lines {start.strip()} and {end.strip()}"
        )
    _, _, after = rest.partition(end)
    body = "\n".join(lines)
    document.write_text(f"{before}{start}\n{body}\n\n{end}{after}", encoding="utf-8")


class Bars:
    """Prints figures as they come and remembers which of them missed their bar."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self.rows: list[str] = []

    def report(self, name: str, value: float, *, low: float = -math.inf, high: float = math.inf) -> None:
        """Print one figure; it must lie between ``low`` and ``high``."""
        bounds = [f"at least {low:.4g}"] * (low > -math.inf) + [f"at most {high:.4g}"] * (high < math.inf)
        verdict = ""
        if bounds:
            met = low <= value <= high
            verdict = f"  ({' and '.join(bounds)}: {'ok' if met else 'MISSED'})"
            if not met:
                self.missed.append(name)
        self.rows.append(f"| {name} | {value:.4g} | {' and '.join(bounds)} |")
        print(f"{name}: {value:.4g}{verdict}", flush=True)

    def table(self) -> list[str]:
        """All figures so far with their bars, as lines of Markdown."""
        return ["| figure | measured | bar |", "|---|---|---|", *self.rows]

    def finish(self, *, check: bool) -> None:
        """With ``check``, end the program with a non-zero code if a bar was missed."""
        if check and self.missed:
            sys.exit(f"missed: {', '.join(self.missed)}")
