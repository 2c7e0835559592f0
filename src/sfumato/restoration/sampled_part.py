"""The part of a region to sample: the condition is read with a wide halo, denoising needs a narrow one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sfumato.diffusion.noise import NoiseField

__all__ = ["moved", "sampled_part"]

Index = tuple[Any, ...]


def sampled_part(spatial: Sequence[int], inner: Index, halo: int | None) -> tuple[Index | None, Index]:
    """The part of a region to sample, or None for all of it, and the position of the wanted part in it.

    Args:
        spatial: Size of the region.
        inner: The wanted part of it.
        halo: Pixels around the wanted part that the denoising network sees; None for all of them.

    Example:
        >>> sampled_part((100,), (..., slice(40, 60)), 8)
        ((Ellipsis, slice(32, 68, None)), (Ellipsis, slice(8, 28, None)))
    """
    if halo is None or len(inner) == 1:
        return None, inner
    spans = [
        (max(0, wanted.start - halo), min(side, wanted.stop + halo))
        for wanted, side in zip(inner[1:], spatial, strict=True)
    ]
    if spans == [(0, side) for side in spatial]:
        return None, inner
    there = (slice(w.start - start, w.stop - start) for w, (start, _) in zip(inner[1:], spans, strict=True))
    return (..., *(slice(*span) for span in spans)), (..., *there)


def moved(noise: NoiseField, part: Index) -> NoiseField:
    """The noise of a part of a region."""
    origin = noise.origin or (0,) * (len(part) - 1)
    return replace(noise, origin=tuple(o + span.start for o, span in zip(origin, part[1:], strict=True)))
