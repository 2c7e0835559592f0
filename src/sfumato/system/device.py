"""Where to compute, checked before anything is loaded."""

import torch

from sfumato.system.errors import RunError

__all__ = ["usable_device"]


def usable_device(name: str | torch.device) -> torch.device:
    """A device of this machine.

    Args:
        name: ``cpu``, ``cuda`` or ``mps``, or one of several by number, such as ``cuda:1``.

    Raises:
        RunError: If this machine, or this build of torch, does not have it.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    kind, _, number = str(name).partition(":")
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if not (number or "0").isdecimal() or int(number or 0) >= count.get(kind, 0):
        usable = ", ".join(name if n == 1 else f"{name}:0 to {name}:{n - 1}" for name, n in count.items() if n)
        raise RunError(f"device {str(name)!r} is not there; this machine and build of torch offer: {usable}")
    return torch.device(name)
