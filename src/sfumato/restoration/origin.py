"""Record in a restored image how it was made, and check whether an existing file was made the same way.

Everything that determines its pixels is recorded: the hashes of the model and the input, every sampler setting, and how
the image was cut. If an image has the same record, the same command would produce it again.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.data.images.sidecar import needs_sidecar, origin_of, sidecar_of
from sfumato.data.pixel_hash import pixel_hash
from sfumato.diffusion.uncertainty import SCHEDULE_NOTE
from sfumato.models.intervals import NO_SAMPLES, Correction
from sfumato.restoration.interactive import Parts
from sfumato.restoration.outputs import Output
from sfumato.restoration.planning import Restoration
from sfumato.restoration.restorer import Restorer
from sfumato.system.errors import ImageError
from sfumato.system.version import __version__

__all__ = ["check_origin", "differences", "is_without_input", "provenance", "provenance_in_memory"]

_MODEL, _INPUT = "model_sha256", "input_digest"
_SAID_ONLY = {"sfumato", "notes", "channels", "scale", "offset"}
"""Version, notes added during the work, names of channels, and what follows from the values: no different image."""

_MEANING = {"first_image": " (images before it in the folder were added or removed since)"}


def provenance(restoration: Restoration, output: Output) -> dict[str, Any]:
    """The record of how an image was restored."""
    job = restoration.job
    notes: dict[str, Any] = {"sfumato": __version__, _MODEL: job.model_sha256, _INPUT: job.source_identity.digest}
    notes |= {"seed": job.seed, "axes": job.source_axes, "on_target_grid": job.source_on_target_grid}
    notes |= {"chunk": list(job.plan.chunk), "halo": list(job.plan.halo), "tile": job.tile}
    chosen = {} if job.source_choice is None else dataclasses.asdict(job.source_choice)
    notes |= {"chosen": {name: value for name, value in chosen.items() if value}} if chosen else {}
    notes |= {"dtype": "uint16"} if restoration.is_scaled else {}
    names = restoration.channel_names
    if restoration.passes_through and output.content == "mean":
        notes["passed_through"], names = True, restoration.measured.all_names
    notes |= {"channels": list(names)} if names else {}
    notes |= {} if job.sampling_halo is None else {"sampling_halo": job.sampling_halo}
    drawn = {"batch": job.batch, "first_image": job.first_image}
    return notes | _of_samples(restoration.restorer, restoration.correction, output, drawn)


def provenance_in_memory(parts: Parts, output: Output) -> dict[str, Any]:
    """The record of an image that was restored in memory, for when it is saved.

    Its input is recognised by a hash of some of its pixels, since it may never have been a file.
    """
    regions, measured = parts.regions, parts.measured
    restorer = regions.restorer
    reads = [partial(measured.read, frame) for frame in parts.field.frames]
    seen = [str(pixel_hash(read, measured.channels, measured.spatial)) for read in reads]
    digest = hashlib.blake2b("/".join(seen).encode(), digest_size=16).hexdigest()
    notes: dict[str, Any] = {"sfumato": __version__, _MODEL: restorer.model.sha256, _INPUT: f"pixels {digest}"}
    notes |= {"seed": regions.seed, "axes": measured.source_axes, "on_target_grid": False}
    notes |= {"chunk": list(regions.chunk), "halo": list(regions.halo), "tile": restorer.tile}
    notes |= {} if restorer.sampling_halo is None else {"sampling_halo": restorer.sampling_halo}
    drawn = {"batch": parts.batch, "first_image": regions.first_image}
    return notes | _of_samples(restorer, restorer.correction, output, drawn)


def _of_samples(restorer: Restorer, found: Correction | None, output: Output, drawn: dict[str, Any]) -> dict[str, Any]:
    """How the samples were drawn, if any, what the intervals promise, and what an image is of them."""
    if not restorer.model.model.draws_samples:
        return {"content": "regression"}
    sampled = restorer.sampled
    notes: dict[str, Any] = {}
    if sampled == NO_SAMPLES:
        notes |= {"samples": 0, "fast": "no samples were drawn: mean and standard deviation are the networks' own"}
    else:
        notes |= {"samples": sampled.num_samples, "steps": sampled.num_steps}
        notes |= {"solver": sampled.solver, "eta": sampled.eta}
        notes |= {"last_noise": sampled.last_noise} if sampled.grid == "log_snr" else {"grid": sampled.grid}
        notes |= drawn
    if found is not None:
        notes |= {"intervals": found.label, "calibration": found.method}
    contents = {
        "mean": "mean",
        "std": "standard deviation",
        "low": "lower end of calibrated interval",
        "high": "upper end of calibrated interval",
        "schedule": SCHEDULE_NOTE,
        "quantile": f"quantile {output.level}",
        "sample": f"sample {output.number}",
    }
    if found is not None and found.method == "recalibrated":
        contents["std"] = "standard deviation, recalibrated"
    return {**notes, "content": contents[output.content]}


def is_without_input(told: Mapping[str, Any]) -> bool:
    """Whether an image was restored by version 0.1, which did not record the input."""
    return _INPUT not in told


def differences(told: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """How an image's record differs, as ``seed 0, now 1``; fields that version 0.1 did not record count as equal."""
    before, now = (json.loads(json.dumps(dict(values))) for values in (told, wanted))
    keys = (before.keys() & now.keys() if is_without_input(told) else before.keys() | now.keys()) - _SAID_ONLY
    others = [key for key in sorted(keys) if before.get(key) != now.get(key)]
    return ["another input, which was replaced or changed since" if key == _INPUT
            else f"{key} {before.get(key)}, now {now.get(key)}{_MEANING.get(key, '')}" for key in others]  # fmt: skip


def check_origin(file: Path, wanted: Mapping[str, Any]) -> bool:
    """Refuse a file that was not made the same way.

    Args:
        file: An existing image.
        wanted: The record it must have, from :func:`provenance`.

    Returns:
        Whether the record names the input; version 0.1 did not record it.

    Raises:
        ImageError: If the record differs or is missing.
    """
    told = origin_of(file)
    if _MODEL not in told:
        lacking = f", and {sidecar_of(file).name}, which would, is missing or of another file" * needs_sidecar(file)
        raise ImageError(
            f"{file} exists already and does not say how it was made{lacking}; expected an image that sfumato restored "
            "with the same settings, or none; remove it, or choose another name"
        )
    if told[_MODEL] != wanted[_MODEL]:
        raise ImageError(
            f"{file} was restored by another model ({str(told[_MODEL])[:12]}, this one is {wanted[_MODEL][:12]}); "
            "choose another place for the output, or remove it"
        )
    if others := differences(told, wanted):
        raise ImageError(
            f"{file} was restored differently: {'; '.join(others)}; choose another place for the output, or remove it"
        )
    return not is_without_input(told)
