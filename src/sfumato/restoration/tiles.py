"""Apply networks tile by tile, so that an image of any size is one joint sample.

The state of the sampler is held once for the whole region; at each step the network sees overlapping tiles of it and
their outputs are blended with weights that sum to 1. Clean image and velocity are related pixel by pixel, so blending
the network's outputs is blending its predictions of the clean image, and the sampler makes one update of one state.
Samples of neighbouring tiles therefore cannot contradict each other, and no sample is an average of independent ones.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sfumato.diffusion.model import CVDM
from sfumato.nn.blocks import shallow_copy
from sfumato.nn.fused import FusedUNet

__all__ = ["TiledNetwork", "number_of_tiles", "spans", "tiled"]


class Span(NamedTuple):
    """Position of a tile along one axis, in pixels of the image."""

    start: int
    """First pixel the network sees."""
    stop: int
    weights: Tensor
    """Weight of its output in the blend, shape (stop - start)."""


def spans(length: int, tile: int, halo: int, blend: int) -> list[Span]:
    """Tiles along one axis: cores of ``tile`` pixels, each seen with ``halo`` more on both sides, clipped to the image.

    The weights of neighbours cross over smoothly within ``blend`` pixels around the border of their cores.

    Example:
        >>> [(span.start, span.stop) for span in spans(100, tile=32, halo=16, blend=8)]
        [(0, 48), (16, 80), (48, 100)]
    """
    number = number_of_tiles([length], tile)
    borders = [0, *(tile * i for i in range(1, number)), length]
    result = []
    for first, last in itertools.pairwise(borders):
        start, stop = max(0, first - halo), min(length, last + halo)
        place = torch.arange(start, stop) + 0.5
        # A weight that rises at a border falls in the neighbour, so the sum telescopes to 1.
        rising = _rise((place - first) / blend) if first > 0 else torch.ones(stop - start)
        falling = _rise((place - last) / blend) if last < length else torch.zeros(stop - start)
        weights = rising - falling
        result.append(Span(start, stop, weights))
    return result


def number_of_tiles(spatial: Sequence[int], tile: int) -> int:
    """Tiles of an image; the last one along an axis may be up to 1.5 times as long."""
    return math.prod(max(1, round(length / tile)) for length in spatial)


def _rise(x: Tensor) -> Tensor:
    """Rise from 0 to 1 between -1/2 and 1/2, along half a sine."""
    return (1 + (math.pi * x.clamp(-0.5, 0.5)).sin()) / 2


class TiledNetwork(nn.Module):
    """A network from (B, in, *spatial) to (B, out, *spatial) of the same size, applied tile by tile.

    If the network's output at a pixel depends on no pixel further away than ``halo - blend / 2``, and on position only
    by multiples of ``stride``, the result equals the network's own, whatever the tiles.

    Args:
        network: A network without statistics over space; otherwise its result depends on the tile.
        tile: Side of a tile's core in pixels, a multiple of ``stride``.
        halo: Context beyond the core on every side, a multiple of ``stride``.
        blend: Width of the cross-over between neighbours, at most ``2 * halo``.
        stride: Stride of the network.
    """

    def __init__(self, network: nn.Module, *, tile: int, halo: int, blend: int, stride: int) -> None:
        super().__init__()
        if tile < stride or tile % stride or halo % stride or not 0 < blend <= 2 * halo:
            raise ValueError(
                f"tile is {tile}, halo {halo} and blend {blend}; expected positive multiples of the network's stride, "
                f"{stride}, for the first two, and a blend of at most twice the halo"
            )
        self.network = network
        self.tile, self.halo, self.blend = tile, halo, blend

    def read(self, images: Tensor) -> Tensor:
        """What a fused network makes of the first channels of the whole image, for all tiles."""
        assert isinstance(self.network, FusedUNet)
        return self.network.read(images)

    def forward(self, images: Tensor, read: Tensor | None = None) -> Tensor:
        """Map images (B, in, *spatial) to (B, out, *spatial), given what :meth:`read` made of the rest, if any."""
        along = [spans(length, self.tile, self.halo, self.blend) for length in images.shape[2:]]
        result: Tensor | None = None
        for box in itertools.product(*along):
            place: tuple[Any, ...] = (..., *(slice(span.start, span.stop) for span in box))
            # What was read has the padding that the network gives to the last tile.
            ends = [
                None if span.stop == length else span.stop for span, length in zip(box, images.shape[2:], strict=True)
            ]
            beside = (..., *(slice(span.start, end) for span, end in zip(box, ends, strict=True)))
            output = self.network(images[place]) if read is None else self.network(images[place], read[beside])
            for axis, span in enumerate(box, start=-len(box)):
                output = output * span.weights.to(output).reshape([-1, *[1] * (-axis - 1)])
            if result is None:
                result = output.new_zeros([*output.shape[:2], *images.shape[2:]])
            result[place] += output
        assert result is not None
        return result


def tiled(model: CVDM, tile: int) -> CVDM:
    """A model that shares all weights with ``model`` and whose networks see tiles with cores of about ``tile`` pixels.

    A network whose output depends on the whole image, such as one with instance normalisation, is not tiled: on tiles
    it would be a different network.
    """
    shared = shallow_copy(model)
    for name, part in model.named_children():
        if name == "schedule":
            schedule = shallow_copy(part)
            for inner, network in part.named_children():
                setattr(schedule, inner, _tile_network(network, tile))
            part = schedule
        setattr(shared, name, _tile_network(part, tile))
    return shared


def _tile_network(network: nn.Module, tile: int) -> nn.Module:
    reach, stride = getattr(network, "reach", None), getattr(network, "stride", 1)
    if reach is None:
        return network
    halo = -(-(reach + stride) // stride) * stride
    return TiledNetwork(network, tile=-(-tile // stride) * stride, halo=halo, blend=2 * stride, stride=stride)
