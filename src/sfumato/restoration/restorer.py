"""Turn a condition into mean, standard deviation, interval and samples, given a model and how to draw samples."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.read_before import ReadBefore, within
from sfumato.diffusion.sampling import Denoiser, sample
from sfumato.diffusion.solvers import Solver
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import LoadedModel, check_loaded
from sfumato.models.reach import stride
from sfumato.restoration.intervals import sampled_by
from sfumato.restoration.layout import choose_layout
from sfumato.restoration.outputs import Output
from sfumato.restoration.schedule_map import check_schedule, schedule_map
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import ImageError

__all__ = ["Drawn", "Index", "Restorer", "Uncertainty"]

Index: TypeAlias = tuple[Any, ...]
Uncertainty: TypeAlias = Literal["samples", "schedule"]
ALL: Index = (...,)


class Drawn(NamedTuple):
    """Samples of one image or region, still normalised."""

    posterior: Posterior
    """Summary of samples (C, *spatial)."""
    kept: list[Tensor]
    """The samples themselves, each (C, *spatial), if they were kept."""
    mean: Tensor
    """The mean that is written, the samples' or the mean network's, (C, *spatial)."""


@dataclass(frozen=True)
class Restorer:
    """A model, how its samples are drawn and how its networks see an image.

    Attributes:
        model: From :func:`sfumato.load`.
        sampled: How to draw.
        tile: Side of the tiles that the networks see; None to choose it from the image size.
        sampling_halo: Pixels around the wanted part of a region that the denoising network sees; None for all of them.

    Example:
        >>> restorer = Restorer.of(sfumato.load("run/model.safetensors"))  # doctest: +SKIP
        >>> condition = condition_of(image, restorer.model).condition()  # doctest: +SKIP
        >>> mean, std = restorer.summarise(condition, NoiseField(0), restorer.outputs)  # doctest: +SKIP
    """

    model: LoadedModel
    sampled: Sampled
    tile: int | None = None
    sampling_halo: int | None = None

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        num_samples: int | None = None,
        num_steps: int | None = None,
        *,
        tile: int | None = None,
        sampling_halo: int | None = None,
    ) -> Self:
        """Create a restorer; by default it draws samples as in the model's calibration, or as its recipe says.

        Raises:
            ModelFileError: If the model was not loaded with :func:`sfumato.load`.
            RecipeError: If a number is out of range.
        """
        check_loaded(model)
        return cls(model, sampled_by(model, num_samples, num_steps), tile, sampling_halo)

    @property
    def draws_samples(self) -> bool:
        """Whether the model has a posterior to sample; a regression only knows its mean."""
        return self.model.model.draws_samples

    @property
    def num_draws(self) -> int:
        """Number of samples of an image."""
        return self.sampled.num_samples if self.draws_samples else 1

    @property
    def num_calls(self) -> int:
        """Network calls per image, times the samples in each."""
        return self.num_draws * (self.sampled.num_steps if self.draws_samples else 1)

    @property
    def correction(self) -> Correction | None:
        """The model's calibration, if it holds for samples drawn this way."""
        known = self.model.info.calibration
        return known if self.draws_samples and known is not None and known.sampled == self.sampled else None

    @property
    def label(self) -> str:
        """What the intervals guarantee."""
        return "not calibrated" if self.correction is None else self.correction.label

    @property
    def outputs(self) -> list[Output]:
        """Outputs available for an image: the mean and, if samples are drawn, the std and calibrated interval."""
        spread = ("std",) if self.draws_samples else ()
        ends = () if self.correction is None else ("low", "high")
        return [Output(content, "") for content in ("mean", *spread, *ends)]

    def available(self, uncertainty: Uncertainty) -> list[Output]:
        """Outputs that show the uncertainty as requested, the mean first.

        Args:
            uncertainty: ``samples`` for their standard deviation, or ``schedule`` for a relative hint from one pass.

        Raises:
            ImageError: If the model cannot give it, or a standard deviation is requested of a single sample.
        """
        if uncertainty == "schedule":
            check_schedule(self.model)
            return [Output("mean", ""), Output("schedule", "")]
        self.check_spread()
        return self.outputs

    def check_spread(self) -> None:
        """Refuse a single sample, which has no standard deviation.

        Raises:
            ImageError: If there is only one.
        """
        if self.draws_samples and self.sampled.num_samples < 2:
            raise ImageError(
                f"the number of samples is {self.sampled.num_samples}; a standard deviation needs at least 2; give more"
            )

    def check_samples(self, wanted: str) -> None:
        """Refuse a model that draws no samples.

        Args:
            wanted: What the samples are needed for, such as ``to compare``.

        Raises:
            ImageError: If it is a regression.
        """
        if not self.draws_samples:
            raise ImageError(
                f"this model is a regression: it has no schedule and no samples {wanted}; expected a diffusion model"
            )

    def draws(
        self,
        condition: Tensor,
        noise: NoiseField,
        *,
        batch: int | None = None,
        part: Index | None = None,
        on_call: Callable[[int], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[Tensor]:
        """Sample an image or region, in blocks (n, C, *spatial), still normalised; a regression gives its one image.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Noise of the first sample; it knows where the region lies in its image.
            batch: Samples per network call; by default chosen together with the tiles.
            part: Read the whole condition, but sample only this part of it.
            on_call: Called after every network call with the number of samples in it; an exception it raises ends the
                work.
            progress: Called with the number of samples just drawn.
        """
        fitted, batch = self._fitted(condition.shape[2:], batch)
        if not self.draws_samples:
            yield fitted.center(condition)
            _tell(on_call, 1)
            _tell(progress, self.sampled.num_samples)
            return
        network: Denoiser = fitted._network
        if part is not None:
            network, condition, noise = _read(fitted._network, condition, noise, part)
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
        """All samples of an image or region, summarised as they are drawn.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Noise of the first sample.
            quantiles: Levels that will be requested.
            inner: Part of the region that is wanted; the rest is halo.
            keep: Part of every sample to keep; none by default.
            options: Options of :meth:`draws`.
        """
        posterior, kept = Posterior(self.num_draws, quantiles=quantiles), list[Tensor]()
        part, place = self._sampled_part(condition.shape[2:], inner)
        assert part is None or keep in (None, inner), "samples are kept where they are drawn"
        for block in self.draws(condition, noise, part=part, **options):
            posterior.add(block[place])
            if keep is not None:
                kept.extend(block[place if keep == inner else keep])
        return Drawn(posterior, kept, self._mean(condition, posterior, inner))

    def _sampled_part(self, spatial: Sequence[int], inner: Index) -> tuple[Index | None, Index]:
        """The part of a region to sample, or None for all of it, and the position of the wanted part in it."""
        halo = self.sampling_halo
        if halo is None or not self.draws_samples or len(inner) == 1:
            return None, inner
        spans = [
            (max(0, wanted.start - halo), min(side, wanted.stop + halo))
            for wanted, side in zip(inner[1:], spatial, strict=True)
        ]
        if spans == [(0, side) for side in spatial]:
            return None, inner
        moved = (slice(w.start - start, w.stop - start) for w, (start, _) in zip(inner[1:], spans, strict=True))
        return (..., *(slice(*span) for span in spans)), (..., *moved)

    def _mean(self, condition: Tensor, posterior: Posterior, inner: Index) -> Tensor:
        if self.model.info.recipe.sample.mean == "samples" or not self.draws_samples:
            return posterior.mean
        fitted, _ = self._fitted(condition.shape[2:], None)
        return fitted.center(condition)[0][inner]

    @torch.no_grad()
    def center(self, condition: Tensor) -> Tensor:
        """The mean network's image of a condition (1, K, *spatial), shape (1, C, *spatial), still normalised."""
        center = self._network.center(condition)
        assert center is not None
        return center.cpu()

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
        """Draw samples and return the requested images, each (C, *spatial), in the units of the targets.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Noise of the first sample.
            outputs: The requested images; their places are ignored.
            full_scale: As in :class:`~sfumato.restoration.conditions.Measured`.
            inner: Part of the region that is wanted; the rest is halo.
            alike: Makes the networks normalise this region like the others of its image.
            options: Options of :meth:`draws`.
        """
        levels = [output.level for output in outputs if output.content == "quantile"]
        keep = inner if any(output.content == "sample" for output in outputs) else None
        fitted, options["batch"] = self._fitted(condition.shape[2:], options.get("batch"))
        with alike():
            drawn = fitted.draw(condition, noise, quantiles=levels, inner=inner, keep=keep, **options)
        images = []
        for output in outputs:
            if output.content == "schedule":
                with alike():
                    images.append(schedule_map(condition, self.model, tile=fitted.tile)[inner])
                continue
            image = self._image(output, drawn)
            images.append(image if full_scale == 1 else image * full_scale)
        return [np.asarray(image.numpy()) for image in images]

    @property
    def _network(self) -> CVDM:
        """The model, seeing tiles if there are any."""
        return self.model.model if self.tile is None else tiled(self.model.model, self.tile)

    def _fitted(self, spatial: Sequence[int], batch: int | None) -> tuple[Self, int]:
        """This restorer and the batch or, if none is given, with tiles and a batch that suit the size of the image."""
        if batch is not None:
            return self, batch
        step = stride(self.model.model)
        whole = -(-max(spatial) // step) * step
        layout = choose_layout(self.model, spatial, self.sampled.num_samples, chunk=whole, halo=0, tile=self.tile)
        return replace(self, tile=layout.tile), layout.batch

    def _image(self, output: Output, drawn: Drawn) -> Tensor:
        """One image (C, *spatial) in the units of the target; the std and the interval are those of the calibration."""
        target, posterior, found = self.model.info.target, drawn.posterior, self.correction
        if output.content == "mean":
            return target.invert(drawn.mean, axis=0)
        if output.content == "std":
            return target.invert_spread(posterior.std if found is None else found.spread(posterior.std), axis=0)
        if output.content == "quantile":
            return target.invert(posterior.quantile(output.level), axis=0)
        if output.content == "sample":
            return target.invert(drawn.kept[output.number], axis=0)
        if found is None:
            raise ValueError(f"the {output.content} end of an interval was requested; expected a calibrated model")
        return target.invert(found.interval(drawn.mean, posterior.std)[output.content == "high"], axis=0)


@torch.no_grad()
def _read(model: CVDM, condition: Tensor, noise: NoiseField, part: Index) -> tuple[ReadBefore, Tensor, NoiseField]:
    """The model with what it knows of a part of a region, the condition there, and the noise there."""
    origin = noise.origin or (0,) * (len(part) - 1)
    there = tuple(o + span.start for o, span in zip(origin, part[1:], strict=True))
    return ReadBefore(model, within(model.read(condition), part)), condition[part], replace(noise, origin=there)


def _tell(whom: Callable[[int], None] | None, number: int) -> None:
    if whom is not None:
        whom(number)
