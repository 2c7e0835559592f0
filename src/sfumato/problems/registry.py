"""Look up the problem named by `problem` in a recipe."""

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from sfumato.data.frames import Completion
from sfumato.data.images.view import brightest
from sfumato.data.sources import PairSource
from sfumato.problems import microscopy, natural, phase, photons
from sfumato.problems.request import ForwardParameters, Request
from sfumato.system.errors import RecipeError

__all__ = ["PROBLEMS", "completion", "full_scale", "open_problem", "takes_shares"]

PROBLEMS: Mapping[str, Callable[[Request], dict[str, PairSource]]] = MappingProxyType(
    {
        **{name: partial(microscopy.open_data_set, name) for name in microscopy.DATA_SETS},
        "photons": photons.open_photons,
        "phase": phase.open_phase,
        "natural": natural.open_natural,
    }
)
"""Problems by name. `pairs`, which uses image pairs as they are, is not listed."""


def takes_shares(word: str) -> bool:
    """Whether models of a problem take pictures as shares of the largest value of their type."""
    return word == "natural"


def full_scale(word: str, dtype: np.dtype[Any]) -> float:
    """Return the divisor of a picture's pixels before a model of a problem sees them.

    Example:
        >>> full_scale("natural", np.dtype(np.uint8)), full_scale("pairs", np.dtype(np.uint8))
        (255.0, 1.0)
    """
    return brightest(dtype) if takes_shares(word) else 1.0


def completion(word: str, forward: ForwardParameters) -> Completion | None:
    """Return how to compute the channels of a problem's conditions that are not measured; None if all are measured.

    Example:
        >>> completion("phase", {}) is None, completion("phase", {"transport_dampings": [1e-6]}) is None
        (True, False)
    """
    return phase.transport_solutions(forward) if word == "phase" else None


def open_problem(word: str, request: Request) -> dict[str, PairSource]:
    """Open the samples of a problem, by split.

    Args:
        word: One of ``PROBLEMS``.
        request: The relevant part of the recipe.

    Raises:
        RecipeError: If the problem is unknown, or one of its parameters is invalid.
        PairingError: If the data is missing.
    """
    if word not in PROBLEMS:
        near = difflib.get_close_matches(word, ["pairs", *PROBLEMS], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of pairs, {', '.join(PROBLEMS)}"
        raise RecipeError(f"problem {word!r} is unknown; {hint}")
    return PROBLEMS[word](request)
