"""Which images do not count as independent: channels of one field, levels of light of one cell."""

import re
from collections.abc import Sequence

from sfumato.errors import RecipeError

__all__ = ["unit_names"]


def unit_names(images: Sequence[str], pattern: str | None) -> list[str]:
    """The unit of every image.

    Args:
        images: Their names.
        pattern: Regular expression; images are one unit where its first group (or all that it matches) is the same. An
            image that it does not match is a unit of its own. If it is None, the frames of a file are one unit:
            planes and moments of one field are not independent.

    Raises:
        RecipeError: If it is no regular expression.

    Example:
        >>> unit_names(["069_0.npy", "069_1.npy", "070_0.npy"], "(.*)_")
        ['069', '069', '070']
        >>> unit_names(["stack.tif[0]", "stack.tif[1]", "single.tif"], None)
        ['stack.tif', 'stack.tif', 'single.tif']
    """
    if pattern is None:
        return [re.sub(r"\[\d+\]$", "", name) for name in images]
    try:
        matches = [re.search(pattern, name) for name in images]
    except re.error as error:
        raise RecipeError(f"the unit is {pattern!r}, which is no regular expression: {error}; mend it") from error
    return [
        name if match is None else match[min(1, len(match.groups()))]
        for name, match in zip(images, matches, strict=True)
    ]
