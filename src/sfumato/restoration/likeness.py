"""Say before a restoration whether to believe it: is the image like those of the training, in the same units?

A few patches are looked at, which costs less than one network call of most models. The whole audit is
:func:`sfumato.audit.audit`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.domain import Domain, corners
from sfumato.data.frames import region
from sfumato.data.sources import evenly_spread
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.conditions import Measured
from sfumato.system.errors import ImageError

__all__ = ["Likeness", "domain_of", "likeness"]

_MOST_FRAMES, _MOST_PATCHES, _PATCH = 3, 36, 64
_MOST_AT_ONCE = 2**24
"""Pixels of a frame that is read at once: compressed files are slow to read patch by patch."""
_MUCH_LARGER, _MUCH_SMALLER = 20.0, 100.0
"""Exposures of one microscope differ less than this, shares of full scale from counts much more; a nearly empty field
may be much fainter than others."""

Floats = NDArray[np.float64]


class Likeness(NamedTuple):
    """What was found out about an image."""

    text: str
    """One or two sentences."""
    is_warned: bool
    """Whether they are a warning."""


def domain_of(model: LoadedModel) -> Domain | None:
    """What the training images of a model are like; None if its file does not describe them.

    Raises:
        ImageError: If the description is damaged.
    """
    described = model.info.audit.get("domain")
    if described is None:
        return None
    try:
        return Domain.from_json(described)
    except ValueError as error:
        raise ImageError(f"the model file cannot be audited with: {error}; copy it again or train again") from error


def likeness(measured: Measured, model: LoadedModel, frames: Sequence[int] | None = None) -> Likeness | None:
    """Compare up to three frames of an image with the training images.

    Args:
        measured: The image, as conditions of the model.
        model: From :func:`sfumato.load`.
        frames: Numbers of the frames that are restored; all by default.

    Returns:
        The first warning or, without any, what the first frame is like; None if nothing can be
        said, since the model file does not describe its training images.

    Raises:
        ImageError: If pixels are not finite.
    """
    domain, best = domain_of(model), None
    restored = range(measured.num_frames) if frames is None else frames
    for frame in (restored[place] for place in evenly_spread(len(restored), _MOST_FRAMES)):
        found = _of_frame(_Patches(measured, model, frame), model, domain)
        if found is not None and found.is_warned:
            which = "" if measured.num_frames == 1 else f" This is frame {frame}, counted from 0."
            return found._replace(text=found.text + which)
        best = best or found
    return best


class _Patches:
    """Patches of a frame in the units of the training conditions."""

    def __init__(self, measured: Measured, model: LoadedModel, frame: int) -> None:
        self.spatial = measured.spatial
        self._measured, self._model, self._frame = measured, model, frame
        is_small = math.prod(self.spatial) <= _MOST_AT_ONCE
        self._whole = self._region((0,) * len(self.spatial), self.spatial) if is_small else None

    def read(self, corner: tuple[int, ...], sides: tuple[int, ...]) -> NDArray[Any]:
        """One patch, (K, *sides)."""
        return self._region(corner, sides) if self._whole is None else region(self._whole, corner, sides)

    def _region(self, corner: tuple[int, ...], sides: tuple[int, ...]) -> NDArray[Any]:
        condition = self._measured.condition(self._frame, corner, sides)
        return self._model.info.condition.invert(condition)[0].cpu().numpy()

    def all(self, side: int) -> Floats:
        """Pixels of all patches, (K, pixels)."""
        sides = tuple(min(side, length) for length in self.spatial)
        found = [self.read(corner, sides) for corner in corners(self.spatial, side, _MOST_PATCHES)]
        return np.concatenate([patch.reshape(len(patch), -1) for patch in found], axis=1).astype(np.float64)


def _of_frame(patches: _Patches, model: LoadedModel, domain: Domain | None) -> Likeness | None:
    pixels = patches.all(_PATCH if domain is None else domain.patch)
    for warning in itertools.chain(_blank(pixels), _other_units(pixels, model)):
        return Likeness(f"{warning} Do not rely on what the model restores of it.", is_warned=True)
    if domain is None:
        return None
    found = domain.judge_read(patches.spatial, patches.read, _MOST_PATCHES)
    return Likeness(found.told, found.is_unlike)


def _blank(pixels: Floats) -> Iterator[str]:
    """A sentence for an image that shows nothing. One of several channels, such as a mask, may be constant."""
    if not np.ptp(pixels, axis=1).any():
        values = list(dict.fromkeys(f"{value:g}" for value in pixels[:, 0]))
        what = "all zero" if values == ["0"] else f"constant, {' and '.join(values)} everywhere"
        yield f"The image is {what}: nothing was measured."


def _other_units(pixels: Floats, model: LoadedModel) -> Iterator[str]:
    """A sentence for an image whose values spread much more or much less than those of the training."""
    known = model.info.condition
    has_units = set(known.offset) != {0.0} or set(known.scale) != {1.0}
    if model.info.recipe.data.scales_each_image or not has_units:
        return
    low, high = np.quantile(pixels, (0.01, 0.99), axis=1)
    for offset, scale, least, most in zip(known.offset, known.scale, low, high, strict=True):
        # The normalisation maps most of the training's range to [-1, 1], or a standard deviation to 1.
        ratio, distance = (most - least) / (2 * scale), abs((most + least) / 2 - offset) / scale
        if max(ratio, distance) > _MUCH_LARGER or 0 < ratio < 1 / _MUCH_SMALLER:
            yield (
                f"The image has values of about {least:.3g} to {most:.3g} and the training images of "
                f"{offset - scale:.3g} to {offset + scale:.3g}: other units, or another exposure."
            )
