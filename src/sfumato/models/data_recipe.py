"""The section `data` of a recipe."""

from typing import Literal, Self

from pydantic import Field, model_validator

from sfumato.models.recipe_section import Positive, Section

__all__ = ["PLACES", "DataRecipe"]

PLACES = ("inputs", "targets", "manifest", "folder", "store")
"""Fields that say where the data is."""


class DataRecipe(Section):
    """Where image pairs come from and how they become patches."""

    inputs: str | None = None
    """Folder or file of the measured images (conditions)."""
    targets: str | None = None
    """Folder or file of the true images (targets), with the same names as the inputs."""
    manifest: str | None = None
    """CSV with the columns `input`, `target` and optionally `split` (`train`, `validation` or `test`)."""
    store: str | None = None
    """A store written by `sfumato pack`."""
    folder: str | None = None
    """Folder of the data set that a `problem` other than `pairs` reads."""
    input_axes: str | None = None
    """Axes of the inputs out of STCZYX, if the files do not specify them or are wrong."""
    target_axes: str | None = None
    """Axes of the targets."""
    input_channels: tuple[str | int, ...] | None = None
    """Channels of the inputs, by name or by number from 0; all of them by default."""
    target_channels: tuple[str | int, ...] | None = None
    """Channels of the targets; by default those of the inputs, unless a target has a single channel."""
    scene: str | int | None = None
    """Scene (position, series) of files with several, by name or by number from 0; the first by default."""
    times: tuple[int, int | None] | None = None
    """First and last (exclusive) time of inputs and targets, such as [0, 3]; all of them by default."""
    validation_fraction: float = Field(default=0.1, ge=0, lt=1)
    """Share of the images, never of patches, kept for validation; at least one image if above 0."""
    upsample: bool = False
    """Upsample smaller inputs to the targets' grid by interpolation."""
    match_intensity: bool = False
    """Match the intensities of each target to its own input, for pairs whose scales differ from image to image."""
    patch: Positive = 64
    """Side of the square or cubic training patches, in target pixels; 128 if far surroundings count, as for phases."""
    augment: bool = True
    """Flip and rotate patches."""
    normalize: Literal["quantile", "mean_std", "image"] = "quantile"
    """Map the quantiles of the training set, or of each image, to -1 and 1, or the set's mean and deviation to 0, 1."""
    quantiles: tuple[float, float] = (0.001, 0.999)
    """Quantiles for `normalize`, over the whole training set or of each image."""

    @property
    def scales_each_image(self) -> bool:
        """Whether every image is scaled by its own range, so that restored intensities are known only up to a scale."""
        return self.normalize == "image"

    @property
    def chooses(self) -> bool:
        """Whether only a part of each file is taken."""
        return any(value is not None for value in (self.input_channels, self.target_channels, self.scene, self.times))

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.inputs) != bool(self.targets):
            raise ValueError("inputs and targets belong together: give both folders")
        if sum(map(bool, (self.inputs, self.manifest, self.store, self.folder))) > 1:
            raise ValueError("images come from one place: keep one of inputs with targets, manifest, store and folder")
        low, high = self.quantiles
        if not 0 <= low < high <= 1:
            raise ValueError(f"quantiles are {low} and {high}: give 0 <= low < high <= 1")
        return self

    @model_validator(mode="after")
    def _range_of_times(self) -> Self:
        if self.times is not None and (self.times[0] < 0 or (self.times[1] or self.times[0] + 1) <= self.times[0]):
            raise ValueError(f"times are {list(self.times)}: give the first and the last (exclusive), such as [0, 3]")
        return self
