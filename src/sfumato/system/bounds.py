"""Numbers that a caller gives, kept within what they can mean.

Python wraps, truncates and counts True as 1 without a word: a seed of 65 bits would draw as a shorter one does, and 0
steps would become the default.
"""

import operator
from typing import Any

from sfumato.system.errors import RecipeError

__all__ = ["seed_of", "whole"]


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number within bounds, of whatever integer type.

    Args:
        name: What errors call it.
        value: What was given.
        least: Smallest that is taken.
        most: Largest.

    Raises:
        RecipeError: If it is another number or none.

    Example:
        >>> whole("num_steps", 4)
        4
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        expected = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise RecipeError(f"{name} is {str(value)[:80]}; expected a whole number {expected}; give one")
    return number


def seed_of(value: Any) -> int:
    """A seed: a whole number of 64 bits from 0 on, since noise is made with no more of it.

    Example:
        >>> seed_of(7)
        7
    """
    return whole("seed", value, 0, 2**64 - 1)
