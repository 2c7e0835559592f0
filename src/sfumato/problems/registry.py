"""Which problem a recipe's word `problem` stands for."""

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sfumato.data.frames import PairSource
from sfumato.errors import RecipeError
from sfumato.problems import microscopy, natural, phase
from sfumato.problems.request import Request

__all__ = ["PROBLEMS", "open_problem"]

PROBLEMS: Mapping[str, Callable[[Request], dict[str, PairSource]]] = MappingProxyType(
    {
        "biosr": microscopy.open_biosr,
        "tsim": microscopy.open_tsim,
        "dlsim": microscopy.open_dlsim,
        "sted": microscopy.open_sted,
        "storm": microscopy.open_storm,
        "phase": phase.open_phase,
        "natural": natural.open_natural,
    }
)
"""Problems by their word. Image pairs as they are, `pairs`, need no problem."""


def open_problem(word: str, request: Request) -> dict[str, PairSource]:
    """The samples of a problem by split.

    Args:
        word: One of ``PROBLEMS``.
        request: What the recipe says.

    Raises:
        RecipeError: If there is no such problem, or a parameter of it is wrong.
        PairingError: If the data is not there.
    """
    if word not in PROBLEMS:
        near = difflib.get_close_matches(word, ["pairs", *PROBLEMS], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose among pairs, {', '.join(PROBLEMS)}"
        raise RecipeError(f"problem is {word!r}, which is none; {hint}")
    return PROBLEMS[word](request)
