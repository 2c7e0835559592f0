"""Build the networks and the schedule that the `model` section of a recipe describes."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from sfumato.diffusion.colour import Colour
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.regression import Regression
from sfumato.diffusion.schedule import CosineSchedule, GlobalSchedule, LearnedSchedule, LinearSchedule, PaperSchedule
from sfumato.diffusion.student import Student
from sfumato.nn import SR3UNet, UNet
from sfumato.nn.binomial import Binomial
from sfumato.nn.blocks import conv, zero_output
from sfumato.nn.dfcan import DFCAN
from sfumato.nn.head import Head
from sfumato.nn.linear_filter import LinearFilter
from sfumato.system.errors import RecipeError

if TYPE_CHECKING:  # pydantic takes as long to import as a sixth of torch
    from sfumato.models.recipe import ModelRecipe, Recipe
    from sfumato.models.student_recipe import StudentRecipe

__all__ = ["build_model", "least_weights", "outline"]

_MOST_SCALES = 10
"""Images are padded to multiples of 2**(num_scales - 1) pixels: 512 here."""


def build_model(
    model: "ModelRecipe",
    condition_channels: int,
    target_channels: int,
    *,
    seed: int = 0,
    student: "StudentRecipe | None" = None,
) -> CVDM:
    """Build the model that a recipe describes, with initial weights that depend only on the seed.

    The noise network and the mean network, if there is one, are of the kind that the recipe names; the rate network is
    a U-Net. Weights are float32 and made on the CPU, whatever the program's defaults; under ``torch.device("meta")``
    they have shapes but no memory.

    Args:
        model: The `model` section of a recipe.
        condition_channels: K.
        target_channels: C.
        seed: Seed of the initial weights.
        student: The `student` section of a student's recipe.

    Raises:
        RecipeError: If the recipe describes no valid model.

    Example:
        >>> from sfumato.models.recipe import ModelRecipe
        >>> model = build_model(ModelRecipe(base=4, rate_base=4, num_scales=2), 1, 1, seed=0)
        >>> model.network.head.weight.shape
        torch.Size([1, 4, 1, 1])
    """
    _check(model, condition_channels, target_channels)
    without_memory = torch.get_default_device().type == "meta"
    try:
        with _seeded(seed), _WithoutMemory() if without_memory else contextlib.nullcontext():
            result = _assemble(model, condition_channels, target_channels, student)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise RecipeError(
            f"networks with base {model.base}, rate_base {model.rate_base} and {model.num_scales} scales "
            f"cannot be made: {str(error).splitlines()[0]}; choose smaller ones"
        ) from error
    return result.to("meta") if without_memory else result


def outline(recipe: "Recipe", condition_channels: int, target_channels: int) -> CVDM:
    """Build the model of a recipe without memory for its weights."""
    with torch.device("meta"):
        return build_model(recipe.model, condition_channels, target_channels, student=recipe.student)


def least_weights(model: "ModelRecipe", condition_channels: int, target_channels: int) -> int:
    """Compute a lower bound on the number of weights that :func:`build_model` would make, without building anything.

    It serves to refuse a file that describes networks far larger than itself before they are built.
    """
    _check(model, condition_channels, target_channels)
    coarsest = 2 ** (model.num_scales - 1)
    base, scales = _denoiser_size(model)
    sizes = [(_input_channels(model, condition_channels, target_channels), base, _widening(model, scales))]
    if model.mean_network:
        widest = _widening(model, model.num_scales)
        sizes.append((_mean_channels(model, condition_channels, target_channels), model.base, widest))
    if model.scale_network:
        sizes.append((condition_channels, model.rate_base, 1))
    if _has_rate_network(model):
        sizes.append((condition_channels, model.rate_base, 1 if model.read_once else coarsest))
    # first layer, one layer at the coarsest scale, last layer
    return sum(
        3**model.ndim * (inputs * base + (base * widening) ** 2) + base * target_channels
        for inputs, base, widening in sizes
    )


def _assemble(
    model: "ModelRecipe", condition_channels: int, target_channels: int, student: "StudentRecipe | None"
) -> CVDM:
    if model.method == "regression":
        network = _network(model, _mean_channels(model, condition_channels, target_channels), target_channels)
        start = _start(model, condition_channels, target_channels)
        return Regression(network, target_channels=target_channels, start=start, residual=model.residual)
    # Built first, so that a seed gives it the same weights for every schedule and methods can be compared in pairs.
    inputs = _input_channels(model, condition_channels, target_channels)
    network = _network(model, inputs, target_channels, _denoiser_size(model))
    make = CVDM if student is None else functools.partial(Student, levels=student.levels, solver=student.solver)
    return make(
        _schedule(model, condition_channels, target_channels),
        network,
        target_channels=target_channels,
        predicts=model.predicts,
        objective=model.objective,
        mean_network=_mean(model, condition_channels, target_channels),
        mean_error=model.mean_error,
        start=_start(model, condition_channels, target_channels),
        finish=LinearFilter.identity(target_channels, ndim=model.ndim) if model.linear_finish else None,
        reader=_reader(model, condition_channels, target_channels),
        scale_network=_scale(model, condition_channels, target_channels),
        scale_finish=Binomial() if model.scale_network else None,
        colour=Colour(target_channels, ndim=model.ndim) if model.coloured_noise else None,
        residual=model.residual,
        scale=model.scale or 1.0,
        smoothness_weight=model.smoothness_weight,
    )


def _check(model: "ModelRecipe", condition_channels: int, target_channels: int) -> None:
    if min(condition_channels, target_channels) < 1:
        raise RecipeError(
            f"the condition has {condition_channels} channels and the target {target_channels}; give at least 1 of each"
        )
    if model.num_scales > _MOST_SCALES:
        raise RecipeError(
            f"model.num_scales is {model.num_scales}; give at most {_MOST_SCALES}, "
            "since images are padded to multiples of 2**(num_scales - 1) pixels"
        )
    unets = {"base": model.network == "unet", "rate_base": _has_rate_network(model)}
    for name, is_unet in unets.items():
        if is_unet and model.norm == "channel" and getattr(model, name) < 2:
            raise RecipeError(
                f"model.{name} is {getattr(model, name)}, but normalising over one channel gives 0 for every image; "
                "give at least 2, or another model.norm"
            )
    if model.residual == "last" and condition_channels < target_channels:
        raise RecipeError(
            f"model.residual is last, and the condition has {condition_channels} channels, fewer than the target's "
            f"{target_channels}; set it to false"
        )
    if model.residual is True and condition_channels != target_channels:
        raise RecipeError(
            f"model.residual needs as many condition channels as target channels, got {condition_channels} and "
            f"{target_channels}; set it to false or bring both to the same channels"
        )
    for name in ("mean_network", "linear_start"):
        if model.residual and getattr(model, name):
            raise RecipeError(f"model.residual and model.{name} are both true; the target has one centre: keep one")
    if model.method == "regression" and model.scale_network:
        raise RecipeError("model.scale_network is true, but a regression has no error bars; set it to false")
    if model.method == "regression" and model.mean_network:
        raise RecipeError("model.mean_network is true, but a regression network is its own mean; set it to false")
    if model.scale_network and not model.read_once:
        raise RecipeError(
            "model.scale_network is true, but read_once is not, whose features it needs; set model.read_once to true"
        )
    if model.read_once and not (model.mean_network and model.network == "unet"):
        raise RecipeError(
            f"model.read_once is true with model.mean_network {str(model.mean_network).lower()} and model.network "
            f"{model.network}; the features are those of a U-Net that learns the mean: set mean_network to true and "
            "network to unet, or read_once to false"
        )
    if model.network == "dfcan" and model.ndim != 2:
        raise RecipeError(f"model.network is dfcan and model.ndim {model.ndim}; it takes images only: use unet")


def _has_rate_network(model: "ModelRecipe") -> bool:
    return model.method == "cvdm" and model.schedule in ("learned", "paper")


def _input_channels(model: "ModelRecipe", condition_channels: int, target_channels: int) -> int:
    """Count the channels of condition, centre and scale if any, gamma and noisy target; a regression's condition."""
    if model.method == "regression":
        return _mean_channels(model, condition_channels, target_channels)
    return _read_channels(model, condition_channels, target_channels) + (2 + model.scale_network) * target_channels


