"""Check that numbers given by a caller are whole and within bounds.

Otherwise they would silently be wrapped, truncated or, like True, read as 1: a seed of 65 bits would draw the same as a
shorter one, and 0 steps would become the default.
"""

import operator
from typing import Any

from sfumato.system.errors import RecipeError

__all__ = ["seed_of", "whole"]


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return a whole number within bounds, given as any integer type.

    Args:
        name: Name used in errors.
        value: The value to check.
        least: Smallest accepted number.
        most: Largest accepted number; None for no limit.

    Raises:
        RecipeError: If the value is not a whole number or out of bounds.

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
    """Return a seed: a whole number from 0 to 2**64 - 1, since noise uses only 64 bits of it.

    Example:
        >>> seed_of(7)
        7
    """
    return whole("seed", value, 0, 2**64 - 1)
