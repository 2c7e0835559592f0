"""A model and how it draws, resolved once: the one way from a condition to mean, spread, interval and samples."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.solvers import Solver
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import LoadedModel, check_loaded
from sfumato.restoration.intervals import Content, correction_for, sampled_by, summary
from sfumato.restoration.layout import Layout, choose_layout, stride
from sfumato.restoration.outputs import Output
from sfumato.restoration.schedule_map import schedule_map
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import ImageError

__all__ = ["Drawn", "Restorer"]

Index = tuple[Any, ...]
ALL: Index = (...,)


class Drawn(NamedTuple):
    """Draws of one image or region, still normalised."""

    posterior: Posterior
    """Of draws (C, *spatial)."""
    kept: list[Tensor]
    """The draws themselves, each (C, *spatial), if they were to be kept."""


@dataclass(frozen=True)
class Restorer:
    """A model, how its samples are drawn and how its networks see an image.

    Attributes:
        model: From :func:`sfumato.load`.
        sampled: How to draw.
        tile: Side of the tiles that networks see; chosen by the image's size if None.

    Example:
        >>> restorer = Restorer.of(sfumato.load("run/model.safetensors"))  # doctest: +SKIP
        >>> condition = condition_of(image, restorer.model).condition()  # doctest: +SKIP
        >>> mean, std = restorer.summarise(condition, NoiseField(0), restorer.outputs)  # doctest: +SKIP
    """

    model: LoadedModel
    sampled: Sampled
    tile: int | None = None

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        num_samples: int | None = None,
        num_steps: int | None = None,
        *,
        tile: int | None = None,
    ) -> Self:
        """With as many samples and steps as the model's calibration, or its recipe, where none are given.

        Raises:
            ModelFileError: If the model is not what :func:`sfumato.load` gives.
            RecipeError: If a number is out of its range.
        """
        check_loaded(model)
        return cls(model, sampled_by(model, num_samples, num_steps), tile)

    @property
    def draws_samples(self) -> bool:
        """Whether the model has a posterior to draw from; a regression knows its mean alone."""
        return self.model.model.draws_samples

    @property
    def num_draws(self) -> int:
        """Draws of an image."""
        return self.sampled.num_samples if self.draws_samples else 1

    @property
    def num_calls(self) -> int:
        """Network calls of an image, times the draws in each."""
        return self.num_draws * (self.sampled.num_steps if self.draws_samples else 1)

    @property
    def correction(self) -> Correction | None:
        """The model's calibration, if it holds for samples drawn so."""
        return correction_for(self.model, self.sampled) if self.draws_samples else None

    @property
    def label(self) -> str:
        """What the intervals promise."""
        return "not calibrated" if self.correction is None else self.correction.label

    @property
    def outputs(self) -> list[Output]:
        """What is known of an image: its mean, and where samples are drawn their spread and calibrated interval."""
        spread = ("std",) if self.draws_samples else ()
        ends = () if self.correction is None else ("low", "high")
        return [Output(content, "") for content in ("mean", *spread, *ends)]

    def check_spread(self) -> None:
        """Refuse a single sample, which has no standard deviation.

        Raises:
            ImageError: If there is but one.
        """
        if self.draws_samples and self.sampled.num_samples < 2:
            raise ImageError(
                f"the number of samples is {self.sampled.num_samples}; a standard deviation needs at least 2; give more"
            )

    def check_samples(self, wanted: str) -> None:
        """Refuse a model that draws no samples.

        Args:
            wanted: What they are needed for, such as ``to compare``.

        Raises:
            ImageError: If it is a regression.
        """
        if not self.draws_samples:
            raise ImageError(
                f"this model is a regression: it has no schedule and no samples {wanted}; expected a diffusion model"
            )

    def layout(self, spatial: Sequence[int]) -> Layout:
        """How an image is seen whole: by tiles if it is large, several samples at once if it is small."""
        step = stride(self.model.model)
        whole = -(-max(spatial) // step) * step
        return choose_layout(self.model, spatial, self.sampled.num_samples, chunk=whole, halo=0, tile=self.tile)

    def draws(
        self,
        condition: Tensor,
        noise: NoiseField,
        *,
        batch: int | None = None,
        on_call: Callable[[int], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[Tensor]:
        """Draws of an image or of a region of one, in blocks (n, C, *spatial), still normalised; one of a regression.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Of the first draw; says where the region lies in its image.
            batch: How many go through the network together; chosen with the tiles if not given.
            on_call: Called after every network call with the number of draws in it; what it raises ends the sampling.
            progress: Called with the number of draws that were just made.
        """
        tile = self.tile
        if batch is None:
            layout = self.layout(condition.shape[2:])
            tile, batch = layout.tile, layout.batch
        network = self.model.model if tile is None else tiled(self.model.model, tile)
        if not self.draws_samples:
            with torch.no_grad():
                center = network.center(condition)
            assert center is not None
            yield center.cpu()
            _tell(on_call, 1)
            _tell(progress, self.sampled.num_samples)
            return
        for first in range(0, self.sampled.num_samples, batch):
            number = min(batch, self.sampled.num_samples - first)
            yield sample(
                network,
                condition,
                num_samples=number,
                num_steps=self.sampled.num_steps,
                solver=cast(Solver, self.sampled.solver),
                eta=self.sampled.eta,
                last_noise=self.sampled.last_noise,
                grid=self.sampled.grid,
                seed=replace(noise, sample=noise.sample + first),
                progress=on_call,
            )[:, 0].cpu()
            _tell(progress, number)

    def draw(
        self,
        condition: Tensor,
        noise: NoiseField,
        *,
        quantiles: Sequence[float] = (),
        inner: Index = ALL,
        keep: Index | None = None,
        **options: Any,
    ) -> Drawn:
        """All draws of an image or region, summed up as they come.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Of the first draw.
            quantiles: Levels that will be asked for.
            inner: Which part of the region is wanted; the rest is halo.
            keep: Which part of every draw is kept; none if not given.
            options: Those of :meth:`draws`.
        """
        posterior, kept = Posterior(self.num_draws, quantiles=quantiles), list[Tensor]()
        for block in self.draws(condition, noise, **options):
            posterior.add(block[inner])
            if keep is not None:
                kept.extend(block[keep])
        return Drawn(posterior, kept)

    def summarise(
        self,
        condition: Tensor,
        noise: NoiseField,
        outputs: Sequence[Output],
        *,
        full_scale: float = 1.0,
        inner: Index = ALL,
        alike: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        **options: Any,
    ) -> list[NDArray[np.float32]]:
        """Draw, and give the images that are asked for, each (C, *spatial), in the units of the targets.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Of the first draw.
            outputs: What is asked for; places do not matter.
            full_scale: Of :class:`~sfumato.restoration.conditions.Conditions`.
            inner: Which part of the region is wanted; the rest is halo.
            alike: Makes the networks normalise this region as the others of its image.
            options: Those of :meth:`draws`.
        """
        levels = [output.level for output in outputs if output.content == "quantile"]
        keep = inner if any(output.content == "sample" for output in outputs) else None
        with alike():
            drawn = self.draw(condition, noise, quantiles=levels, inner=inner, keep=keep, **options)
        images = []
        for output in outputs:
            if output.content == "schedule":
                with alike():
                    images.append(schedule_map(condition, self.model, tile=self._tile(condition, options))[inner])
                continue
            image = self._image(output, drawn)
            images.append(image if full_scale == 1 else image * full_scale)
        return [np.asarray(image.numpy()) for image in images]

    def _tile(self, condition: Tensor, options: dict[str, Any]) -> int | None:
        return self.tile if options.get("batch") else self.layout(condition.shape[2:]).tile

    def _image(self, output: Output, drawn: Drawn) -> Tensor:
        target = self.model.info.target
        if output.content == "quantile":
            return target.invert(drawn.posterior.quantile(output.level), axis=0)
        if output.content == "sample":
            return target.invert(drawn.kept[output.number], axis=0)
        return summary(cast(Content, output.content), drawn.posterior, target, self.correction)


def _tell(whom: Callable[[int], None] | None, number: int) -> None:
    if whom is not None:
        whom(number)