def _read_channels(model: "ModelRecipe", condition_channels: int, target_channels: int) -> int:
    """Count the channels of condition, centre if any, and features if the condition is read once."""
    center = (model.mean_network or model.linear_start) * target_channels
    return condition_channels + center + model.read_once * model.base


def _denoiser_size(model: "ModelRecipe") -> tuple[int, int]:
    """Filters and resolutions of the denoising network, and of a regression's network."""
    return model.denoiser_base or model.base, model.denoiser_scales or model.num_scales


def _widening(model: "ModelRecipe", num_scales: int) -> int:
    """How many times more filters a network has at its coarsest resolution."""
    coarsest: int = 2 ** (num_scales - 1)
    return {"unet": coarsest, "sr3": min(coarsest, 8), "dfcan": 1}[model.network]


def _mean_channels(model: "ModelRecipe", condition_channels: int, target_channels: int) -> int:
    """Count the channels of the condition and, if there is one, of the first estimate."""
    return condition_channels + model.linear_start * target_channels


def _mean(model: "ModelRecipe", condition_channels: int, target_channels: int) -> nn.Module | None:
    if not model.mean_network:
        return None
    if model.read_once:
        return zero_output(conv(model.ndim, model.base, target_channels, 1))
    return _network(model, _mean_channels(model, condition_channels, target_channels), target_channels)


