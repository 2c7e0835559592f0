"""Networks that no recipe describes: what a model file holds of them, and how the model is made again around them.

A file holds weights and the names of classes, never code. Whoever loads it gives the class again.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from sfumato.diffusion.model import CVDM
from sfumato.diffusion.schedule import GlobalSchedule, LearnedSchedule, PaperSchedule
from sfumato.models.safetensors_file import TensorFile, as_float32, differences, layout
from sfumato.system.errors import ModelFileError

__all__ = ["MakesNetworks", "OwnNetwork", "OwnNetworks", "build_own", "own_parts", "tell"]

MakesNetworks: TypeAlias = CVDM | Callable[..., nn.Module]
"""A class of networks, called with the numbers of channels in and out, or a :class:`CVDM` built as it was."""

Plain: TypeAlias = bool | int | float | str

_MOST_NAME, _FURTHEST, _MOST_PARTS = 200, 4096, 20
_NOT_NUMBERS = ("training", "in_channels", "reach", "stride")
_OURS = {kind.__name__: kind for kind in (LearnedSchedule, PaperSchedule, GlobalSchedule)}
"""Schedules that can be made again around a network."""
_REMADE = {"network", "mean_network", "schedule", "schedule.network"}
"""Parts that a class of networks and one of these schedules can make again."""


@dataclass(frozen=True)
class OwnNetwork:
    """One part of a model.

    Attributes:
        part: Its name in the model, such as ``network`` or ``schedule.network``.
        kind: Name of its class.
        channels: Channels of its input; None for what takes no image, such as a schedule.
        reach: How far one call looks, in pixels; None if that may be the whole image.
        stride: Grid on which tiles must start, so that it sees the same in each.
    """

    part: str
    kind: str
    channels: int | None = None
    reach: int | None = None
    stride: int = 1

    def __post_init__(self) -> None:
        if not all(0 < len(text) <= _MOST_NAME and text.isprintable() for text in (self.part, self.kind)):
            raise ValueError(f"a network is called {self.part!r:.100} of class {self.kind!r:.100}; expected two names")
        if not 1 <= self.stride <= _FURTHEST or not 0 <= (self.reach or 0) <= _FURTHEST:
            raise ValueError(f"reach is {self.reach} and stride {self.stride} pixels; expected at most {_FURTHEST}")


@dataclass(frozen=True)
class OwnNetworks:
    """What a model file holds of a model without a recipe for its networks.

    Attributes:
        model: Name of the model's class.
        parts: Its parts.
        settings: What the model does with the output of its networks: ``predicts``, ``residual`` and ``scale``.
        schedule: Numbers of the schedule, such as ``rate_min``.
    """

    model: str
    parts: tuple[OwnNetwork, ...]
    settings: dict[str, Plain]
    schedule: dict[str, Plain]

    def __post_init__(self) -> None:
        if not 0 < len(self.parts) <= _MOST_PARTS or set(self.settings) != {"predicts", "residual", "scale"}:
            raise ValueError(f"{len(self.parts)} own networks with settings {sorted(self.settings)!r:.100}")

    @property
    def kinds(self) -> list[str]:
        """Names of the classes of networks, each once."""
        return list(dict.fromkeys(part.kind for part in self.parts if part.part != "schedule"))

    @property
    def call(self) -> str:
        """What to write in Python to load the file."""
        return f"sfumato.load(path, network={self.kinds[0] if self._is_remade else 'model'})"

    @property
    def _is_remade(self) -> bool:
        schedules = [part.kind for part in self.parts if part.part == "schedule"]
        parts = {part.part for part in self.parts}
        return self.model == "CVDM" and parts <= _REMADE and len(self.kinds) == 1 and schedules[0] in _OURS

    @classmethod
    def of(cls, model: CVDM, parts: tuple[OwnNetwork, ...]) -> "OwnNetworks":
        """Describe a model whose parts were measured."""
        settings: dict[str, Plain] = {
            "predicts": model.predicts,
            "residual": model.residual,
            "scale": float(model.scale),
        }
        return cls(type(model).__name__, parts, settings, _numbers(model.schedule))

    def to_json(self) -> dict[str, Any]:
        """Return names and numbers."""
        return dataclasses.asdict(self)

    def build(self, network: MakesNetworks | None, condition_channels: int, target_channels: int) -> CVDM:
        """Make the model that a file has the weights of.

        Args:
            network: What the reader of the file gave.
            condition_channels: K.
            target_channels: C.

        Raises:
            ModelFileError: If nothing was given, or something else than the file was written with.
        """
        if network is None:
            raise ModelFileError(
                f"was written with a network of your own, class {' and '.join(self.kinds)}, and a model file holds "
                f"weights and no code; expected the class; load it in Python, with {self.call}, and restore there "
                "with sfumato.restore"
            )
        with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten by the file's weights
            if isinstance(network, CVDM):
                model = copy.deepcopy(network)
            elif isinstance(network, type) and issubclass(network, CVDM):
                model = network()  # type: ignore[call-arg]  # a class of the user's own
            else:
                model = self._remade(cast(Callable[..., nn.Module], network), condition_channels, target_channels)
        self._check(model, target_channels)
        model.scale = float(self.settings["scale"])
        told = {part.part: part for part in self.parts}
        for name, part in own_parts(model):
            tell(part, told[name])
        return model

    def _remade(self, network: Callable[..., nn.Module], condition_channels: int, target_channels: int) -> CVDM:
        if not self._is_remade:
            held = ", ".join(f"{part.part}: {part.kind}" for part in self.parts)
            raise ModelFileError(
                f"holds a {self.model} with the parts {held}, which one class cannot make; build the CVDM as it was "
                "built before it was saved, and give that: sfumato.load(path, network=model)"
            )
        parts = {part.part: part.kind for part in self.parts}
        has_mean = "mean_network" in parts

        def make(channels: int) -> nn.Module:
            try:
                return network(channels, target_channels)
            except TypeError as error:
                raise ModelFileError(
                    f"needs networks of class {self.kinds[0]}, and what was given cannot be called with "
                    f"({channels}, {target_channels}), the channels in and out: {error}; give a class or function that "
                    "can, such as functools.partial(Net, width=16), or the CVDM built as it was"
                ) from error

        inner = (make(condition_channels),) if "schedule.network" in parts else ()
        schedule: Any = _OURS[parts["schedule"]](*inner)
        known = _numbers(schedule)
        vars(schedule).update({name: value for name, value in self.schedule.items() if name in known})
        return CVDM(
            schedule,
            make(condition_channels + (2 + has_mean) * target_channels),
            target_channels=target_channels,
            mean_network=make(condition_channels) if has_mean else None,
            **{name: value for name, value in self.settings.items() if name != "scale"},  # type: ignore[arg-type]
        )

    def _check(self, model: CVDM, target_channels: int) -> None:
        """Refuse a model that differs from the file in what its weights do not show."""
        found = OwnNetworks.of(model, tuple(OwnNetwork(name, type(part).__name__) for name, part in own_parts(model)))
        told = [
            *_differing({part.part: part.kind for part in found.parts}, {part.part: part.kind for part in self.parts}),
            *_differing(found.settings | {"scale": 1.0}, self.settings | {"scale": 1.0}),
            *_differing(found.schedule, self.schedule),
            *_differing({"target_channels": model.target_channels}, {"target_channels": target_channels}),
        ]
        if told:
            raise ModelFileError(
                f"was written with another model than what was given: {'; '.join(told[:5])}; build it as it was built "
                "before it was saved"
            )


def build_own(
    file: TensorFile, own: OwnNetworks, network: MakesNetworks | None, condition_channels: int, target_channels: int
) -> CVDM:
    """Make the model that an open file has the weights of, as :meth:`OwnNetworks.build` does.

    Raises:
        ModelFileError: If nothing was given, or something else than the file was written with.
    """
    try:
        model = own.build(network, condition_channels, target_channels)
    except ModelFileError as error:
        raise ModelFileError(f"{file.path} {error}") from error
    if faults := differences(as_float32(file.specs), as_float32(layout(model.state_dict()))):
        advice = "give the class that the file was written with, with the same options"
        raise file.error(f"does not hold the weights of {' and '.join(own.kinds)} as given: {faults}", advice)
    return model


def own_parts(model: CVDM) -> Iterator[tuple[str, nn.Module]]:
    """Names and modules of a model's parts; the network of a schedule is a part of its own."""
    for name, part in model.named_children():
        yield name, part
        inner = getattr(part, "network", None)
        if name == "schedule" and isinstance(inner, nn.Module) and not isinstance(part, GlobalSchedule):
            yield "schedule.network", inner


def tell(part: nn.Module, known: OwnNetwork) -> None:
    """Note on a network how far it looks, as networks of this package say of themselves."""
    values = {"in_channels": known.channels, "reach": known.reach, "stride": known.stride}
    for name, value in values.items():
        if known.channels is not None and not hasattr(part, name):
            setattr(part, name, value)


def _numbers(module: object) -> dict[str, Plain]:
    """Numbers and texts that a module keeps beside its weights."""
    values = vars(module).items() if isinstance(module, nn.Module) else ()
    return {
        name: value
        for name, value in values
        if isinstance(value, Plain)
        and not name.startswith("_")
        and name not in ("training", "in_channels", "reach", "stride")
    }


def _differing(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    for name in [*expected, *(name for name in found if name not in expected)]:
        if found.get(name) != expected.get(name):
            yield f"{name} is {found.get(name)!s:.80}, and in the file {expected.get(name)!s:.80}"
