"""Report what is installed, what is missing, and how fast this machine is."""

import importlib.metadata
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch

from sfumato.cli.unseen_gpu import unseen_gpu
from sfumato.models.build import build_model
from sfumato.models.recipe import ModelRecipe

__all__ = ["Extra", "Report", "examine"]

_OWN = "sfumato"


class Extra(NamedTuple):
    """An optional part of the package."""

    name: str
    missing: list[str]
    """Libraries that it needs and that are not installed."""

    @property
    def command(self) -> str:
        """Command that installs it."""
        return f"pip install '{_OWN}[{self.name}]'"


class Report(NamedTuple):
    """Result of :func:`examine`."""

    versions: dict[str, str]
    devices: list[str]
    cores: int
    memory_gib: float
    step_seconds: float
    """Time of one training step of a small model: 64 x 64 patches, batch 4, base 16."""
    extras: list[Extra]
    unseen: str | None = None
    """A GPU that torch cannot use, and what to do."""

    def lines(self) -> Iterator[str]:
        """Yield the report line by line."""
        yield "versions   " + ", ".join(f"{name} {version}" for name, version in self.versions.items())
        yield f"devices    {', '.join(self.devices)}; {self.cores} cores, {self.memory_gib:.1f} GiB of memory"
        if self.unseen is not None:
            yield f"GPU        {self.unseen}"
        yield f"speed      {self.step_seconds:.3f} s per training step of a small model on {self.devices[-1]}"
        for extra in self.extras:
            state = f"missing {', '.join(extra.missing)}; {extra.command}" if extra.missing else "installed"
            yield f"extra      {extra.name}: {state}"


def examine() -> Report:
    """Examine this installation and time a training step."""
    names = ("torch", "numpy", "zarr", "tifffile", "pydantic")
    versions = {_OWN: importlib.metadata.version(_OWN), "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in names}
    devices = ["cpu"]
    if torch.backends.mps.is_available():
        devices.append("mps")
    devices += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Report(versions, devices, cores, _memory_gib(), _step_seconds(devices[-1]), list(_extras()), unseen_gpu())


def _extras() -> Iterator[Extra]:
    """Yield the package's extras, except the developers', with what is missing for each."""
    wanted: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires(_OWN) or []:
        library, _, marker = requirement.partition(";")
        if found := re.search(r"""extra\s*==\s*['"]([\w-]+)""", marker):
            name = re.split(r"[\s<>=!~\[(]", library.strip())[0]
            wanted.setdefault(found.group(1), []).append(name)
    for extra in sorted(wanted.keys() - {"dev", "docs"}):
        yield Extra(extra, [name for name in wanted[extra] if not _is_installed(name)])


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _memory_gib() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return float("nan")


def _step_seconds(device: str) -> float:
    model = build_model(ModelRecipe(base=16, rate_base=8), 1, 1, seed=0).to(device)
    images = torch.zeros(4, 1, 64, 64, device=device)
    t = torch.linspace(0.2, 0.8, 4, device=device)

    def step() -> float:
        started = time.perf_counter()
        model.zero_grad()
        loss = model.loss(images, images, t, images).total
        loss.backward()
        loss.item()  # waits for the device
        return time.perf_counter() - started

    step()
    return min(step() for _ in range(3))
