"""A device that is neither the CPU nor a GPU, to see which tensors are left on the wrong one.

It is built with torch's documented interface for private devices and registered in this process for good, so it belongs
into a process of its own.
"""

from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils.backend_registration import rename_privateuse1_backend
from torch.utils.cpp_extension import load

__all__ = ["NAME", "register"]

NAME = "second"
_SOURCE = Path(__file__).with_suffix(".cpp")


def register(folder: Path) -> None:
    """Build the device in a folder, and make ``torch.device("second")`` usable in this process."""
    rename_privateuse1_backend(NAME)
    built = load("second_device", [str(_SOURCE)], extra_cflags=["-O0"], build_directory=str(folder))
    module = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=lambda seed: None,
    )
    torch._register_device_module(NAME, module)
    built.register_hooks()
