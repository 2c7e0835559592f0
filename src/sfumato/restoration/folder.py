"""Restore every image of a folder and its subfolders into another folder, under the same names."""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.file_names import IMAGE_SUFFIXES, take_apart
from sfumato.data.images.io import open_image
from sfumato.data.images.links import file_key, first_repeat
from sfumato.data.images.ome_zarr import is_zarr
from sfumato.data.pairs import named
from sfumato.models.model_file import load
from sfumato.restoration.begun import is_finished
from sfumato.restoration.engines import Engine
from sfumato.restoration.forecast import forecast_all
from sfumato.restoration.likeness import likeness
from sfumato.restoration.planning import FORMATS, Restoration, Settings, plan_restoration, png_dtype
from sfumato.restoration.run import Progress, StoppedError, listed, run_restoration
from sfumato.system.errors import ImageError, ModelFileError, RunError, SfumatoError, StorageError, UnknownFormatError

__all__ = ["FailedImagesError", "FolderPlan", "is_folder_of_images", "plan_folder", "restore_folder"]

_IMAGES = (*IMAGE_SUFFIXES, ".npz")
"""Files with these suffixes are reported if they turn out not to be images."""


def is_folder_of_images(place: str) -> bool:
    """Whether a path is a folder and not itself an image, as a Zarr store is."""
    return "://" not in place and Path(place).is_dir() and not is_zarr(Path(place))


