r"""Measure by how much inputs and targets are shifted against each other, before hours of training learn the shift.

The phase correlation of the centres of both images, with fine structure damped because noise has it,

.. math:: c = F^{-1}\left[\frac{F(target)\, \overline{F(input)}}{|F(target)\, F(input)|}\, e^{-|f|^2 / 2 f_0^2}\right]

has its peak at the shift, to a fraction of a pixel by a parabola through its neighbours. Pairs whose peak does not rise
far above the rest have too little in common to tell.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.pair_middles import Middle
from sfumato.data.pairs import named

__all__ = ["Shifts", "check_shifts", "shift_between"]

_LEAST_SIDE = 16
_DAMPED = 0.1
"""Cycles per pixel: an image this fine is still no noise, in most microscopes."""
_CLEAR = 7.0
"""Height of a peak in standard deviations; the highest of unrelated images is about 4.5."""
_FEW = 0.15
"""Share of pairs that may be far off: the measurement fails on some."""
_FAR = 1.0
"""Pixels of the target. Interpolation may shift by half a measured pixel, as many programs place the first pixel."""

Floats = NDArray[np.float64]


class Shifts(NamedTuple):
    """What was found, in words."""

    doubts: list[str]
    """Warnings to show before training."""
    notes: list[str]
    """What else to tell."""


def check_shifts(checked: Sequence[Middle], factor: Sequence[int] | None) -> Shifts:
    """Measure the shift of some pairs.

    Args:
        checked: Some pairs of a training.
        factor: Target pixels per measured pixel, if known.
    """
    found = {pair.name: shift_between(pair.condition, pair.target) for pair in checked}
    measured = {name: shift for name, shift in found.items() if shift is not None}
    if not measured:
        return Shifts([], [f"whether targets are shifted cannot be told: {len(found)} pairs have too little in common"])
    far = max(_FAR, max(factor or (1,)) / 2)
    shifted = {name: shift for name, shift in measured.items() if np.hypot(*shift) > far}
    if len(shifted) > _FEW * len(measured):
        return Shifts([_told(shifted, len(measured))], [])
    usual = float(np.median([np.hypot(*shift) for shift in measured.values()]))
    but = f", but for {named(list(shifted))}" if shifted else ""
    return Shifts(
        [], [f"{len(measured)} pairs were checked: targets lie within {usual:.1f} pixels of their inputs{but}"]
    )


def _told(shifted: dict[str, tuple[float, float]], number: int) -> str:
    down, right = (float(value) for value in np.median(list(shifted.values()), axis=0))
    usual = float(np.median([np.hypot(*shift) for shift in shifted.values()]))
    return (
        f"the targets of {len(shifted)} of {number} checked pairs are shifted against their inputs, by about "
        f"{usual:.1f} pixels (in the median {down:.1f} down and {right:.1f} to the right): {named(list(shifted))}; "
        "expected at most one, since a network learns the shift, or to blur what is shifted by chance; register the "
        "images first"
    )


def shift_between(condition: Floats, target: Floats) -> tuple[float, float] | None:
    """How far a target (H, W) lies below and to the right of its input, in pixels; None if that cannot be told.

    Example:
        >>> image = np.random.default_rng(0).random((64, 64))
        >>> moved = np.roll(image, (3, -2), (0, 1))
        >>> [round(pixels) for pixels in shift_between(image, moved)]
        [3, -2]
    """
    if min(condition.shape) < _LEAST_SIDE or not (np.isfinite(condition).all() and np.isfinite(target).all()):
        return None
    window = np.multiply.outer(*(np.hanning(side) for side in condition.shape))
    seen, sought = (np.fft.fft2((image - image.mean()) * window) for image in (condition, target))
    cross = sought * seen.conj()
    frequencies = np.meshgrid(*(np.fft.fftfreq(side) for side in condition.shape), indexing="ij")
    damping = np.exp(-sum(f**2 for f in frequencies) / (2 * _DAMPED**2))
    strength = np.abs(cross)
    if strength.max() == 0:
        return None
    peaks = np.fft.fftshift(np.fft.ifft2(cross / np.maximum(strength, 1e-12 * strength.max()) * damping).real)
    height, width = peaks.shape
    inner = np.s_[height // 4 : height - height // 4, width // 4 : width - width // 4]
    row, column = np.unravel_index(int(peaks[inner].argmax()), peaks[inner].shape)
    at = int(row) + height // 4, int(column) + width // 4
    if peaks[at] < _CLEAR * peaks.std():
        return None
    return _between(peaks[:, at[1]], at[0]), _between(peaks[at[0]], at[1])


def _between(line: Sequence[float] | Floats, place: int) -> float:
    """Where a parabola through a peak and its two neighbours is highest, from the middle of the line."""
    before, peak, after = (float(line[place + step]) for step in (-1, 0, 1))
    curvature = before - 2 * peak + after
    return place - len(line) // 2 + (0.0 if curvature == 0 else (before - after) / (2 * curvature))
