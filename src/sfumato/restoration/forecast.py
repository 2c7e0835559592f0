"""Estimate the cost of a restoration before it starts: counts from the plan, and the time of one network call."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from sfumato.diffusion.noise import NoiseField
from sfumato.restoration.job import Plan
from sfumato.restoration.planning import Restoration
from sfumato.restoration.tiles import number_of_tiles

__all__ = ["Forecast", "forecast", "forecast_all", "pixels_seen"]

_WORKERS = (1, 8, 64)


@dataclass(frozen=True)
class Forecast:
    """Costs of a restoration.

    Attributes:
        chunks: Number of tasks that restore a chunk.
        tiles: Number of tiles the networks see, over all chunks, for one sample and one step.
        calls: Passes through the denoising network.
        bytes_of_samples: Approximate size of the samples of one chunk, which a worker holds in memory.
        bytes_of_output: Size of everything that is written, before compression.
        seconds: Total restoration time on one worker.
    """

    chunks: int
    tiles: int
    calls: int
    bytes_of_samples: int
    bytes_of_output: int
    seconds: float

    def lines(self) -> list[str]:
        """The estimate as text."""
        # Workers beyond the number of chunks stay idle.
        hours = ", ".join(f"{_duration(self.seconds / min(workers, self.chunks))} on {workers}" for workers in _WORKERS)
        return [
            f"chunks: {self.chunks}",
            f"tiles: {self.tiles}",
            f"network calls: {self.calls}",
            f"memory of a worker: about {self.bytes_of_samples / 2**20:.0f} MB for samples, besides the network's",
            f"output: {self.bytes_of_output / 2**30:.3g} GB before compression",
            f"workers: {hours}",
        ]


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"


def forecast(restoration: Restoration) -> Forecast:
    """Count the work, and time one step of one batch of samples on one chunk."""
    return _forecast(restoration, _seconds_of_pixel(restoration))


def forecast_all(restorations: Sequence[Restoration]) -> Forecast:
    """The same for several images, of which the one with the largest chunks is timed."""
    largest = max(restorations, key=lambda restoration: math.prod(restoration.job.plan.task(0).seen_size))
    of_pixel = _seconds_of_pixel(largest)
    found = [_forecast(restoration, of_pixel) for restoration in restorations]
    return Forecast(
        chunks=sum(one.chunks for one in found),
        tiles=sum(one.tiles for one in found),
        calls=sum(one.calls for one in found),
        bytes_of_samples=max(one.bytes_of_samples for one in found),
        bytes_of_output=sum(one.bytes_of_output for one in found),
        seconds=sum(one.seconds for one in found),
    )


def _seconds_of_pixel(restoration: Restoration) -> float:
    """Seconds of one network call per pixel that it sees."""
    job, model = restoration.job, restoration.model
    ndim = len(restoration.measured.axes)
    seen = job.plan.task(0).seen_size[-ndim:]
    # Chunks differ only at the image borders, so their number of pixels with halos gives their relative cost.
    condition = torch.zeros(1, model.info.condition_channels, *seen, device=next(model.model.parameters()).device)
    threads = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        restorer = restoration.restorer
        if restorer.draws_samples:  # two steps are enough to time one
            restorer = replace(restorer, sampled=replace(restorer.sampled, num_samples=job.batch, num_steps=2))
        for _ in range(2):  # the first pass warms up
            started = time.monotonic()
            for _ in restorer.draws(condition, NoiseField(0), batch=job.batch):
                pass
            seconds = time.monotonic() - started
    finally:
        torch.set_num_threads(threads)
    return seconds / (restorer.num_calls * math.prod(seen))


def _forecast(restoration: Restoration, of_pixel: float) -> Forecast:
    """Count the work, given the seconds of one network call per pixel."""
    job, ndim = restoration.job, len(restoration.measured.axes)
    stage, first = job.plan.stages[0], job.plan.task(0)
    seen = first.seen_size[-ndim:]
    halo = max(job.plan.halo) if job.sampling_halo is None else job.sampling_halo
    sampled_in = [min(side, size + 2 * halo) for side, size in zip(seen, first.size[-ndim:], strict=True)]
    rounds = job.num_steps * -(-job.num_samples // job.batch) if restoration.restorer.draws_samples else 1
    tiles = 1 if job.tile is None else number_of_tiles(seen, job.tile)
    return Forecast(
        chunks=len(stage),
        tiles=tiles * len(stage),
        calls=tiles * len(stage) * rounds,
        bytes_of_samples=4 * (2 * job.num_samples + 6 * job.batch) * math.prod(sampled_in) * max(1, job.channels),
        bytes_of_output=4 * len(job.outputs) * max(1, job.channels) * math.prod(job.plan.levels[0]),
        seconds=of_pixel * pixels_seen(job.plan, job.sampling_halo) * restoration.restorer.num_calls,
    )


def pixels_seen(plan: Plan, halo: int | None = None) -> int:
    """Number of pixels of all chunks with their halos, a product over axes of the sums along each.

    Args:
        plan: The chunks.
        halo: Another halo than the plan's, along the axes that have one.
    """
    sums = []
    for whole, chunk, own in zip(plan.levels[0], plan.chunk, plan.halo, strict=True):
        halo_here = own if halo is None else min(own, halo)
        starts = range(0, whole, chunk)
        sums.append(sum(min(whole, start + chunk + halo_here) - max(0, start - halo_here) for start in starts))
    return math.prod(sums)
