"""What a restoration gives of an image."""

from typing import NamedTuple

__all__ = ["Output"]


class Output(NamedTuple):
    """One image of a restoration."""

    content: str
    """``mean``, ``std``, ``low``, ``high`` (ends of calibrated intervals), ``schedule``, ``quantile`` or ``sample``."""
    place: str
    """Where it is written; empty if it is not."""
    level: float = 0.0
    """Of a quantile."""
    number: int = 0
    """Of a sample."""
