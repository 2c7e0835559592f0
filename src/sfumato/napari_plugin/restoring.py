"""In a thread, for the Restore panel: load the model, restore a layer, audit it, and make layers of the results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sfumato.napari_plugin.audit_marks import audited, marks_layer
from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.layers import Region, Source
from sfumato.napari_plugin.pickers import load_model
from sfumato.napari_plugin.saving import Results, results_of

__all__ = ["Asked", "Found", "accelerators", "restore_layer"]

LayerData = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """What was asked for.

    Attributes:
        source: The layer.
        path: The model file.
        device: A device, or ``automatic``.
        visible: The region in view, for a preview; None for the whole layer.
        frame: The frame in view, which is audited.
        sampling: Samples, steps and seed, as :class:`~sfumato.restoration.interactive.Parts` takes them.
    """

    source: Source
    path: Path
    device: str
    visible: Region | None
    frame: int
    sampling: dict[str, Any]


class Found(NamedTuple):
    """What came of it."""

    layers: list[LayerData]
    """Image layers, in the order in which to add them."""
    marks: LayerData | None
    """A layer of points, if the audit marked any."""
    about: dict[str, Any]
    """Metadata of the layers."""
    told: list[str]
    """What to say beside."""
    results: Results | None
    """What may be saved: whole layers, not previews."""


def restore_layer(work: Background, asked: Asked) -> Found:
    """Restore a layer, or the region in view."""
    import torch

    from sfumato.restoration.conditions import Measured, upsampling_factor
    from sfumato.restoration.interactive import FieldOfView, Parts
    from sfumato.restoration.likeness import likeness

    source, sampling = asked.source, asked.sampling
    device = [*accelerators(torch), "cpu"][0] if asked.device == "automatic" else asked.device
    work.doing = "loading the model"
    model = load_model(asked.path, device, "restore")
    work.count(0)
    measured = Measured(source.image, model)
    field = None if asked.visible is None else FieldOfView((asked.visible[0],), *asked.visible[1:])
    if field is not None and model.model.draws_samples and model.model.knows_std:
        sampling = {"seed": sampling["seed"], "fast": True}
    parts = Parts(measured, model, field=field, **sampling)
    found = likeness(measured, model, parts.field.frames)
    work.total, work.doing = parts.num_calls, ""
    images = parts.restore(work.count)
    about = {
        "sfumato": "restored" if field is None else "preview",
        "model": str(asked.path),
        "model_sha256": model.sha256,
        "samples": parts.sampled.num_samples,
        "steps": parts.sampled.num_steps,
        "seed": sampling["seed"],
        "intervals": parts.label,
        "likeness": "" if found is None else f"{'Warning: ' if found.is_warned else ''}{found.text}",
    }
    where, prefix = parts.field, "" if field is None else "preview: "
    factor = upsampling_factor(model)
    layers = source.layers(
        images, frames=where.frames, corner=where.corner, factor=factor, prefix=prefix, metadata=about
    )
    told = [about["likeness"]] if about["likeness"] else []
    if field is not None:
        return Found(layers, None, about, told, None)
    work.doing = "auditing the restored frame"
    marks = audited(source, model, asked.frame, images)
    settings = next(settings for _, settings in layers if settings["name"].endswith(" mean"))
    shown = marks_layer(source, marks, images["mean"], settings) if marks.places else None
    return Found(layers, shown, about, [*told, *marks.lines], results_of(parts, images))


def accelerators(torch: Any) -> list[str]:
    """Devices beside the processor that torch can use here."""
    found = ["cuda"] if torch.cuda.is_available() else []
    return [*found, "mps"] if torch.backends.mps.is_available() else found
