r"""Export the sampler with a fixed seed as one ONNX graph: from a measured image to mean, std and interval.

Noise is a pure function of the seed, so the graph is deterministic. It has three parts, each traced once: the work
before the first step, one step, and the work after the last. The step is the body of an ONNX `Scan` over the sampling
grid, so the file contains the weights only once, however many steps there are.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.diffusion.colour import noise_for
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling_grid import grid_of
from sfumato.diffusion.solvers import SOLVERS, NoiseLevel, Past, Step, ended, remembered
from sfumato.export.graph import example_size, onnx_library, to_graph
from sfumato.export.scan import join
from sfumato.models.intervals import Sampled
from sfumato.models.model_file import LoadedModel
from sfumato.models.reach import stride
from sfumato.restoration.conditions import upsampling_factor
from sfumato.restoration.restorer import Restorer
from sfumato.system.errors import RunError

__all__ = ["sampler_graph"]

_CARRIED = ("state", "clean", "rest", "h")


def sampler_graph(model: LoadedModel, sampled: Sampled, *, seed: int) -> Any:
    """The graph, an ``onnx.ModelProto`` from `measured` (1, K, *spatial) to the outputs of a restorer.

    These are `mean`, for a diffusion model `std`, and `low` and `high` if it is calibrated for such samples. They equal
    the results of :func:`sfumato.restore` for image 0 of this seed, seen as a whole.

    Args:
        model: A model on the CPU.
        sampled: How it draws samples.
        seed: Seed of the noise.

    Raises:
        RunError: If a part of the model has no counterpart in ONNX.
        ImportError: If the extra `onnx` is not installed.
    """
    info = model.info
    if info.recipe.data.scales_each_image:
        raise RunError(
            "this model scales each image by its own quantiles (data.normalize: image), and a graph sees tiles, which "
            "have others; expected a model with one scale for all images: export its networks (--onnx) or the model "
            "file (--hub)"
        )
    onnx_library()
    outputs = [output.content for output in Restorer(model, sampled).outputs]
    size = example_size(stride(model.model), info.recipe.model.ndim)
    measured = torch.zeros(1, info.condition_channels, *size)
    if not model.model.draws_samples:
        return to_graph(_Regress(model), {"measured": measured}, outputs)
    start = _Start(model, sampled, seed)
    with torch.no_grad():
        given = dict(zip(start.names, start(measured), strict=True))
    carried = {f"{name}_before": given[f"{name}_before"] for name in _CARRIED}
    constant = {name: given[name] for name in ("seen", "end")}
    scanned = start.grid()
    body = {**carried, **{name: values[0] for name, values in scanned.items()}, **constant}
    step = _Step(model, sampled, seed)
    last = {"clean": given["clean_before"]} | {name: given[name] for name in ("center", "scale") if name in given}
    return join(
        to_graph(start, {"measured": measured}, start.names),
        to_graph(step, body, _CARRIED),
        to_graph(_Finish(model, sampled), last, outputs),
        scanned={name: values.numpy() for name, values in scanned.items()},
        carried=_CARRIED,
    )


def _upsample(images: Tensor, factor: tuple[int, ...]) -> Tensor:
    """Like :func:`sfumato.data.frames.upsample_tensor`, but in single precision, the only one runtimes support."""
    if all(f == 1 for f in factor):
        return images
    mode = "bicubic" if images.ndim == 4 else "trilinear"
    return F.interpolate(images, scale_factor=[float(f) for f in factor], mode=mode, align_corners=False)


class _Start(nn.Module):
    """Maps the measured image to what is known of it, log gamma at t = 1 and the state before the first step."""

    def __init__(self, model: LoadedModel, sampled: Sampled, seed: int) -> None:
        super().__init__()
        self.model, self.info, self.factor = model.model, model.info, upsampling_factor(model)
        self.sampled, self.noise = sampled, noise_for(model.model, NoiseField(seed))
        networks = (self.model.mean_network, self.model.start)
        center = ["center"] if self.model.residual or any(part is not None for part in networks) else []
        scale = [] if self.model.scale_network is None else ["scale"]
        self.names = ["seen", "end", *center, *scale, *(f"{name}_before" for name in _CARRIED)]

    def grid(self) -> dict[str, Tensor]:
        """Values that change from step to step, each of shape (num_steps); after the last step the level stays."""
        condition = torch.zeros(1, self.info.condition_channels, *[1] * self.info.recipe.model.ndim)
        with torch.no_grad():
            schedule, sampled = self.model.read(condition).schedule, self.sampled
            taught = getattr(self.model, "levels", None)
            how = (sampled.num_steps, sampled.grid, sampled.last_noise)
            fractions = grid_of(schedule, condition, *how, taught=taught)
        numbers = torch.arange(len(fractions))
        return {
            "now": torch.tensor(fractions),
            "after": torch.tensor([*fractions[1:], fractions[-1]]),
            "number": numbers,
        }

    def forward(self, measured: Tensor) -> tuple[Tensor, ...]:
        condition = self.info.condition.apply(_upsample(measured, self.factor))
        known = self.model.read(condition)
        end = known.schedule.log_gamma(condition.new_ones(()))
        shape = torch.Size([self.sampled.num_samples, 1, self.model.target_channels, *condition.shape[2:]])
        state = self.noise(0, shape).flatten(0, 1)
        # Each output is a separate tensor: a graph must not return one twice.
        parts = tuple(part + 0 for part in (known.center, known.scale) if isinstance(part, Tensor))
        return (
            known.seen + 0,
            end,
            *parts,
            state,
            torch.zeros_like(state),
            torch.zeros_like(state),
            torch.ones_like(end),
        )


class _Step(nn.Module):
    """One step of the loop in :func:`sfumato.diffusion.sampling.sample`, with the same solvers."""

    def __init__(self, model: LoadedModel, sampled: Sampled, seed: int) -> None:
        super().__init__()
        self.model, self.sampled, self.noise = model.model, sampled, noise_for(model.model, NoiseField(seed))

    def forward(
        self,
        state: Tensor,
        clean_before: Tensor,
        rest_before: Tensor,
        h_before: Tensor,
        now_fraction: Tensor,
        after_fraction: Tensor,
        number: Tensor,
        seen: Tensor,
        end: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        size = self.sampled.num_samples
        now, after = (NoiseLevel.at(end * fraction) for fraction in (now_fraction, after_fraction))
        clean = self.model.predict(state, now.log_gamma, seen.expand(size, *seen.shape[1:]))
        # The first step has no past. A graph has no branches, so the present stands in for it, which changes nothing.
        present = remembered(self.sampled.solver, state, now, clean)
        past = Past(torch.where(number > 0, rest_before, present), h_before)
        step = Step.between(now, after, clean, past)

        def draw() -> Tensor:
            return self.noise(number + 1, torch.Size([size, 1, *state.shape[1:]])).flatten(0, 1)

        drawn = ended(self.sampled.solver, state, now, clean)
        return SOLVERS[self.sampled.solver](state, step, self.sampled.eta, draw), drawn, present + 0, step.h


class _Finish(nn.Module):
    """Maps the last clean prediction to mean, std and interval in the units of the data."""

    def __init__(self, model: LoadedModel, sampled: Sampled) -> None:
        super().__init__()
        self.scale, self.target = model.model.scale, model.info.target
        self.found = Restorer(model, sampled).correction
        self.by_network = model.info.recipe.sample.mean == "network"

    def forward(self, clean: Tensor, center: Tensor | None = None, scale: Tensor | None = None) -> tuple[Tensor, ...]:
        draws = (self.scale if scale is None else scale) * clean
        draws = draws if center is None else center + draws
        middle = draws.mean(0, keepdim=True)
        mean = center + 0 if self.by_network and center is not None else middle
        std = ((draws - middle).square().sum(0, keepdim=True) / (draws.shape[0] - 1)).sqrt()
        if self.found is None:
            return self.target.invert(mean), self.target.invert_spread(std)
        ends = [self.target.invert(end) for end in self.found.interval(mean, std)]
        return self.target.invert(mean), self.target.invert_spread(self.found.spread(std)), *ends


class _Regress(nn.Module):
    """Maps the measured image to the one image that a regression returns."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__()
        self.model, self.info, self.factor = model.model, model.info, upsampling_factor(model)

    def forward(self, measured: Tensor) -> Tensor:
        condition = self.info.condition.apply(_upsample(measured, self.factor))
        center = self.model.center(condition)
        assert center is not None
        return self.info.target.invert(center)
