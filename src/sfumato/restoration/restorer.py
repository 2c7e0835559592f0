"""Turn a condition into mean, standard deviation, interval and samples, given a model and how it draws samples."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.diffusion.inference import for_inference
from sfumato.diffusion.known import Known
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.solvers import Solver
from sfumato.models.intervals import NO_SAMPLES, Correction, Sampled
from sfumato.models.model_file import LoadedModel, check_loaded
from sfumato.models.reach import stride
from sfumato.restoration.drawn import Drawn
from sfumato.restoration.intervals import check_fast, sampled_by
from sfumato.restoration.job import Job
from sfumato.restoration.layout import choose_layout
from sfumato.restoration.outputs import Output
from sfumato.restoration.sampled_part import moved, sampled_part
from sfumato.restoration.schedule_map import check_schedule, schedule_map
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import ImageError

__all__ = ["Index", "Restorer", "Uncertainty"]

Index: TypeAlias = tuple[Any, ...]
Uncertainty: TypeAlias = Literal["samples", "schedule"]
ALL: Index = (...,)


@dataclass(frozen=True)
class Restorer:
    """A model, how its samples are drawn and how its networks see an image.

    Attributes:
        model: From :func:`sfumato.load`.
        sampled: How to draw; :data:`~sfumato.models.intervals.NO_SAMPLES` for mean and standard deviation by one read.
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
        fast: bool = False,
        sampling_halo: int | None = None,
    ) -> Self:
        """Create a restorer; by default it draws samples as in the model's calibration, or as its recipe says.

        With ``fast``, it draws none; a regression never does.

        Raises:
            ImageError: If ``fast`` is requested of a model that needs samples for its standard deviation.
            ModelFileError: If the model was not loaded with :func:`sfumato.load`.
            RecipeError: If a number is out of range, or given with ``fast``.
        """
        check_loaded(model)
        if fast:
            check_fast({"samples": num_samples, "steps": num_steps})
            if model.model.draws_samples:
                return cls(model, NO_SAMPLES, tile)
        return cls(model, sampled_by(model, num_samples, num_steps), tile, sampling_halo)

    @classmethod
    def of_job(cls, model: LoadedModel, job: Job) -> Self:
        """Create the restorer that a job was planned with."""
        numbers = (None, None) if job.is_fast else (job.num_samples, job.num_steps)
        return cls.of(model, *numbers, tile=job.tile, fast=job.is_fast, sampling_halo=job.sampling_halo)

    def __post_init__(self) -> None:
        if self.sampled == NO_SAMPLES and not self.model.model.knows_std:
            raise ImageError(
                "fast was requested of a model without mean and scale networks, which needs samples for its standard "
                "deviation; leave out fast, or train a model with a preset (`sfumato train --preset default`)"
            )

    @property
    def draws_samples(self) -> bool:
        """Whether it draws samples; a regression has none, and a fast restoration needs none."""
        return self.model.model.draws_samples and self.sampled != NO_SAMPLES

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
        info = self.model.info
        known = info.fast_calibration if self.sampled == NO_SAMPLES else info.calibration
        holds = known is not None and known.sampled == self.sampled and self.model.model.draws_samples
        return known if holds else None

    @property
    def label(self) -> str:
        """What the intervals guarantee."""
        return "not calibrated" if self.correction is None else self.correction.label

    @property
    def outputs(self) -> list[Output]:
        """Outputs available for an image: the mean and, except of a regression, the std and calibrated interval."""
        spread = ("std",) if self.model.model.draws_samples else ()
        ends = () if self.correction is None else ("low", "high")
        return [Output(content, "") for content in ("mean", *spread, *ends)]

    def available(self, uncertainty: Uncertainty) -> list[Output]:
        """Outputs that show the uncertainty as requested, the mean first.

        Args:
            uncertainty: ``samples`` for their standard deviation, or ``schedule`` for a relative hint from one pass.

        Raises:
            ImageError: If the model cannot give it, or a standard deviation is requested of a single sample.
            RecipeError: If the hint is requested of a fast restoration, which has a standard deviation.
        """
        if uncertainty == "schedule":
            check_schedule(self.model)
            check_fast({"uncertainty schedule": self.sampled == NO_SAMPLES})
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
        if not self.model.model.draws_samples:
            raise ImageError(
                f"this model is a regression: it has no schedule and no samples {wanted}; expected a diffusion model"
            )

    def draws(
        self,
        condition: Tensor,
        noise: NoiseField,
        *,
        batch: int | None = None,
        on_call: Callable[[int], None] | None = None,
        progress: Callable[[int], None] | None = None,
        known: Known | None = None,
    ) -> Iterator[Tensor]:
        """Sample an image or region, in blocks (n, C, *spatial), still normalised; without samples, give the mean.

        Args:
            condition: As the networks take it, shape (1, K, *spatial).
            noise: Noise of the first sample; it knows where the region lies in its image.
            batch: Samples per network call; by default chosen together with the tiles.
            on_call: Called after every network call with the number of samples in it; an exception it raises ends the
                work.
            progress: Called with the number of samples just drawn.
            known: What :meth:`know` gave, if that was done before.
        """
        fitted, batch = self._fitted(condition.shape[2:], batch)
        if not self.draws_samples:
            yield fitted.read(condition)[0]
            _tell(on_call, 1)
            _tell(progress, self.sampled.num_samples)
            return
        known = known or fitted.know(condition)
        for first in range(0, self.sampled.num_samples, batch):
            number = min(batch, self.sampled.num_samples - first)
            yield sample(
                fitted._network,
                condition,
                num_samples=number,
                num_steps=self.sampled.num_steps,
                solver=cast(Solver, self.sampled.solver),
                eta=self.sampled.eta,
                last_noise=self.sampled.last_noise,
                grid=self.sampled.grid,
                seed=replace(noise, sample=noise.sample + first),
                progress=on_call,
                known=known,
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
        if self.sampled == NO_SAMPLES:
            return self._known(condition, inner, **options)
        posterior, kept = Posterior(self.num_draws, quantiles=quantiles), list[Tensor]()
        fitted, options["batch"] = self._fitted(condition.shape[2:], options.get("batch"))
        known = fitted.know(condition) if self.draws_samples else None
        center = None if known is None or self.model.info.recipe.sample.mean == "samples" else known.center
        part, place = sampled_part(condition.shape[2:], inner, None if known is None else self.sampling_halo)
        if part is not None and known is not None:
            assert keep in (None, inner), "samples are kept where they are drawn"
            condition, noise, known = condition[part], moved(noise, part), known.within(part, stride(self.model.model))
        for block in fitted.draws(condition, noise, known=known, **options):
            posterior.add(block[place])
            if keep is not None:
                kept.extend(block[place if keep == inner else keep])
        return Drawn(posterior, kept, posterior.mean if center is None else center[0].cpu()[inner])

    @torch.no_grad()
    def know(self, condition: Tensor) -> Known:
        """What the networks make of a condition (1, K, *spatial) before any noise, for all its samples."""
        return self._network.read(condition)

    def _known(
        self, condition: Tensor, inner: Index, *, on_call: Callable[[int], None] | None = None, **options: Any
    ) -> Drawn:
        """What is known without samples."""
        mean, std = self._fitted(condition.shape[2:], options.get("batch"))[0].read(condition)
        assert std is not None
        _tell(on_call, 1)
        return Drawn(Posterior(1).add(mean[inner]), [], mean[0][inner], std[0][inner])

    @torch.no_grad()
    def read(self, condition: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean and standard deviation by one read of a condition (1, K, *spatial), each (1, C, *spatial)."""
        mean, std = self._network.mean_and_std(condition)
        return mean.cpu(), None if std is None else std.cpu()

    @functools.cached_property
    def _network(self) -> CVDM:
        network = for_inference(self.model.model)
        return network if self.tile is None else tiled(network, self.tile)

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
        """Draw samples, if any, and return the requested images, each (C, *spatial), in the units of the targets.

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

    def _fitted(self, spatial: Sequence[int], batch: int | None) -> tuple[Self, int]:
        """This restorer and the batch or, if none is given, with tiles and a batch that suit the size of the image."""
        if batch is not None:
            return self, batch
        step = stride(self.model.model)
        whole = -(-max(spatial) // step) * step
        numbers = self.sampled.num_samples, self.sampled.num_steps
        layout = choose_layout(self.model, spatial, *numbers, chunk=whole, halo=0, tile=self.tile)
        return replace(self, tile=layout.tile), layout.batch

    def _image(self, output: Output, drawn: Drawn) -> Tensor:
        """One image (C, *spatial) in the units of the target; the std and the interval are those of the calibration."""
        target, posterior, found = self.model.info.target, drawn.posterior, self.correction
        if output.content == "mean":
            return target.invert(drawn.mean, axis=0)
        if output.content == "std":
            return target.invert_spread(drawn.std if found is None else found.spread(drawn.std), axis=0)
        if output.content == "quantile":
            return target.invert(posterior.quantile(output.level), axis=0)
        if output.content == "sample":
            return target.invert(drawn.kept[output.number], axis=0)
        if found is None:
            raise ValueError(f"the {output.content} end of an interval was requested; expected a calibrated model")
        return target.invert(found.interval(drawn.mean, drawn.std)[output.content == "high"], axis=0)


def _tell(whom: Callable[[int], None] | None, number: int) -> None:
    if whom is not None:
        whom(number)
