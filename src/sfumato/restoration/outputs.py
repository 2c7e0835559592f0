"""The images that a restoration produces."""

from typing import NamedTuple

__all__ = ["Output"]


class Output(NamedTuple):
    """One image of a restoration."""

    content: str
    """``mean``, ``std``, ``low``, ``high`` (ends of calibrated intervals), ``schedule``, ``quantile`` or ``sample``."""
    place: str
    """Where it is written; empty if it is not written."""
    level: float = 0.0
    """Level of a quantile."""
    number: int = 0
    """Number of a sample."""
