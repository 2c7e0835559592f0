"""A job: all that decides the bytes of a restoration, small enough to send to every worker.

It names the model by path and hash and the input by path and identity, and carries neither: a worker reads the files
itself and refuses others.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sfumato.data.images.identity import Identity
from sfumato.data.images.ome_zarr_writer import Version
from sfumato.restoration.outputs import Output
from sfumato.restoration.plan import Plan

__all__ = ["Job"]

T = TypeVar("T")
_NO_IDENTITY = {"threads", "source_identity"}
"""Fields of which another value does not make it another job; the identity is compared without its times."""


@dataclass(frozen=True)
class Job:
    """What is restored, how, and where to.

    Work that was begun is resumed only by the same job. All fields belong to its identity but ``threads``: torch's
    threads change sums by rounding alone, and by default their number is that of the machine, so that a job would
    otherwise not resume on another one. ``batch`` changes no more, but follows from model and settings everywhere.
    ``tile``, and above all chunk and halo of the plan, decide what the networks see.

    Attributes:
        model: Path of the model file.
        model_sha256: Its hash.
        source: Path or address of what was measured.
        source_identity: What was there when the job was planned.
        source_axes: Its axes, where it does not say.
        source_on_target_grid: Whether it was enlarged to the grid of the targets already.
        axes: Of the plan: those of the output without C, in OME-Zarr's order.
        channels: Of the output; 0 if it has no axis C.
        outputs: What is written.
        num_samples: Draws per image.
        num_steps: Network calls per draw.
        seed: Of all noise.
        first_image: Number of the first frame, for noise of its own.
        plan: Its tasks.
        tile: Side of the tiles that networks see, or None for a whole chunk.
        batch: Samples that go through the network together.
        threads: Of torch, per worker.
        ome_zarr: Version of the stores.
    """

    model: str
    model_sha256: str
    source: str
    source_identity: Identity
    source_axes: str | None
    source_on_target_grid: bool
    axes: str
    channels: int
    outputs: tuple[Output, ...]
    num_samples: int
    num_steps: int
    seed: int
    first_image: int
    plan: Plan
    tile: int | None
    batch: int
    threads: int
    ome_zarr: Version

    @property
    def output_axes(self) -> str:
        """Of the images that are written, in OME-Zarr's order."""
        return "".join(self.with_channels(self.axes, "C"))

    def with_channels(self, along: Sequence[T], channels: T) -> tuple[T, ...]:
        """What the plan says of each axis, with what is said of the axis C where the outputs have it."""
        if not self.channels:
            return tuple(along)
        place = sum(axis in "TS" for axis in self.axes)
        return (*along[:place], channels, *along[place:])

    def to_json(self) -> str:
        """As text, one field per line."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    def differences(self, text: str) -> list[str]:
        """How this job differs from one that was written by :meth:`to_json`, as ``seed is 1, was 0``."""
        before, now = json.loads(text), json.loads(self.to_json())
        names = sorted({*before, *now} - _NO_IDENTITY)
        return [f"{name} is {_short(now.get(name))}, was {_short(before.get(name))}" for name in names
                if before.get(name) != now.get(name)]  # fmt: skip

    @staticmethod
    def source_identity_in(text: str) -> Identity | None:
        """Of the input of a job that was written by :meth:`to_json`; version 0.1 did not write it."""
        told = json.loads(text).get("source_identity")
        return None if told is None else Identity.from_json(told)

    def with_source_identity(self, text: str) -> str:
        """What was written without it, with that of this job."""
        told = json.loads(text) | {"source_identity": self.source_identity.to_json()}
        return json.dumps(told, indent=1) + "\n"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else f"{text[:100]}..."
