"""The plan of a restoration, and the job that carries it to every worker.

A plan says which task writes which chunk, and which region it needs to see. It is arithmetic on a few numbers: no list
of tasks is kept, so a plan of 10^6 tasks costs as much as one of ten.

A job is everything that determines the bytes of a restoration, small enough to send to every worker. It refers to the
model by path and hash and to the input by path and identity, and contains neither. Workers read the files themselves
and refuse different ones.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from sfumato.data.images.choice import Choice
from sfumato.data.images.identity import Identity
from sfumato.restoration.outputs import Output

if TYPE_CHECKING:  # it would load zarr, which restoring in memory does not need
    from sfumato.data.images.ome_zarr_writer import Version

__all__ = ["Job", "Plan", "Task"]

T = TypeVar("T")
_NO_IDENTITY = {"threads", "source_identity", "device"}
"""Fields whose value may change without making it another job; the identity is compared without its times."""


class Task(NamedTuple):
    """One chunk of one level; positions are in pixels of that level, one number per axis."""

    number: int
    level: int
    """Level 0 is restored; each further level halves the one before."""
    corner: tuple[int, ...]
    """First pixel to write."""
    size: tuple[int, ...]
    seen_corner: tuple[int, ...]
    """First pixel to read: the chunk with its halo, clipped to the image."""
    seen_size: tuple[int, ...]

    @classmethod
    def within(
        cls, whole: Sequence[int], corner: tuple[int, ...], size: tuple[int, ...], halo: Sequence[int], grid: int = 1
    ) -> Self:
        """One chunk of an image with its halo; the region that is seen starts on the grid."""
        start = tuple(max(0, (c - h) // grid * grid) for c, h in zip(corner, halo, strict=True))
        stop = tuple(min(w, c + s + h) for w, c, s, h in zip(whole, corner, size, halo, strict=True))
        return cls(0, 0, corner, size, start, tuple(b - a for a, b in zip(start, stop, strict=True)))

    @property
    def inner(self) -> tuple[slice, ...]:
        """Position of the chunk within the region that is seen."""
        starts = (c - s for c, s in zip(self.corner, self.seen_corner, strict=True))
        return tuple(slice(start, start + size) for start, size in zip(starts, self.size, strict=True))


@dataclass(frozen=True)
class Plan:
    """The chunks of an image and its pyramid, level by level. Axes that enumerate frames have chunks of 1 and no halo.

    Attributes:
        levels: Size of each level, one number per axis; the first is restored.
        chunk: Size of the region that a task writes.
        halo: Pixels beyond a chunk that the networks see on both sides.

    Example:
        >>> plan = Plan(levels=((100, 100),), chunk=(64, 64), halo=(16, 16))
        >>> plan.num_tasks, plan.task(1).corner, plan.task(1).seen_corner, plan.task(1).seen_size
        (4, (0, 64), (0, 48), (80, 52))
    """

    levels: tuple[tuple[int, ...], ...]
    chunk: tuple[int, ...]
    halo: tuple[int, ...]

    @property
    def num_tasks(self) -> int:
        """Number of tasks of all levels."""
        return self.stages[-1].stop

    @property
    def stages(self) -> list[range]:
        """Task numbers of each level; a level needs all tasks of the one before."""
        ends = itertools.accumulate((math.prod(self._counts(level)) for level in range(len(self.levels))), initial=0)
        return [range(start, stop) for start, stop in itertools.pairwise(ends)]

    def task(self, number: int) -> Task:
        """The task with a given number.

        Raises:
            IndexError: If the plan has no such task.
        """
        if not 0 <= number < self.num_tasks:
            raise IndexError(f"task {number} was asked of a plan of {self.num_tasks}")
        level, stage = next((level, stage) for level, stage in enumerate(self.stages) if number in stage)
        along = np.unravel_index(number - stage.start, self._counts(level))
        corner = tuple(int(place) * chunk for place, chunk in zip(along, self.chunk, strict=True))
        whole = self.levels[level]
        size = tuple(min(chunk, w - c) for chunk, w, c in zip(self.chunk, whole, corner, strict=True))
        halo = self.halo if level == 0 else (0,) * len(whole)
        return Task.within(whole, corner, size, halo)._replace(number=number, level=level)

    def _counts(self, level: int) -> list[int]:
        """Number of chunks along each axis."""
        return [-(-whole // chunk) for whole, chunk in zip(self.levels[level], self.chunk, strict=True)]


@dataclass(frozen=True)
class Job:
    """What to restore, how, and where to write it.

    Only the same job resumes work that was started. All fields are part of its identity except ``device`` and
    ``threads``: these change sums only by rounding, and by default they depend on the machine, so a job could otherwise
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
        num_samples: Samples per image; 0 if none are drawn.
        num_steps: Network calls per sample; 0 if none are drawn.
        seed: Seed of all noise.
        first_image: Number of the first frame, which gives each frame its own noise.
        plan: The tasks.
        tile: Side of the tiles that the networks see, or None for whole chunks.
        batch: Samples that go through the network together.
        threads: Torch threads per worker.
        ome_zarr: OME-Zarr version of the stores.
        sampling_halo: Pixels beyond a chunk that the denoising network sees; None, also in jobs of earlier versions,
            for the plan's halo.
        source_choice: Channels, scene and times of the source, in numbers; None, also in jobs of earlier versions, for
            all channels and times of the first scene.
        device: Where an engine runs the tasks unless it was told another device; ``cpu`` in jobs of earlier versions.
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
    ome_zarr: "Version"
    sampling_halo: int | None = None
    source_choice: Choice | None = None
    device: str = "cpu"

    @property
    def is_fast(self) -> bool:
        """Whether no samples are drawn although the model could; a regression's job has the numbers of any other."""
        return self.num_samples == 0

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

    def box(self, task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Corner and size of a task's chunk in the written images."""
        return self.with_channels(task.corner, 0), self.with_channels(task.size, self.channels)

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
    def device_in(text: str) -> str:
        """Device of a job written by :meth:`to_json`."""
        return str(json.loads(text).get("device", "cpu"))

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
