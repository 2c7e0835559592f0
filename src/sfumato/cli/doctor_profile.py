"""Report where the processor time of one network call goes."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from sfumato.diffusion.inference import for_inference
from sfumato.diffusion.model import CVDM
from sfumato.models.model_file import LoadedModel
from sfumato.system.device import keep_freed_memory

__all__ = ["KINDS", "Profile", "profiles"]

KINDS: dict[str, tuple[str, ...]] = {
    "convolution": ("conv",),
    "activation": ("silu", "softplus", "gelu", "relu"),
    "normalisation": ("norm", "addcmul"),
    "pooling and joining": ("pool", "maximum", "cat"),
    "rest": ("",),
}
"""Parts of the names of torch's operations, by kind; the first that fits counts."""

_SIZES = {2: (256, 256), 3: (32, 64, 64)}
_REPEATS = 3


class Profile(NamedTuple):
    """One call of a network on one image, on this machine."""

    name: str
    size: tuple[int, ...]
    seconds: float
    """Processor time, as rewritten for inference."""
    seconds_as_trained: float
    shares: dict[str, float]
    """Share of the time for each of :data:`KINDS`."""
    operations: float
    """Floating-point operations of its convolutions."""

    def lines(self) -> Iterator[str]:
        """Yield the profile line by line."""
        size, faster = " x ".join(map(str, self.size)), self.seconds_as_trained / self.seconds
        yield f"{self.name:<10} {self.seconds * 1e3:.1f} ms of processor time per call on {size} pixels"
        for kind, share in self.shares.items():
            rate = self.operations / (share * self.seconds) / 1e9 if kind == "convolution" and share else 0.0
            speed = f", {rate:.0f} GFLOP/s" if rate else ""
            yield f"           {kind}: {share:.0%}, {share * self.seconds * 1e3:.1f} ms{speed}"
        yield f"           {faster:.2f} times faster than the network as trained"


def profiles(model: LoadedModel) -> Iterator[Profile]:
    """Profile one call of each large network of a model on a CPU: the reader, if any, and the denoiser."""
    keep_freed_memory()  # as restoring does
    as_trained, rewritten = _calls(model.model, model), _calls(for_inference(model.model), model)
    for name, call in rewritten.items():
        shares = _shares(call)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call()
        size = _SIZES[model.info.recipe.model.ndim]
        seconds, seconds_as_trained = _seconds([call, as_trained[name]])
        yield Profile(name, size, seconds, seconds_as_trained, shares, float(counter.get_total_flops()))


def _calls(model: CVDM, loaded: LoadedModel) -> dict[str, Callable[[], object]]:
    """What runs each network once, by name."""
    size = _SIZES[loaded.info.recipe.model.ndim]
    generator = torch.Generator().manual_seed(0)
    condition = torch.randn(1, loaded.info.condition_channels, *size, generator=generator)
    noisy = torch.randn(1, loaded.info.target_channels, *size, generator=generator)
    if not model.draws_samples:
        return {"network": lambda: model.center(condition)}
    with torch.no_grad():
        seen = model.read(condition).seen
    calls: dict[str, Callable[[], object]] = {}
    if isinstance(model.reader, nn.Module) or isinstance(model.mean_network, nn.Module):
        calls["reader"] = lambda: model.center(condition)
    calls["denoiser"] = lambda: model.ask_network(noisy, torch.full_like(noisy, 0.5), seen)
    return calls


@torch.no_grad()
def _seconds(calls: list[Callable[[], object]]) -> list[float]:
    """The least processor time of each, in turns."""
    best = [float("inf")] * len(calls)
    for _ in range(_REPEATS):
        for number, call in enumerate(calls):
            started = time.process_time()
            call()
            best[number] = min(best[number], time.process_time() - started)
    return best


@torch.no_grad()
def _shares(call: Callable[[], object]) -> dict[str, float]:
    call()
    clock = _Clock()
    with clock:
        for _ in range(_REPEATS):
            call()
    whole = sum(clock.spent.values())
    return {kind: value / whole for kind, value in clock.spent.items()}


class _Clock(TorchDispatchMode):
    """Adds up the processor time of each kind of operation; torch's profiler knows only the time on the wall."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.spent = dict.fromkeys(KINDS, 0.0)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kind = next(kind for kind, parts in KINDS.items() if any(part in str(func) for part in parts))
        started = time.process_time()
        result = func(*args, **(kwargs or {}))
        self.spent[kind] += time.process_time() - started
        return result
