"""Save what was restored in the viewer as OME-TIFF, with pixel sizes and how it was made, as `sfumato restore` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image
from sfumato.models.ownership import Written, check_outputs, image_with
from sfumato.restoration.outputs import Output, beside

if TYPE_CHECKING:
    from sfumato.restoration.interactive import Parts

__all__ = ["Results", "results_of"]

_SUFFIXES = (".tif", ".tiff")


class Results(NamedTuple):
    """Restored images in memory, one for each content: the mean, and what else is known; no single samples."""

    images: Mapping[str, NDArray[np.float32]]
    axes: str
    pixel_size: Mapping[str, PixelSize]
    notes: Mapping[str, dict[str, Any]]
    """How each image was made."""

    def save(self, path: str | Path) -> list[Path]:
        """Write the mean to a path, and the others beside it; returns all files.

        Raises:
            OverwriteError: If a file of another kind would be lost.
            ImageError: If the images cannot be written there.
        """
        chosen = Path(path)
        name = chosen if chosen.suffix.lower() in _SUFFIXES else Path(f"{chosen}.ome.tif")
        suffixes = {content: "" if content == "mean" else content for content in self.images}
        files = {content: Path(beside(str(name), suffix)) for content, suffix in suffixes.items()}
        ours = image_with("restored image", lambda notes: "model_sha256" in notes)
        check_outputs([Written(file, ours) for file in files.values()], [])
        for content, file in files.items():
            pixels, notes = self.images[content], self.notes[content]
            write_image(
                file, pixels, axes=self.axes, pixel_size=self.pixel_size, metadata=notes, overwrite=True
            )  # fmt: skip
        return list(files.values())


def results_of(parts: "Parts", images: Mapping[str, NDArray[np.float32]]) -> Results:
    """What may be saved of a whole restoration.

    Args:
        parts: What was restored.
        images: Its result.
    """
    from sfumato.restoration.origin import provenance_in_memory

    measured = parts.measured
    kept = {content: pixels for content, pixels in images.items() if content != "samples"}
    channels = next(iter(kept.values())).shape[1]
    shape = [*measured.frame_shape, channels, *measured.spatial]
    axes = [*measured.frame_axes, "C", *measured.axes]
    if channels == 1:
        place = axes.index("C")
        del shape[place], axes[place]
    return Results(
        {content: pixels.reshape(shape) for content, pixels in kept.items()},
        "".join(axes),
        {axis: size for axis, size in measured.pixel_size.items() if axis in axes},
        {content: provenance_in_memory(parts, Output(content, "")) for content in kept},
    )