def _reader(model: "ModelRecipe", condition_channels: int, target_channels: int) -> nn.Module | None:
    return _unet(model, _mean_channels(model, condition_channels, target_channels), None) if model.read_once else None


def _start(model: "ModelRecipe", condition_channels: int, target_channels: int) -> LinearFilter | None:
    return LinearFilter(condition_channels, target_channels, ndim=model.ndim) if model.linear_start else None


def _scale(model: "ModelRecipe", condition_channels: int, target_channels: int) -> nn.Module | None:
    return _head(model, condition_channels, target_channels) if model.scale_network else None


def _head(model: "ModelRecipe", condition_channels: int, target_channels: int) -> Head:
    """A small network on what the reader gives: rates and scales depend on little else."""
    seen = _read_channels(model, condition_channels, target_channels)
    return Head(seen, target_channels, width=model.rate_base, ndim=model.ndim)


def _network(
    model: "ModelRecipe", in_channels: int, out_channels: int, size: tuple[int, int] | None = None
) -> nn.Module:
    base, num_scales = size or (model.base, model.num_scales)
    if model.network == "unet":
        return _unet(model, in_channels, out_channels, base, num_scales)
    if model.network == "dfcan":
        return DFCAN(in_channels, out_channels, base=base)
    multipliers = [min(2**scale, 8) for scale in range(num_scales)]
    return SR3UNet(in_channels, out_channels, base=base, multipliers=multipliers, ndim=model.ndim)


def _unet(
    model: "ModelRecipe",
    in_channels: int,
    out_channels: int | None,
    base: int | None = None,
    num_scales: int | None = None,
) -> UNet:
    base, num_scales = base or model.base, num_scales or model.num_scales
    kind: dict[str, Any] = {"ndim": model.ndim, "norm": model.norm, "activation": model.activation}
    return UNet(in_channels, out_channels, base=base, num_scales=num_scales, **kind)


def _rate_network(model: "ModelRecipe", condition_channels: int, target_channels: int) -> nn.Module:
    if model.read_once:
        return _head(model, condition_channels, target_channels)
    return _unet(model, condition_channels, target_channels, model.rate_base)


def _schedule(model: "ModelRecipe", condition_channels: int, target_channels: int) -> nn.Module:
    if model.schedule == "paper":
        return PaperSchedule(_rate_network(model, condition_channels, target_channels))
    low, high = model.rate_ends
    if model.schedule == "learned":
        rate_network = _rate_network(model, condition_channels, target_channels)
        return LearnedSchedule(rate_network, rate_min=low, rate_max=high, log_rates=model.log_rates)
    if model.schedule == "global":
        return GlobalSchedule(rate_min=low, rate_max=high, log_rates=model.log_rates)
    if model.schedule == "cosine":
        return CosineSchedule() if model.gamma_end is None else CosineSchedule(model.gamma_end)
    beta_start, beta_end, num_steps = LinearSchedule.SETTINGS[model.schedule.removeprefix("linear_")]
    return LinearSchedule(*(model.beta_ends or (beta_start, beta_end)), num_steps)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generator for this context, on the CPU and in float32."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


class _WithoutMemory(TorchFunctionMode):
    """Creates the weights of layers on the meta device.

    Only the functions with which layers create their weights are redirected: on the meta device, the arithmetic for a
    schedule's few numbers would first load torch's compiler, which takes two seconds.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return func(
            *args, **(kwargs | {"device": "meta"} if func in (torch.empty, torch.ones, torch.zeros) else kwargs)
        )
