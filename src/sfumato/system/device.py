"""Choose the device, and configure subnormal numbers and the reuse of freed memory.

torch is imported only where it is used: the command line configures memory before it knows whether it needs torch.
"""

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sfumato.system.errors import RunError

if TYPE_CHECKING:
    import torch

__all__ = [
    "AUTO",
    "best_device",
    "keep_freed_memory",
    "named_device",
    "pins_memory",
    "told_device",
    "usable_device",
    "without_subnormals",
]

AUTO = "auto"
"""The device that a run or a restoration was begun on, otherwise the best one of this machine."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 2**30


def best_device() -> str:
    """The device that ``auto`` stands for: a GPU that torch can use by CUDA, otherwise the processor.

    ``mps`` has no numbers of 64 bits, which training measures with, so it is used only on request.
    """
    import torch

    return "cuda" if torch.cuda.is_available() and torch.cuda.device_count() else "cpu"


def named_device(asked: str, recorded: str | None = None, *, what: str = "it") -> str:
    """The name of the device to use.

    Args:
        asked: ``auto``, or a device that was asked for, which is taken.
        recorded: The device on which something was begun, which goes on there.
        what: What was begun.

    Raises:
        RunError: If this machine does not have the recorded device.

    Example:
        >>> named_device("auto", "cpu"), named_device("cuda:1", "cpu")
        ('cpu', 'cuda:1')
    """
    if asked != AUTO:
        return asked
    if recorded is None:
        return best_device()
    try:
        usable_device(recorded)
    except RunError as error:
        raise RunError(
            f"{what} was begun on another device, and {error}; give --device to go on with one of these, which "
            "changes results by rounding"
        ) from error
    return recorded


def told_device(name: str, *, is_recorded: bool = False) -> str:
    """A line that says which device was taken without being asked for.

    Example:
        >>> told_device("cpu", is_recorded=True)
        'device: cpu, as begun'
    """
    import torch

    if is_recorded:
        return f"device: {name}, as begun"
    if name.startswith("cuda"):
        return f"device: {name} ({torch.cuda.get_device_name(name)}); --device cpu uses the processor"
    also = "; --device mps tries its GPU" if torch.backends.mps.is_available() else ""
    threads = torch.get_num_threads()
    return f"device: {name}, {threads} thread{'s' * (threads > 1)}{also}"


def usable_device(name: "str | torch.device") -> "torch.device":
    """Return a device of this machine, checked before anything is loaded.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``mps`` or another accelerator of this build of torch, or one of several by
            number, such as ``cuda:1``.

    Raises:
        RunError: If this machine or this build of torch does not have the device.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    import torch

    name = best_device() if name == AUTO else name
    kind, _, number = str(name).partition(":")
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None:
        count.setdefault(accelerator.type, torch.accelerator.device_count())
    if not (number or "0").isdecimal() or int(number or 0) >= count.get(kind, 0):
        usable = ", ".join(name if n == 1 else f"{name}:0 to {name}:{n - 1}" for name, n in count.items() if n)
        raise RunError(f"device {str(name)!r} is not there; this machine and build of torch offer: {usable}")
    return torch.device(name)


def pins_memory(device: "torch.device") -> bool:
    """Whether a device copies from pinned memory while it computes; on Macs it shares the memory of the CPU."""
    return device.type not in ("cpu", "mps")


@contextlib.contextmanager
def without_subnormals() -> Iterator[None]:
    """Treat numbers below 1e-38 as 0 inside this context.

    Gradients of a trained network contain many of these subnormal numbers, and processors handle them so slowly that
    they double the time of a step.
    """
    import torch

    was_on = float(torch.tensor(1e-40) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep up to a gigabyte of freed memory for its next tensors, if the C library supports it.

    glibc returns every large block to the system when it is freed and asks for it again a moment later, and the system
    clears each page again. Sampling spends a quarter of its time on that (`benchmarks/restore_scale.py --allocation`).
    It is a setting of the whole process, so library code should not change it: only commands and workers call this.

    Returns:
        Whether the C library accepted the setting.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has no such setting
        return False
    return all(mallopt(name, _KEPT_BYTES) == 1 for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
