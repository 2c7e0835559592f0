"""Restoring every image of a folder, under the same names in another one."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.io import open_image
from sfumato.data.ome_zarr import is_zarr
from sfumato.errors import ImageError, UnknownFormatError
from sfumato.model_file import load
from sfumato.restoration.engine import Engine
from sfumato.restoration.planning import FORMATS, Restoration, Settings, plan_restoration, png_dtype
from sfumato.restoration.run import Progress, provenance, run_restoration

__all__ = ["is_folder_of_images", "restore_folder"]


def is_folder_of_images(place: str) -> bool:
    """Whether a path is a folder that is no image itself, as a Zarr store is."""
    return "://" not in place and Path(place).is_dir() and not is_zarr(Path(place))


def restore_folder(
    model: str | Path,
    inputs: str | Path,
    outputs: str | Path,
    settings: Settings | None = None,
    *,
    suffix: str | None = None,
    engine: Engine | None = None,
    device: str = "cpu",
    progress: Callable[[str, int, int], None] | None = None,
    within: Callable[[str, float, int], None] | None = None,
) -> list[str]:
    """Restore the images of a folder one after another; the same call goes on, and leaves finished ones alone.

    Each image has noise of its own, by its place among the sorted names: with others it gets the same as alone only if
    it stays there.

    Args:
        model: Path of a model file.
        inputs: Folder of images; files of other kinds are skipped.
        outputs: Folder to write to; made if it is not there.
        settings: How to restore.
        suffix: Format of what is written, such as ``.tif``; that of each image if not given, PNG for JPEG, and TIFF
            where that cannot hold it.
        engine: Who does the tasks.
        device: Where the model should be.
        progress: Called before each image with its name, its number and how many there are.
        within: Called on the way with the name, the images that are done, parts of one counted too, and their number.

    Returns:
        The files of the means.

    Raises:
        ImageError: If the folder has no image, or two of its images would be written to one file.
    """
    chosen = settings or Settings()
    if Path(outputs).resolve() == Path(inputs).resolve():
        raise ImageError(f"{outputs} is the folder of the inputs; expected another one to write to; name it")
    loaded, found = load(model, device=device), dict(_images(Path(inputs)))
    sources = list(found)
    names = [_output_name(source, suffix, png_dtype(loaded, dtype) is not None) for source, dtype in found.items()]
    if not sources:
        raise ImageError(
            f"{inputs} holds no image; expected files such as .tif, .png, .mrc or .zarr; name another folder"
        )
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ImageError(f"two images of {inputs} would become {twice}; expected names that differ; rename one")
    Path(outputs).mkdir(parents=True, exist_ok=True)
    files, number = [], 0
    for index, (source, name) in enumerate(zip(sources, names, strict=True)):
        if progress is not None:
            progress(source.name, index, len(sources))
        numbered = dataclasses.replace(chosen, first_image=chosen.first_image + number)
        planned = plan_restoration(model, source, Path(outputs) / name, numbered, device=device, loaded=loaded)
        number += planned.measured.num_frames
        if not _is_finished(planned):

            def tell(now: Progress, name: str = source.name, done: int = index) -> None:
                if within is not None:
                    within(name, done + (now.done + now.share) / now.total, len(sources))

            run_restoration(planned, engine=engine, progress=tell)
        files.append(planned.files[0])
    return files


def _is_finished(planned: Restoration) -> bool:
    """Whether all files are there, restored just so.

    Raises:
        ImageError: If they are by another model, or with other settings.
    """
    files = [Path(file) for file in planned.files]
    if planned.is_store or (planned.journal / "job.json").exists() or not files[0].exists():
        return False
    told = open_image(files[0]).metadata  # of a format that keeps none, nothing is known
    wanted = provenance(planned, planned.job.outputs[0])
    by = str(told.get("model_sha256", wanted["model_sha256"]))
    if by != wanted["model_sha256"]:
        raise ImageError(
            f"{files[0]} was restored by another model ({by[:12]}, this one is {planned.job.model_sha256[:12]}); name "
            "another folder for the outputs, or remove it"
        )
    settled = wanted.keys() & told.keys() - {"sfumato", "content"}
    others = [f"{key} {told[key]}, now {wanted[key]}" for key in sorted(settled) if str(told[key]) != str(wanted[key])]
    others += [f"without {file.name}" for file in files if not file.exists()]
    if others:
        raise ImageError(
            f"{files[0]} was restored otherwise: {'; '.join(others)}; name another folder for the outputs, or remove it"
        )
    return True


def _images(folder: Path) -> Iterator[tuple[Path, np.dtype[Any]]]:
    """What can be opened, by name, and the type of its pixels."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or (path.is_dir() and not is_zarr(path)):
            continue
        with contextlib.suppress(UnknownFormatError):
            yield path, open_image(path).dtype


def _output_name(source: Path, suffix: str | None, png_holds_it: bool) -> str:
    stem, _, own = source.name.partition(".")
    if suffix is not None:
        return f"{stem}.{suffix.lstrip('.')}"
    own = "png" if own.lower() in ("jpg", "jpeg") else own
    holds = png_holds_it if own.lower().endswith("png") else f".{own}".lower().endswith(FORMATS)
    return f"{stem}.{own if holds else 'tif'}"
