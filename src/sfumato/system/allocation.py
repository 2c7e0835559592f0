"""How freed memory is kept: for programs of ours that do nothing but push large images through networks.

glibc returns every large block to the system when it is freed and asks for it again a moment later, and the system
clears each page anew. Sampling spends a quarter of its time on that (`benchmarks/restore_scale.py --allocation`).
"""

import ctypes
import functools
import sys

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""
_KEPT_BYTES = 2**30


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep up to a gigabyte of freed memory for its next tensors, where the C library knows how.

    It is a setting of the whole process, so a library should leave it alone: commands and workers call it.

    Returns:
        Whether the C library took it.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has no such knob
        return False
    return all(mallopt(name, _KEPT_BYTES) == 1 for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
