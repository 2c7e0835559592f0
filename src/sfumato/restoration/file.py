"""Restoring one image file, frame by frame, into files of its mean and its standard deviation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato import __version__
from sfumato.data.enlarged import EnlargedFrames
from sfumato.data.frames import FrameReader
from sfumato.data.image import PixelSize
from sfumato.data.io import open_image, write_image
from sfumato.errors import ImageError
from sfumato.model_file import LoadedModel
from sfumato.panels import draw_panel
from sfumato.problems.registry import full_scale
from sfumato.restoration.array import enlargement, restore

__all__ = ["restore_file"]


def restore_file(
    model: LoadedModel,
    source: str | Path,
    output: str | Path,
    *,
    axes: str | None = None,
    num_samples: int = 16,
    num_steps: int | None = None,
    seed: int = 0,
    picture: str | Path | None = None,
    on_target_grid: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Path, Path | None]:
    """Restore every frame of an image file.

    A model of targets on a finer grid enlarges each frame first, as its training inputs were; what is written has that
    grid and its smaller pixels.

    Args:
        model: From :func:`sfumato.load`.
        source: Any file that :func:`~sfumato.data.io.open_image` reads.
        output: Where the mean goes; its suffix is the format. Formats of whole numbers get it rounded to the type of
            the source.
        axes: Of the source, if it does not say.
        num_samples: Draws per frame.
        num_steps: Network calls per draw; the recipe's if not given.
        seed: The same seed gives the same draws.
        picture: A PNG to draw the first frame into: measured, restored, uncertainty.
        on_target_grid: Whether the image was enlarged already, so that it must not be again.
        progress: Called with the number of draws made and their total, over all frames.

    Returns:
        The files of the mean and of the standard deviation, which stands beside it with `_std` in its name; a
        regression has none.
    """
    output = Path(output)
    spread = _beside(output)
    for path in (output, spread):
        if path.exists():
            raise ImageError(f"{path} exists already; expected a new name; choose one or remove it")
    ndim = model.info.recipe.model.ndim
    frames = FrameReader(open_image(source, axes=axes), ndim)
    seen = EnlargedFrames(frames, (1,) * ndim if on_target_grid else enlargement(model))
    scale = full_scale(model.info.recipe.problem, frames.image.dtype)
    means, stds = [], []
    done, total = 0, frames.num_frames * num_samples

    def count(draws: int) -> None:
        nonlocal done
        done += draws
        if progress is not None:
            progress(done, total)

    for frame in range(frames.num_frames):
        measured = seen.read(frame, [0] * ndim, seen.spatial)
        if scale != 1:
            measured = np.asarray(measured, np.float32) / np.float32(scale)
        restored = restore(
            measured,
            model,
            num_samples=num_samples,
            num_steps=num_steps,
            seed=seed,
            image=frame,
            on_target_grid=True,
            progress=count,
        )
        means.append(restored.mean)
        if restored.std is not None:
            stds.append(restored.std)
        if picture is not None and frame == 0:
            spread_shown = None if restored.std is None else _flat(restored.std)
            draw_panel(Path(picture), _flat(measured), _flat(restored.mean), spread_shown)
    notes: dict[str, Any] = {
        "sfumato": __version__,
        "model_sha256": model.sha256,
        "samples": num_samples,
        "steps": num_steps or model.info.recipe.sample.steps,
        "solver": model.info.recipe.sample.solver,
        "seed": seed,
    }
    if scale != 1:  # what was divided by; images of floating-point numbers stay shares of it
        notes["full_scale"] = scale
    if not stds:
        _write(
            output, np.stack(means), frames, seen.factor, {**notes, "samples": 1, "steps": 1, "content": "regression"}
        )
        return output, None
    for path, images, content in ((output, means, "mean"), (spread, stds, "standard deviation")):
        _write(path, np.stack(images), frames, seen.factor, {**notes, "content": content})
    return output, spread


def _beside(output: Path) -> Path:
    """`cells.ome.tif` to `cells_std.ome.tif`; a PNG could not hold a standard deviation, so it becomes a TIFF."""
    stem, *suffixes = output.name.split(".")
    ending = ".".join(["", *suffixes]) if output.suffix.lower() != ".png" else ".tif"
    return output.with_name(f"{stem}_std{ending}")


def _write(
    path: Path, images: NDArray[np.float32], frames: FrameReader, factor: tuple[int, ...], notes: dict[str, Any]
) -> None:
    """Write frames, shape (frames, C, *spatial), with the axes of their source and pixels smaller by the factor."""
    shape, axes = [*frames.frame_shape, *images.shape[1:]], [*frames.frame_axes, "C", *frames.axes]
    pixels: NDArray[Any] = images.reshape(shape)
    if images.shape[1] == 1:
        pixels, axes = pixels.squeeze(axes.index("C")), [axis for axis in axes if axis != "C"]
    if path.suffix.lower() == ".png":
        dtype = frames.image.dtype if frames.image.dtype.name in ("uint8", "uint16") else np.dtype("uint16")
        pixels = np.clip(np.rint(pixels * notes.get("full_scale", 1)), 0, np.iinfo(dtype).max).astype(dtype)
    finer = dict(zip(frames.axes, factor, strict=True))
    sizes = {
        axis: PixelSize(size.value / finer.get(axis, 1), size.unit)
        for axis, size in frames.image.pixel_size.items()
        if axis in axes
    }
    bare = path.suffix.lower() == ".npy"
    write_image(path, pixels, axes="".join(axes), pixel_size={} if bare else sizes, metadata={} if bare else notes)


def _flat(image: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """First channel and middle plane, shape (1, H, W)."""
    first = image[0]
    return np.asarray(first[len(first) // 2] if first.ndim == 3 else first, np.float32)[None]
