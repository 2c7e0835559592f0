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
from sfumato.restoration.intervals import sampled_by
from sfumato.restoration.layout import stride
from sfumato.system.atomic_files import replace_text
from sfumato.system.errors import RunError
from sfumato.system.marks import NETWORK, json_with

__all__ = ["export_networks", "network_files"]


def export_networks(model: LoadedModel, folder: str | Path) -> dict[str, float]:
    """Write `noise.onnx`, `rate.onnx` and, if the model has one, `mean.onnx`, and `networks.json` about them.

    Each accepts batches and images of any size. A regression has only `mean.onnx`.

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
    if any(part is not None for part in (model.model.start, model.model.reader, model.model.scale_network)):
        raise RunError(
            "this model has a linear filter, a reader or a scale network, which these files do not have; expected a "
            "model without: export its sampler (--bioimageio), or the model file (--hub)"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, module in _modules(model.model).items():
        path = folder / f"{name}.onnx"
        examples = _examples(model, name)
        graph = to_graph(module, examples[0], [_OUTPUTS[name]], batched=True)
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


_OUTPUTS = {"noise": "predicted", "rate": "rate", "mean": "mean"}


class _Noise(nn.Module):
    """Maps condition (followed by the mean), gamma and noisy target to the network's prediction."""

    def __init__(self, model: CVDM) -> None:
        super().__init__()
        self.model = model

    def forward(self, condition: Tensor, gamma: Tensor, noisy: Tensor, mean: Tensor | None = None) -> Tensor:
        seen = condition if mean is None else torch.cat([condition, mean], dim=1)
        return self.model.ask_network(noisy, gamma, seen)


class _Rate(nn.Module):
    """Maps the condition to minus log gamma at t = 1, the integral of beta."""

    def __init__(self, model: CVDM) -> None:
        super().__init__()
        self.schedule = model.schedule

    def forward(self, condition: Tensor) -> Tensor:
        return -self.schedule(condition).log_gamma(condition.new_ones(()))


class _Mean(nn.Module):
    """Maps the condition to the centre of what is diffused."""

    def __init__(self, model: CVDM) -> None:
        super().__init__()
        self.model = model

    def forward(self, condition: Tensor) -> Tensor:
        center = self.model.center(condition)
        assert center is not None
        return center


def _modules(model: CVDM) -> dict[str, nn.Module]:
    if not model.draws_samples:
        return {"mean": _Mean(model)}
    modules: dict[str, nn.Module] = {"noise": _Noise(model)}
    if any(True for _ in getattr(model.schedule, "network", nn.Identity()).children()):
        modules["rate"] = _Rate(model)
    return modules | ({"mean": _Mean(model)} if model.mean_network is not None else {})


def _examples(model: LoadedModel, name: str) -> list[dict[str, Tensor]]:
    """Inputs by name at three sizes of batch and image, the first for tracing."""
    info, step = model.info, stride(model.model)
    channels = {"condition": info.condition_channels}
    if name == "noise":
        names = ["gamma", "noisy"] if model.model.mean_network is None else ["gamma", "noisy", "mean"]
        channels |= dict.fromkeys(names, info.target_channels)
    ndim = info.recipe.model.ndim
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
        schedule = network.schedule(condition)
    steps = sampled_by(model).num_steps
    return about | {
        "predicts": network.predicts,
        "scale": network.scale,
        "solver": info.recipe.sample.solver,
        "eta": info.recipe.sample.eta,
        # gamma of a step is exp(-rate * fraction); without rate.onnx the rate is the same everywhere
        "fractions": grid_of(schedule, condition, steps, info.recipe.sample.grid, info.recipe.sample.last_noise),
        "rate": None if schedule.rate.numel() > 1 else float(-schedule.log_gamma(torch.ones(())).item()),
    }
