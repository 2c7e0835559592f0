"""Validate with fixed noise and fixed times, and draw a panel of restored validation images."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sfumato.data.normalize import Normalization
from sfumato.data.sources import PairSource, evenly_spread
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.sampling import sample
from sfumato.figures.panels import draw_panel
from sfumato.models.recipe import SampleRecipe

__all__ = ["Validation"]

_NUM_IMAGES, _NUM_TIMES, _NUM_SHOWN, _SIDE = 16, 8, 3, 128
_SEED = 20_240_507
"""The same noise in every validation of every run."""


class Validation:
    """A fixed set of central crops of validation images.

    Args:
        source: Validation samples.
        condition: Normalisation of conditions.
        target: Normalisation of targets.
        patch: Side of training patches. Crops of images have at least that side and at most 128 pixels; crops of
            volumes have exactly that side.
    """

    def __init__(self, source: PairSource, condition: Normalization, target: Normalization, patch: int) -> None:
        chosen = evenly_spread(len(source), _NUM_IMAGES)
        sizes = np.array([source.spatial(sample) for sample in chosen])
        side = max(patch, min(_SIDE, 2 * patch)) if sizes.shape[1] == 2 else patch  # a volume takes 8 times the memory
        self._size = np.minimum(sizes.min(axis=0), side).tolist()
        crops = [
            source.read(index, ((size - self._size) // 2).tolist(), self._size)
            for index, size in zip(chosen, sizes, strict=True)
        ]
        sides = [np.stack([crop[side] for crop in crops]) for side in (0, 1)]
        self._condition_normalization, self._target_normalization = condition, target
        self.condition, self.target = condition.of_pixels(sides[0]), target.of_pixels(sides[1])

    @property
    def calls_of_loss(self) -> int:
        """Calls of the noise network, counted per image."""
        return _NUM_TIMES * len(self.condition)

    def calls_of_panel(self, settings: SampleRecipe) -> int:
        """Calls of the noise network, counted per image: a panel takes longer than a loss."""
        return len(self.condition[:_NUM_SHOWN]) * max(settings.samples, 2) * settings.steps

    @torch.no_grad()
    def loss(self, model: CVDM, device: torch.device) -> float:
        """Diffusion and prior terms, averaged over images and over times spread evenly in (0, 1).

        For a regression, which has neither, the mean square error.
        """
        total = 0.0
        for number in range(len(self.condition)):
            repeated = (
                side[number : number + 1].expand(_NUM_TIMES, *side.shape[1:]) for side in (self.condition, self.target)
            )
            condition, target = (side.to(device) for side in repeated)
            t = (torch.arange(_NUM_TIMES, device=device) + 0.5) / _NUM_TIMES
            eps = NoiseField(_SEED, sample=number)(0, torch.Size([1, *target.shape]), device=device)[0]
            losses = model.loss(condition, target, t, eps)
            total += float(model.validated(losses))
        return total / len(self.condition)

    def draw(self, model: CVDM, device: torch.device, settings: SampleRecipe, path: Path) -> None:
        """Restore the first few crops and draw them beside the truth, in the units of the data."""
        draws = [self._drawn(model, device, settings, image) for image in range(len(self.condition[:_NUM_SHOWN]))]
        posterior = Posterior(max(settings.samples, 2)).add(torch.cat(draws, dim=1))
        with torch.no_grad():
            center = model.center(self.condition[:_NUM_SHOWN].to(device)) if settings.mean == "network" else None
        mean = posterior.mean if center is None else center.cpu()
        pictures = (
            self._condition_normalization.invert(self.condition[:_NUM_SHOWN]),
            self._target_normalization.invert(mean),
            self._target_normalization.invert_spread(posterior.std),
            self._target_normalization.invert(self.target[:_NUM_SHOWN]),
        )
        draw_panel(path, *(_flat(picture) for picture in pictures))

    def images(self) -> tuple[Tensor, Tensor]:
        """The measured images and the truth, in the units of the data."""
        return (
            self._condition_normalization.invert(self.condition),
            self._target_normalization.invert(self.target),
        )

    @torch.no_grad()
    def means(self, model: CVDM, device: torch.device, settings: SampleRecipe) -> Iterator[Tensor]:
        """The restored images, one after another, each of shape (1, C, *spatial) in the units of the data."""
        is_drawn = settings.mean == "samples" and model.draws_samples
        for image, crop in enumerate(self.condition.split(1)):
            center = None if is_drawn else model.center(crop.to(device))
            mean = self._drawn(model, device, settings, image).mean(0) if center is None else center.cpu()
            yield self._target_normalization.invert(mean)

    def _drawn(self, model: CVDM, device: torch.device, settings: SampleRecipe, image: int) -> Tensor:
        """Samples of one image, shape (N, 1, C, *spatial)."""
        how = settings.model_dump(include={"solver", "eta", "last_noise", "grid"})
        number, noise = max(settings.samples, 2), NoiseField(_SEED, image=image)
        crop = self.condition[image : image + 1].to(device)
        return sample(model, crop, num_samples=number, num_steps=settings.steps, seed=noise, **how).cpu()


def _flat(images: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """First channel, middle plane: (M, C, *spatial) to (M, H, W)."""
    first = images[:, 0]
    return (first[:, first.shape[1] // 2] if first.ndim == 4 else first).numpy()
