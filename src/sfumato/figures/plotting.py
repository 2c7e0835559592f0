"""Make figures without pyplot's global state, so that they can be drawn in any thread and without a screen."""

import io
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sfumato.system.atomic_files import replace_bytes
from sfumato.system.marks import SOFTWARE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["matplotlib", "new_figure", "save_figure", "use_logarithms"]


def matplotlib() -> ModuleType:
    """Import matplotlib with the parts that are used.

    Raises:
        ImportError: If it is not installed; the message says how to install it.
    """
    try:
        import matplotlib.colors
        import matplotlib.figure
        import matplotlib.patches
        import matplotlib.ticker
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'sfumato[evaluate]'") from error
    return matplotlib


def use_logarithms(plot: Any, low: float, high: float) -> None:
    """Give both axes the same logarithmic range, with a few readable numbers."""
    ticker = matplotlib().ticker
    plot.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (plot.xaxis, plot.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_formatter(ticker.NullFormatter())


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; its size is in inches of 150 pixels."""
    figure: Figure = matplotlib().figure.Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure


def save_figure(figure: "Figure", path: str | Path, *, dpi: int | None = None) -> None:
    """Write a figure as PNG, or as SVG if the path says so, atomically; creates the folder if needed.

    PNGs name their producer. The same figure gives the same SVG: no date, and names of parts that depend on the path.
    """
    buffer, file = io.BytesIO(), Path(path)
    if file.suffix == ".svg":
        with matplotlib().rc_context({"svg.hashsalt": file.name}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    else:
        figure.savefig(buffer, format="png", dpi=dpi or "figure", metadata={"Software": SOFTWARE})
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(file, buffer.getvalue(), untouched="What was there is intact")
