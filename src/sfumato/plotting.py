"""Figures, made without the state that pyplot keeps, so that they can be drawn in any thread and without a screen."""

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["matplotlib", "new_figure"]


def matplotlib() -> ModuleType:
    """The library, with what is used of it.

    Raises:
        ImportError: If it is not installed; the text says how to install it.
    """
    try:
        import matplotlib.colors
        import matplotlib.figure
        import matplotlib.patches
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'sfumato[evaluate]'") from error
    return matplotlib


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; its size is in inches of 150 pixels."""
    figure: Figure = matplotlib().figure.Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure
