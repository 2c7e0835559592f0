"""What feeding a training step costs, and what the order of ten million samples costs.

    python benchmarks/data_loading.py --check

Steps of the networks of ``overhead.py`` (128 x 128 pixels, batch 4) are timed in turns within one run: fed from one
tensor in memory, from a folder of TIFF files and from a packed store. Each turn starts its loader anew, so no batch is
made while another turn is on the clock. The store of the memory figure has 20 GB of samples, whose files are one and
the same shard under many names.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
import zarr

from bars import Bars
from overhead import BATCH, SIDE, networks
from sfumato import CVDM, LearnedSchedule
from sfumato.data.batches import Batch, PatchBatches
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.data.order import Order, permute
from sfumato.data.pack import pack
from sfumato.data.packed import ATTRIBUTE, PackedPairs
from sfumato.data.pairs import find_pairs
from sfumato.data.prefetch import prefetch
from sfumato.data.sources import FilePairs, PairSource
from sfumato.diffusion.noise import NoiseField

NUM_IMAGES, IMAGE_SIDE, STEPS_PER_TURN = 64, 512, 8
NUM_SAMPLES = 10_000_000
STORE_BYTES = 20 * 10**9


def write_pairs(folder: Path, number: int) -> tuple[Path, Path]:
    generator = np.random.default_rng(0)
    for name, side in itertools.product(range(number), ("low", "high")):
        (folder / side).mkdir(exist_ok=True)
        image = generator.poisson(100, (IMAGE_SIDE, IMAGE_SIDE)).astype(np.uint16)
        write_image(folder / side / f"{name}.tif", image, axes="YX")
    return folder / "low", folder / "high"


def patches(source: PairSource) -> PatchBatches:
    scale = Normalization(offset=(100.0,), scale=(10.0,))
    order = Order(0, len(source), BATCH)
    return PatchBatches(source, order, patch=SIDE, augment=True, condition=scale, target=scale)


def seconds_per_step(model: CVDM, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> float:
    number, started = 0, time.perf_counter()
    for number, batch in enumerate(batches, start=1):
        eps = NoiseField(0, sample=number)(0, torch.Size([1, *batch.target.shape]))[0]
        optimizer.zero_grad()
        model.loss(batch.condition, batch.target, batch.t, eps).total.backward()
        optimizer.step()
    return (time.perf_counter() - started) / number


def fed(loader: PatchBatches, steps: range) -> AbstractContextManager[Iterable[Batch]]:
    return prefetch(lambda step: loader(step, range(BATCH)), steps)


def step_times(bars: Bars, files: FilePairs, store: PackedPairs, rounds: int) -> None:
    rate, network = networks()
    model = CVDM(LearnedSchedule(rate), network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loaders = {"TIFF folder": patches(files), "packed store": patches(store)}
    held = [loaders["TIFF folder"](step, range(BATCH)) for step in range(STEPS_PER_TURN)]
    for sample in range(len(files)):
        files.read(sample, [0, 0], [1, 1])  # a small folder is read once, and then kept
    times: dict[str, list[float]] = {name: [] for name in ("memory", *loaders)}
    for turn in range(rounds):
        names = list(times)
        for name in names[turn % 3 :] + names[: turn % 3]:
            steps = range(turn * STEPS_PER_TURN, (turn + 1) * STEPS_PER_TURN)
            with nullcontext(held) if name == "memory" else fed(loaders[name], steps) as batches:
                times[name].append(seconds_per_step(model, optimizer, batches))
    for name in loaders:
        ratios = [ours / memory for ours, memory in zip(times[name], times["memory"], strict=True)]
        bars.report(f"step fed from a {name} / from memory", statistics.median(ratios), high=1.05)
    for name, loader in loaders.items():
        started = time.perf_counter()
        for step in range(50):
            loader(step, range(BATCH))
        bars.report(f"milliseconds to make a batch from a {name}", (time.perf_counter() - started) / 50 * 1e3)


def make_sparse(path: Path, low: Path, high: Path) -> int:
    """A packed store that claims 20 GB of pixels: one shard per side, under as many names as needed."""
    pack({"train": FilePairs(find_pairs(low, high))}, path)
    pixels = 2 * IMAGE_SIDE**2 * np.dtype(np.uint16).itemsize
    shards = -(-STORE_BYTES // (pixels * NUM_IMAGES))
    number = shards * NUM_IMAGES
    for side in ("condition", "target"):
        file = path / "train" / side / "zarr.json"
        document = json.loads(file.read_text())
        document["shape"][0] = number
        assert document["chunk_grid"]["configuration"]["chunk_shape"][0] == NUM_IMAGES
        file.write_text(json.dumps(document))
        first = path / "train" / side / "c" / "0" / "0" / "0" / "0"
        for shard in range(1, shards):
            copy = path.joinpath("train", side, "c", str(shard), "0", "0", "0")
            copy.parent.mkdir(parents=True)
            os.link(first, copy)
    group = zarr.open_group(path / "train", mode="r+")
    sizes = np.full((number, 2), IMAGE_SIDE, "<i4")
    for name, values in {"sizes": sizes, "name_ends": np.arange(number, dtype="<i8")}.items():
        group.create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=values.shape, compressors=None, overwrite=True
        )[...] = values
    root = zarr.open_group(path, mode="r+")
    described = dict(root.attrs[ATTRIBUTE])  # type: ignore[arg-type]
    described["splits"]["train"]["samples"] = number  # type: ignore[call-overload,index]
    root.attrs[ATTRIBUTE] = described
    return number


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_of_a_large_store(bars: Bars, store: PackedPairs, num_batches: int) -> None:
    batches = patches(store)
    highest = 0
    with fed(batches, range(num_batches)) as made:
        for step, _ in enumerate(made):
            if step == 20:
                start = resident_bytes()
            highest = max(highest, resident_bytes())
    gigabytes = 2 * len(store) * IMAGE_SIDE**2 * 2 / 1e9
    bars.report("gigabytes of samples in the sparse store", gigabytes, low=20)
    bars.report(f"megabytes that memory grew by over {num_batches} batches of it", (highest - start) / 1e6, high=100)


def order_of_ten_million(bars: Bars) -> None:
    order = Order(0, NUM_SAMPLES, 64)
    started = time.perf_counter()
    for step in range(200):
        order.samples(step)
    per_index = (time.perf_counter() - started) / (200 * 64)
    tracemalloc.start()
    order.samples(1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    bars.report("microseconds per index of the order, batch 64", per_index * 1e6, high=10)
    bars.report("kilobytes the order takes, at most", peak / 1e3, high=100)
    seen = np.zeros(NUM_SAMPLES, np.uint8)
    for first in range(0, NUM_SAMPLES, 10**6):
        np.add.at(seen, permute(np.arange(first, first + 10**6), NUM_SAMPLES, seed=0), 1)
    bars.report("samples of an epoch that are not drawn exactly once", int((seen != 1).sum()), high=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each loader")
    parser.add_argument("--batches", type=int, default=2000, help="batches drawn from the large store")
    arguments = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("memory is read from /proc: run this on Linux")
    bars = Bars()
    order_of_ten_million(bars)
    with tempfile.TemporaryDirectory() as place:
        low, high = write_pairs(Path(place), NUM_IMAGES)
        files = FilePairs(find_pairs(low, high))
        pack({"train": files}, Path(place, "store.zarr"))
        make_sparse(Path(place, "sparse.zarr"), low, high)
        memory_of_a_large_store(bars, PackedPairs(Path(place, "sparse.zarr")), arguments.batches)
        step_times(bars, files, PackedPairs(Path(place, "store.zarr")), arguments.rounds)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
