"""Numbers below 1e-38, which processors handle slowly."""

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["without_subnormals"]


@contextlib.contextmanager
def without_subnormals() -> Iterator[None]:
    """Take numbers below 1e-38 for 0 meanwhile.

    The gradients of a trained network are full of them, and a processor handles them so slowly that they double the
    time of a step.
    """
    was_on = float(torch.tensor(1e-40) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)