class FailedImagesError(RunError):
    """Some images of a folder could not be restored; all others were.

    Attributes:
        files: The mean images that were written.
    """

    def __init__(self, text: str, files: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.files = list(files)


def restore_folder(
    model: str | Path,
    inputs: str | Path,
    outputs: str | Path,
    settings: Settings | None = None,
    *,
    suffix: str | None = None,
    engine: Engine | None = None,
    device: str = "auto",
    progress: Callable[[str, int, int], None] | None = None,
    within: Callable[[str, float, int], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> list[str]:
    """Restore the images of a folder and its subfolders one after another, into folders of the same names.

    The same call resumes and skips finished images. Each image has its own noise, determined by its position among the
    sorted names, those of subfolders last. It gets the same noise with and without the other images only if that
    position stays the same. An unreadable image counts as one frame.

    Args:
        model: Path of a model file.
        inputs: Folder of images; files of other kinds are left out and named in a note.
        outputs: Folder to write to; created if it does not exist.
        settings: How to restore.
        suffix: Output format, such as ``.tif``. By default the format of each image, but PNG for JPEG, and TIFF where
            that format cannot hold the result.
        engine: Runs the tasks.
        device: Device for the model; ``auto`` for the best, but images that were begun go on where they were begun.
        progress: Called before each image that is not restored yet, with its name, its number and the number of images.
        within: Called during the work with the name, the number of finished images (including fractions) and the total.
        note: Called with a message about a measured halo, about a scene or channels taken by default, about anything
            that an earlier version did not record and that cannot be checked, and, starting with ``warning: ``, about
            each image that is unlike those of the training.

    Returns:
        The mean images.

    Raises:
        ImageError: If the folder has no image, if two images would be written to one file, or if the output folder
            contains results of other settings. Nothing is written in these cases.
        FailedImagesError: If some images could not be restored; raised after all others are done, with their names.
        StorageError: If the output folder disappears.
    """
    folder = plan_folder(model, inputs, outputs, settings, suffix=suffix, device=device, note=note)
    plans, failed = folder.plans, dict(folder.failed)
    for place in {Path(planned.files[0]).parent for planned in plans.values()}:
        place.mkdir(parents=True, exist_ok=True)
    for index, (source, is_done) in enumerate(zip(plans, folder.finished, strict=True)):
        if is_done:
            continue
        name = folder.name(source)
        if progress is not None:
            progress(name, index, len(plans))
        if note is not None:
            _tell(plans[source], note)
        if not Path(outputs).is_dir():
            raise StorageError(
                f"{outputs} is gone; expected it to stay while images are restored; put it back, or rerun the same "
                "command to start again"
            )

        def tell(now: Progress, name: str = name, done: int = index) -> None:
            if within is not None:
                within(name, done + (now.done + now.share) / now.total, len(plans))

        try:
            if note is not None:
                _warn(plans[source], name, note)
            run_restoration(plans[source], engine=engine, progress=tell, note=note)
        except (StorageError, ModelFileError, StoppedError):
            raise
        except SfumatoError as error:
            failed[name] = error
    files = [planned.files[0] for source, planned in plans.items() if folder.name(source) not in failed]
    if failed:
        raise FailedImagesError(
            f"{len(failed)} of {len(failed) + len(files)} images could not be restored (the others are done):\n"
            f"{_faults(failed)}\nfix or replace these and rerun the same command to restore what is missing; if you "
            "remove them instead, restore into another folder",
            files,
        )
    return files


@dataclass(frozen=True)
class FolderPlan:
    """What is to be restored of a folder.

    Attributes:
        inputs: The folder.
        plans: The images that can be restored.
        finished: Whether each of them is restored already.
        failed: Why the others cannot be restored, by name.
    """

    inputs: Path
    plans: Mapping[Path, Restoration]
    finished: Sequence[bool]
    failed: Mapping[str, SfumatoError]

    def name(self, source: Path) -> str:
        """Name of an image: its path in the folder."""
        return source.relative_to(self.inputs).as_posix()

    def lines(self) -> list[str]:
        """What there is to do, and what it costs, as text."""
        left = [planned for planned, is_done in zip(self.plans.values(), self.finished, strict=True) if not is_done]
        told = [f"images: {len(left)} to restore, {sum(self.finished)} already restored"]
        if left:
            told += forecast_all(left).lines()
        if self.failed:
            total = len(self.failed) + len(self.plans)
            told.append(f"{len(self.failed)} of {total} images cannot be restored:\n{_faults(self.failed)}")
        return told


def plan_folder(
    model: str | Path,
    inputs: str | Path,
    outputs: str | Path,
    settings: Settings | None = None,
    *,
    suffix: str | None = None,
    device: str = "auto",
    note: Callable[[str], None] | None = None,
) -> FolderPlan:
    """Plan the restoration of every image of a folder, without writing anything; arguments as :func:`restore_folder`.

    Raises:
        ImageError: As :func:`restore_folder`.
    """
    chosen = settings or Settings()
    if Path(outputs).resolve() == Path(inputs).resolve():
        raise ImageError(f"{outputs} is the folder of the inputs; expected another one to write to; name it")
    loaded = load(model, device=device)

    def plan(source: Path, dtype: np.dtype[Any], first: int) -> Restoration:
        place = Path(outputs) / source.relative_to(inputs).parent
        name = _output_name(source, suffix, png_dtype(loaded, dtype) is not None)
        own = dataclasses.replace(chosen, first_image=chosen.first_image + first)
        return plan_restoration(model, source, place / name, own, device=device, loaded=loaded)

    plans, failed, others = _plans(Path(inputs), Path(outputs), plan)
    if others and note is not None:
        note(f"left out, as sfumato knows no such format: {named(others)}")
    if not plans:
        raise next(iter(failed.values()))  # the model or settings suit none of the images
    _check_apart(plans)
    return FolderPlan(Path(inputs), plans, _finished(plans.values(), note), failed)


def _faults(failed: Mapping[str, SfumatoError]) -> str:
    return listed(f"{name}: {error}" for name, error in sorted(failed.items()))


def _tell(planned: Restoration, note: Callable[[str], None]) -> None:
    """Say what was measured or chosen without being asked for."""
    for told in (planned.told_halo, *planned.measured.told_choice):
        if told is not None:
            note(told)


def _warn(planned: Restoration, name: str, note: Callable[[str], None]) -> None:
    """Say so if an image is unlike those of the training."""
    found = likeness(planned.measured, planned.model)
    if found is not None and found.is_warned:
        note(f"warning: {name}: {found.text}")


def _plans(
    folder: Path, outputs: Path, plan: Callable[[Path, np.dtype[Any], int], Restoration]
) -> tuple[dict[Path, Restoration], dict[str, SfumatoError], list[str]]:
    """Plans of the images of a folder, why others cannot be restored, and files of unknown formats.

    A plan is told how many frames precede it.

    Raises:
        ImageError: If the folder has no image.
    """
    plans: dict[Path, Restoration] = {}
    failed: dict[str, SfumatoError] = {}
    others: list[str] = []
    first = 0
    for source in _files(folder, outputs.resolve(), {}):
        name, frames = source.relative_to(folder).as_posix(), 1
        try:
            plans[source] = plan(source, open_image(source).dtype, first)
            frames = plans[source].measured.num_frames
        except UnknownFormatError as error:
            if source.suffix.lower() not in _IMAGES:
                others.append(name)
                continue
            failed[name] = error
        except SfumatoError as error:
            failed[name] = error
        first += frames
    if not plans and not failed:
        raise ImageError(
            f"{folder} holds no image{f', but {named(others)}' if others else ''}; expected files such as .tif, .png, "
            ".mrc or .zarr; name another folder"
        )
    return plans, failed, others


def _finished(plans: Iterable[Restoration], note: Callable[[str], None] | None) -> list[bool]:
    """Find the finished restorations before any is started, so that a folder never mixes the results of two commands.

    Raises:
        SfumatoError: If an output path holds something other than this command's results.
    """
    finished, refused = [], []
    for planned in plans:
        try:
            finished.append(is_finished(planned, note))
        except SfumatoError as error:
            refused.append(error)
    if len(refused) > 1:
        raise ImageError(f"{len(refused)} outputs are not what this command would write:\n{listed(map(str, refused))}")
    if refused:
        raise refused[0]
    return finished


def _files(folder: Path, outputs: Path, seen: dict[Hashable, Path]) -> Iterator[Path]:
    """Files of a folder by name, then those of its subfolders; a Zarr store counts as one file.

    Hidden ones, journals of restorations and the folder of the outputs are left out.
    """
    earlier = seen.setdefault(file_key(folder), folder)
    if earlier is not folder:
        raise ImageError(
            f"{earlier} and {folder} are the same folder, by a link; expected every image once; remove the link"
        )
    below = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if not path.is_dir() or is_zarr(path) or path.suffix.lower() in _IMAGES:
            yield path
        elif path.suffix != ".journal" and path.resolve() != outputs:
            below.append(path)
    for path in below:  # last, so that the noise of images does not depend on the folders beside them
        yield from _files(path, outputs, seen)


def _check_apart(plans: Mapping[Path, Restoration]) -> None:
    """Check that every image occurs once and that no two share an output file, including the files beside the mean."""
    if (repeated := first_repeat(plans)) is not None:
        raise ImageError(
            f"{repeated[0]} and {repeated[1].name} are the same file, by a link; expected every image once; remove the "
            "link"
        )
    owners: dict[str, Path] = {}
    for source, planned in plans.items():
        for file in planned.files:
            if (other := owners.setdefault(file, source)) is not source:
                raise ImageError(
                    f"{other} and {source.name} would both be written to {Path(file).name}; expected names that "
                    "differ; rename one, or restore it into another folder"
                )


def _output_name(source: Path, suffix: str | None, png_holds_it: bool) -> str:
    stem, own = take_apart(source.name)
    if suffix is not None:
        return f"{stem}.{suffix.lstrip('.')}"
    own = ".png" if own.lower() in (".jpg", ".jpeg") else own
    holds = png_holds_it if own.lower().endswith(".png") else own.lower().endswith(FORMATS)
    return f"{stem}{own if holds else '.tif'}"
