"""A job: everything that determines the bytes of a restoration, small enough to send to every worker.

It refers to the model by path and hash and to the input by path and identity, and contains neither. Workers read the
files themselves and refuse different ones.
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
"""Fields whose value may change without making it another job; the identity is compared without its times."""


@dataclass(frozen=True)
class Job:
    """What to restore, how, and where to write it.

    Only the same job resumes work that was started. All fields are part of its identity except ``threads``: torch's
    threads change sums only by rounding, and by default their number depends on the machine, so a job could otherwise
    not resume on another one. ``batch`` has no larger effect, but it follows from the model and settings on every
    machine. ``tile``, and above all the plan's chunk and halo, determine what the networks see.

    Attributes:
        model: Path of the model file.
        model_sha256: Its hash.
        source: Path or address of the measured image.
        source_identity: Identity of the source when the job was planned.
        source_axes: Axes of the source, if it does not state them.
        source_on_target_grid: Whether the source was upsampled to the target grid already.
        axes: Axes of the plan: those of the output without C, in OME-Zarr's order.
        channels: Number of output channels; 0 if the output has no axis C.
        outputs: The images to write.
        num_samples: Samples per image.
        num_steps: Network calls per sample.
        seed: Seed of all noise.
        first_image: Number of the first frame, which gives each frame its own noise.
        plan: The tasks.
        tile: Side of the tiles that the networks see, or None for whole chunks.
        batch: Samples that go through the network together.
        threads: Torch threads per worker.
        ome_zarr: OME-Zarr version of the stores.
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
        """Axes of the written images, in OME-Zarr's order."""
        return "".join(self.with_channels(self.axes, "C"))

    def with_channels(self, along: Sequence[T], channels: T) -> tuple[T, ...]:
        """Insert a value for axis C into per-axis values of the plan, if the outputs have that axis."""
        if not self.channels:
            return tuple(along)
        place = sum(axis in "TS" for axis in self.axes)
        return (*along[:place], channels, *along[place:])

    def to_json(self) -> str:
        """The job as text, one field per line."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    def differences(self, text: str) -> list[str]:
        """How this job differs from one written by :meth:`to_json`, as ``seed is 1, was 0``."""
        before, now = json.loads(text), json.loads(self.to_json())
        names = sorted({*before, *now} - _NO_IDENTITY)
        return [f"{name} is {_short(now.get(name))}, was {_short(before.get(name))}" for name in names
                if before.get(name) != now.get(name)]  # fmt: skip

    @staticmethod
    def source_identity_in(text: str) -> Identity | None:
        """Input identity of a job written by :meth:`to_json`; version 0.1 did not record it."""
        told = json.loads(text).get("source_identity")
        return None if told is None else Identity.from_json(told)

    def with_source_identity(self, text: str) -> str:
        """The text of a job without an input identity, with the identity of this job added."""
        told = json.loads(text) | {"source_identity": self.source_identity.to_json()}
        return json.dumps(told, indent=1) + "\n"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else f"{text[:100]}..."
