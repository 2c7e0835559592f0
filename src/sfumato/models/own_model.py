"""Use a model built in Python, of anyone's networks, wherever a loaded one is used, and write it to a file."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from sfumato.data.normalize import Normalization
from sfumato.diffusion.channels import channels_taken
from sfumato.diffusion.model import CVDM
from sfumato.models.measure_network import measure_network
from sfumato.models.model_file import LoadedModel, ModelInfo, check_loaded, save_model
from sfumato.models.own_networks import OwnNetwork, OwnNetworks, own_parts, tell
from sfumato.system.errors import ModelFileError

if TYPE_CHECKING:
    from sfumato.models.recipe import SampleRecipe

__all__ = ["as_loaded", "own_model", "save"]

_TRIAL = {2: 64, 3: 16}
"""Side of the image that a model is tried on: a multiple of the strides that most networks have."""
_IMAGES: dict[type[nn.Module], Literal[2, 3]] = {nn.Conv2d: 2, nn.Conv3d: 3}


def own_model(
    model: CVDM,
    *,
    condition: Normalization | None = None,
    target: Normalization | None = None,
    condition_channels: int | None = None,
    ndim: Literal[2, 3] | None = None,
    sample: "SampleRecipe | None" = None,
    name: str = "run",
) -> LoadedModel:
    """Say of a model built in Python what its networks do not: the units of its images and how it is sampled.

    The model is put into evaluation mode and tried once, so that what does not fit is found here. How far its networks
    look is measured, unless they say so (``reach`` and ``stride``, in pixels), so that large images can be restored in
    tiles.

    Args:
        model: Trained; its parts are :class:`torch.nn.Module`, of any class.
        condition: Normalisation of measured images, one number per channel; by default they are taken as they are.
        target: Normalisation of targets.
        condition_channels: K; by default as many as the normalisation or the networks' first layers have.
        ndim: 2 for images, 3 for volumes; by default as the layers say.
        sample: How samples are drawn; by default by 32 calls, as a recipe's.
        name: Free text to name the model.

    Raises:
        ModelFileError: If the parts do not fit each other or the numbers of channels.

    Example:
        >>> from sfumato import LearnedSchedule
        >>> model = CVDM(LearnedSchedule(nn.Conv2d(2, 1, 3, padding=1)), nn.Conv2d(4, 1, 5, padding=2))
        >>> own_model(model).info.condition_channels
        2
    """
    from sfumato.models.recipe import ModelRecipe, Recipe, SampleRecipe

    model.eval()
    _check_modules(model)
    if condition is not None and condition_channels is None:
        condition_channels = len(condition.offset)
    known = _channels_seen(model) if condition_channels is None else condition_channels
    ndim = ndim or _ndim(model)
    seen = _try(model, known, ndim)
    parts = tuple(_measured(part, module, seen.get(part), ndim) for part, module in own_parts(model))
    for told, (_, module) in zip(parts, own_parts(model), strict=True):
        tell(module, told)
    widest = max((layer.out_channels for layer in _layers(model)), default=32)
    method: Any = "cvdm" if model.draws_samples else "regression"
    same = [Normalization((0.0,) * channels, (1.0,) * channels) for channels in (known, model.target_channels)]
    info = ModelInfo(
        Recipe(name=name, model=ModelRecipe(method=method, ndim=ndim, base=widest), sample=sample or SampleRecipe()),
        known,
        model.target_channels,
        condition or same[0],
        target or same[1],
        audit={},
        provenance={},
        factor=(1,) * ndim,
        own=OwnNetworks.of(model, parts),
    )
    model.has_units = condition is not None or target is not None
    return LoadedModel(model, info, _hash(model))


def as_loaded(model: LoadedModel | CVDM) -> LoadedModel:
    """A model as it is used everywhere; of a bare :class:`CVDM`, images are taken as its networks take them.

    Raises:
        ModelFileError: If it is neither, its parts do not fit each other, or it was taken out of a loaded model, which
            knows its units.
    """
    if isinstance(model, CVDM) and not model.has_units:
        return own_model(model)
    check_loaded(model)
    assert isinstance(model, LoadedModel)
    return model


def save(path: str | Path, model: LoadedModel | CVDM) -> None:
    """Write a model to a file, whole or not at all.

    Args:
        path: Path of the file, such as ``model.safetensors``; an existing file is replaced.
        model: From :func:`sfumato.load` or :func:`sfumato.calibrate`; or a :class:`~sfumato.CVDM` of any networks,
            which :func:`own_model` gives units. The file holds the names of its classes and no code, so
            ``sfumato.load(path, network=...)`` needs them again.

    Raises:
        ModelFileError: If the model's parts do not fit each other.
        RunError: If the file cannot be written, or the weights are not finite; ``path`` is then unchanged.
    """
    loaded = as_loaded(model)
    save_model(path, loaded.model.state_dict(), loaded.info)


def _check_modules(model: CVDM) -> None:
    for name in ("schedule", "network", "mean_network", "start", "finish", "reader", "scale_network"):
        part = getattr(model, name)
        if part is not None and not isinstance(part, nn.Module):
            raise ModelFileError(
                f"the model's {name} is a {type(part).__name__}; expected a torch.nn.Module, whose weights can be found"
            )
    if not any(True for _ in model.parameters()):
        raise ModelFileError("the model has no weights; expected networks with some; build it of torch modules")


def _layers(model: CVDM) -> list[Any]:
    """Convolutions, in the order in which the model has them."""
    return [layer for layer in model.modules() if isinstance(layer, tuple(_IMAGES))]


def _ndim(model: CVDM) -> Literal[2, 3]:
    layers = _layers(model)
    if not layers:
        raise ModelFileError("the network has no layer that tells images from volumes; give own_model(..., ndim=2)")
    return next(ndim for kind, ndim in _IMAGES.items() if isinstance(layers[0], kind))


def _channels_seen(model: CVDM) -> int:
    """Count the channels of the condition by the first layer of a network that sees it first."""
    first = next(part for part in (model.start, model.reader, model.mean_network, model.network) if part is not None)
    takes = channels_taken(first)
    besides = (2 + (model.scale_network is not None)) * model.target_channels if first is model.network else 0
    besides = besides if model.draws_samples else 0
    if takes is None or takes <= besides:
        raise ModelFileError(
            f"the model's network takes {takes or 'an unknown number of'} channels, of which gamma and the noisy image "
            f"are {besides}, so those of the condition are unknown; give own_model(..., condition_channels=1)"
        )
    return int(takes) - besides


@torch.no_grad()
def _try(model: CVDM, condition_channels: int, ndim: int) -> dict[str, int]:
    """Run every part once, and return the channels of their inputs."""
    at = next(model.parameters())
    image = torch.zeros(1, condition_channels, *[_TRIAL[ndim]] * ndim, device=at.device)
    noisy = image.new_zeros(1, model.target_channels, *image.shape[2:])
    with _watched(model) as seen:
        known = model.read(image)
        center = known.center
        if center is not None and center.shape != noisy.shape:
            raise ModelFileError(
                f"the mean has shape {tuple(center.shape)} for a target of {tuple(noisy.shape)}; expected the same; "
                "let its network return images of the size that it is given"
            )
        if not model.draws_samples:
            return seen
        output = model.predict(noisy, known.schedule.log_gamma(image.new_full((1,), 0.5)), known.seen)
        if output.shape != noisy.shape:
            raise ModelFileError(
                f"the network makes images of shape {tuple(output.shape)} from noisy ones of {tuple(noisy.shape)}; "
                "expected the same; let it return images of the size that it is given"
            )
    return seen


@contextmanager
def _watched(model: CVDM) -> Iterator[dict[str, int]]:
    """Note what every part is given, and explain what torch says if one of them refuses it."""
    seen: dict[str, int] = {}
    last: list[tuple[str, Tensor]] = []
    hooks = []
    for name, part in own_parts(model):
        if name in ("schedule", "colour"):
            continue

        def note(_: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
            seen[name] = inputs[0].shape[1]
            last.append((name, inputs[0]))

        hooks.append(part.register_forward_pre_hook(note))
    try:
        yield seen
    except ValueError as error:
        raise ModelFileError(str(error)) from error
    except (RuntimeError, IndexError) as error:
        name, given = last[-1] if last else ("schedule", torch.zeros(0))
        raise ModelFileError(
            f"the model's {name} cannot take an image of shape {tuple(given.shape)}: {str(error).splitlines()[0]}; "
            "expected (B, channels in, *spatial) of any size to (B, channels out, *spatial) of the same size"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()


def _measured(part: str, module: nn.Module, channels: int | None, ndim: int) -> OwnNetwork:
    kind = type(module).__name__
    if channels is None:
        return OwnNetwork(part, kind)
    if not hasattr(module, "reach"):
        return OwnNetwork(part, kind, channels, *measure_network(module, channels, ndim))
    reach: Any = module.reach
    return OwnNetwork(part, kind, channels, reach, int(getattr(module, "stride", 1)))


def _hash(model: CVDM) -> str:
    """SHA-256 of names and weights, which identifies a model that is in no file."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
