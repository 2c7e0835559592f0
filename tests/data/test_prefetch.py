"""Batches made ahead: the same to the bit and in order, whoever makes them."""

import itertools
import os
import signal
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
import torch

from pair_folders import make_pairs
from sfumato.data.batches import PatchBatches
from sfumato.data.normalize import Normalization
from sfumato.data.order import Order
from sfumato.data.pairs import find_pairs
from sfumato.data.prefetch import can_start_workers, prefetch, usual_workers
from sfumato.data.sources import FilePairs
from sfumato.system.errors import PairingError, RunError

needs_workers = pytest.mark.skipif(not can_start_workers(), reason="workers are forks, on Linux alone")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
NUMBERS = [0, pytest.param(1, marks=needs_workers), pytest.param(3, marks=needs_workers)]


def none_left() -> bool:
    """Whether all workers have ended, within a moment: a process of many threads ends slowly."""
    until = time.monotonic() + 10
    while active_children() and time.monotonic() < until:
        time.sleep(0.05)
    return not active_children()


@pytest.mark.parametrize("workers", NUMBERS)
def test_results_keep_the_order(workers: int) -> None:
    """Also where the first of three takes longer than the others."""

    def make(step: int) -> tuple[int, int]:
        time.sleep(0.1 if step % 3 == 0 else 0)
        return step, os.getpid()

    with prefetch(make, range(4, 16), workers=workers) as results:
        found = list(results)
    assert [step for step, _ in found] == list(range(4, 16))
    makers = {maker for _, maker in found}
    assert (os.getpid() in makers, len(makers)) == (workers == 0, max(workers, 1))
    assert none_left()


@pytest.mark.parametrize("workers", NUMBERS)
def test_errors_keep_their_text(workers: int) -> None:
    def broken(step: int) -> int:
        if step == 3:
            raise PairingError("no such image")
        return step

    with prefetch(broken, range(10), workers=workers) as results:
        assert list(itertools.islice(results, 3)) == [0, 1, 2]
        with pytest.raises(PairingError, match=r"^no such image$"):
            next(results)
    assert none_left()


@pytest.mark.parametrize("workers", NUMBERS[1:])
def test_workers_make_the_same_batches(workers: int, tmp_path: Path) -> None:
    low, high = make_pairs(tmp_path)
    source = FilePairs(find_pairs(low, high))
    plain = Normalization(offset=(0.1,), scale=(0.3,))
    batches = PatchBatches(source, Order(5, len(source), 4), patch=16, augment=True, condition=plain, target=plain)
    with prefetch(lambda step: batches(step, range(1, 4)), range(7, 20), workers=workers) as results:
        for step, made in enumerate(results, start=7):
            expected = batches(step, range(1, 4))
            assert made.samples == expected.samples
            for one, other in zip(made[:3], expected[:3], strict=True):
                np.testing.assert_array_equal(one.numpy().view(np.uint32), other.numpy().view(np.uint32))
    assert step == 19


@needs_workers
@pytest.mark.parametrize("busy", [0.0, 0.5])
def test_a_lost_worker_is_told_and_no_other_stays(busy: float) -> None:
    """Whether the loop waits for it or computes."""
    with pytest.raises(RunError, match=r"makes batches was ended by the system.*fewer workers than 2"):
        lose_a_worker(busy)
    assert none_left()


def lose_a_worker(busy: float) -> None:
    with prefetch(slowly, range(10**6), workers=2) as results:
        os.kill(next(results), signal.SIGKILL)
        for _ in results:
            time.sleep(busy)


def slowly(step: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def test_a_cpu_has_no_workers_by_default() -> None:
    assert usual_workers(torch.device("cpu")) == 0
    assert usual_workers(torch.device("cuda")) == (
        min(4, len(os.sched_getaffinity(0)) - 1) if can_start_workers() else 0
    )


def test_an_invalid_number_of_workers_is_refused() -> None:
    with pytest.raises(RunError, match="-1 processes were asked"), prefetch(int, range(3), workers=-1):
        pass
