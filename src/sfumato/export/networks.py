"""Export the networks of a model as plain ONNX files, for programs with their own sampler."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling_grid import grid_of
from sfumato.export.graph import check_graph, example_size, save_graph, to_graph
from sfumato.models.model_file import LoadedModel
from sfumato.models.ownership import Written
from sfumato.models.reach import stride
from sfumato.restoration.intervals import sampled_by
from sfumato.system.atomic_files import replace_text
from sfumato.system.marks import NETWORK, json_with

__all__ = ["export_networks", "network_files"]


def export_networks(model: LoadedModel, folder: str | Path) -> dict[str, float]:
    """Write `read.onnx` and `noise.onnx`, and `networks.json` about them; of a regression, `mean.onnx`.

    `read` runs once per image, `noise` at every call. Each accepts batches and images of any size.

    Args:
        model: A model on the CPU.
        folder: Created if it does not exist.

    Returns:
        For each file, the largest difference of onnxruntime from torch at three image sizes, relative to the largest
        value.

    Raises:
        RunError: If a network has no counterpart in ONNX, or gives a different result there.
        ImportError: If the extra `onnx` is not installed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, module in _modules(model.model).items():
        path = folder / f"{name}.onnx"
        examples = _examples(model, name)
        graph = to_graph(module, examples[0], _outputs(model.model)[name], batched=True)
        save_graph(graph, path)
        found[path.name] = check_graph(path, module, examples)
    text = json.dumps(_description(model), indent=2)
    replace_text(folder / "networks.json", text + "\n", untouched="the networks beside it are written")
    return found


def network_files(model: LoadedModel, folder: Path) -> list[Written]:
    """Files that :func:`export_networks` writes to a folder."""
    about = json_with("description of networks", ("sha256", "normalisation", "residual"))
    networks = [Written(folder / f"{name}.onnx", NETWORK) for name in _modules(model.model)]
    return [*networks, Written(folder / "networks.json", about)]


def _outputs(model: CVDM) -> dict[str, list[str]]:
    """Files that a model is written to, and the names of their outputs."""
    if not model.draws_samples:
        return {"mean": ["mean"]}
    centers = (model.residual, model.start, model.mean_network)
    center = ["center"] if any(part not in (None, False) for part in centers) else []
    scale = [] if model.scale_network is None else ["scale"]
    return {"read": ["seen", "rate", *center, *scale], "noise": ["predicted"]}


class _Noise(nn.Module):
    """Maps what is seen of the condition, gamma and noisy target to the network's prediction."""

    def __init__(self, model: CVDM) -> None:
        super().__init__()
        self.model = model

    def forward(self, seen: Tensor, gamma: Tensor, noisy: Tensor) -> Tensor:
        return self.model.output(noisy, gamma.log(), seen)


class _Read(nn.Module):
    """Maps the condition to what is known of it: what is seen, minus log gamma at t = 1, centre and scale if any."""

    def __init__(self, model: CVDM) -> None:
        super().__init__()
        self.model = model

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        known = self.model.read(condition)
        shape = (condition.shape[0], self.model.target_channels, *condition.shape[2:])
        rate = -known.schedule.log_gamma(condition.new_ones(()))
        # Each output is a separate tensor: a graph must not return one twice, or its input.
        parts = (known.seen, rate.expand(shape), known.center, known.scale)
        return tuple(part + 0 for part in parts if isinstance(part, Tensor))


class _Mean(nn.Module):
    """Maps the condition to the image that a regression returns."""

    def __init__(self, model: CVDM) -> None:
        super().__init__()
        self.model = model

    def forward(self, condition: Tensor) -> Tensor:
        center = self.model.center(condition)
        assert center is not None
        return center


def _modules(model: CVDM) -> dict[str, nn.Module]:
    return {name: {"mean": _Mean, "read": _Read, "noise": _Noise}[name](model) for name in _outputs(model)}


def _examples(model: LoadedModel, name: str) -> list[dict[str, Tensor]]:
    """Inputs by name at three sizes of batch and image, the first for tracing."""
    info, step = model.info, stride(model.model)
    ndim = info.recipe.model.ndim
    channels = {"condition": info.condition_channels}
    if name == "noise":
        seen = model.model.read(torch.zeros(1, info.condition_channels, *[step] * ndim)).seen
        channels = {"seen": seen.shape[1], **dict.fromkeys(["gamma", "noisy"], info.target_channels)}
    sizes = [
        (2, example_size(step, ndim)),
        (1, (2 * step,) * ndim),
        (3, tuple(step + 1 + axis for axis in range(ndim))),
    ]
    examples = []
    for number, (batch, size) in enumerate(sizes):
        noise = NoiseField(number)(0, torch.Size([1, batch, sum(channels.values()), *size]))[0]
        parts = dict(zip(channels, noise.split(list(channels.values()), dim=1), strict=True))
        if "gamma" in parts:
            parts["gamma"] = parts["gamma"].sigmoid()
        examples.append({key: part.contiguous() for key, part in parts.items()})
    return examples


def _description(model: LoadedModel) -> dict[str, object]:
    """Everything a program needs to sample with these networks."""
    info, network = model.info, model.model
    sides = {"condition": info.condition.to_json(), "target": info.target.to_json()}
    about: dict[str, object] = {"sha256": model.sha256, "normalisation": sides, "residual": network.residual}
    if not network.draws_samples:
        return about
    condition = torch.zeros(1, info.condition_channels, *example_size(stride(network), info.recipe.model.ndim))
    with torch.no_grad():
        schedule = network.read(condition).schedule
    drawn, taught = sampled_by(model), getattr(network, "levels", None)
    return about | {
        "predicts": network.predicts,
        "noise_kernel": None if network.colour is None else network.colour.kernel.tolist(),
        "scale": network.scale,
        "solver": info.recipe.sample.solver,
        "eta": info.recipe.sample.eta,
        # gamma of a step is exp(-rate * fraction)
        "fractions": grid_of(schedule, condition, drawn.num_steps, drawn.grid, drawn.last_noise, taught=taught),
    }
