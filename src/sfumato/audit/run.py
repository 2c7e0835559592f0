"""Audit one image: run all possible checks, and report in sentences what they found and what could not be checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.audit.consistency import Consistency, ContradictionError, check_consistency
from sfumato.audit.disagreement import Disagreement, check_disagreement
from sfumato.audit.forward import Forward, blurring, defocusing, imaging
from sfumato.data.domain import Judgement
from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import LoadedModel
from sfumato.problems.phase_settings import PhaseSettings
from sfumato.problems.request import parameters
from sfumato.restoration.conditions import condition_of
from sfumato.restoration.likeness import domain_of
from sfumato.restoration.restorer import Restorer
from sfumato.system.errors import ImageError

__all__ = ["Audit", "Optics", "audit", "choose_forward", "draw_samples", "judge_domain"]

_WIDTHS_PX = np.arange(0, 4.01, 0.25)
_MOST_NAMED = 5

Array = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class Optics:
    """What is known of the instrument; None for anything unknown.

    Attributes:
        pixel_um: Side of a pixel of the measurement.
        numerical_aperture: Of the objective.
        wavelength_um: Of the light.
        finer: How many times finer than the measurement the restored image resolves; 2 for structured illumination.
        defocus_um: Distance d of defocused shots.
    """

    pixel_um: float | None = None
    numerical_aperture: float | None = None
    wavelength_um: float | None = None
    finer: float | None = None
    defocus_um: float | None = None


@dataclass(frozen=True)
class Audit:
    """All findings about one image.

    Attributes:
        measured: Shape (K, H, W).
        restored: Shape (C, F H, F W).
        factor: F.
        pixel_um: Pixel size of the measurement, if known.
        forward: The forward model that was used, or None.
        domain: Comparison with the training images, or None.
        consistency: Comparison with the measurement, or None.
        disagreement: Comparison of the samples, or None.
        unchecked: What could not be checked, and why.
        contradiction: Why the restored image cannot belong to the measurement at all; empty if it can.
    """

    measured: Array
    restored: Array
    factor: int
    pixel_um: float | None
    forward: Forward | None
    domain: Judgement | None
    consistency: Consistency | None
    disagreement: Disagreement | None
    unchecked: list[str] = field(default_factory=list)
    contradiction: str = ""

    @property
    def warnings(self) -> list[str]:
        """Sentences about what is wrong; empty if nothing is."""
        found = []
        if self.domain is not None and self.domain.is_unlike:
            found.append(self.domain.told)
        if self.contradiction:
            found.append(self.contradiction)
        if self.consistency is not None:
            marked = {
                "not supported by the measurement": self.consistency.unsupported,
                "in the measurement and missing from the restored image": self.consistency.missing,
            }
            for what, structures in marked.items():
                if structures:
                    places = self._places([(s.row, s.column, f"{s.strength:.1f} sd") for s in structures])
                    found.append(f"{_count(len(structures))} {what}: {places}.")
        if self.disagreement is not None and self.disagreement.uncertain:
            total, factor = self.disagreement.num_samples, self.factor
            uncertain = self.disagreement.uncertain
            places = self._places(
                [(s.row // factor, s.column // factor, f"in {round(s.share * total)} of {total}") for s in uncertain]
            )
            found.append(
                f"{_count(len(uncertain))} lacking in more than a tenth of the samples, of "
                f"{len(self.disagreement.structures)} that were looked at: {places}."
            )
        return found

    @property
    def verdicts(self) -> list[str]:
        """Sentences about what is as it should be."""
        found = []
        if self.domain is not None and not self.domain.is_unlike:
            found.append(self.domain.told)
        if self.consistency is not None:
            assert self.forward is not None
            told = f"Measured again by {self.forward.about}, the restored image correlates with the measurement at "
            found.append(f"{told}{self.consistency.rsp:.3f}; the error is {self.consistency.rse:.3g} of its units.")
            if not self.consistency.unsupported:
                found.append("No structure of the restored image is contradicted by the measurement.")
        if self.disagreement is not None and not self.disagreement.uncertain:
            number = len(self.disagreement.structures)
            found.append(f"All {number} structures are in nine tenths or more of the samples.")
        return found

    def _places(self, found: Sequence[tuple[int, int, str]]) -> str:
        """The first few positions, in pixels of the measurement and, if known, micrometres."""
        words, size = [], self.pixel_um
        for row, column, note in found[:_MOST_NAMED]:
            distance = "" if size is None else f" ({row * size:.2f}, {column * size:.2f} um)"
            words.append(f"row {row}, column {column}{distance}, {note}")
        more = len(found) - _MOST_NAMED
        return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def audit(
    measured: Array,
    model: LoadedModel,
    *,
    restored: Array | None = None,
    draws: Array | None = None,
    optics: Optics | None = None,
    num_samples: int = 16,
    num_steps: int | None = None,
    seed: int = 0,
) -> Audit:
    """Audit the restoration of one image.

    Args:
        measured: Shape (K, H, W) or, with one channel, (H, W).
        model: From :func:`sfumato.load`.
        restored: Shape (C, F H, F W) or (F H, F W); by default samples are drawn and their mean is used.
        draws: Samples whose mean is the restored image, shape (N, C, F H, F W).
        optics: What is known of the instrument.
        num_samples: Number of samples to draw, if any.
        num_steps: Network calls per sample; by default the recipe's.
        seed: Seed of the samples.

    Raises:
        ImageError: If the images do not fit the model or each other.
    """
    if model.info.recipe.model.ndim != 2:
        raise ImageError("the model takes volumes; the audit is for images of 2 spatial axes: audit planes")
    optics = optics or Optics()
    image = measured if measured.ndim == 3 else measured[None]
    unchecked: list[str] = []
    if restored is None:
        draws = draw_samples(image, model, num_samples=num_samples, num_steps=num_steps, seed=seed)
        restored = draws.astype(np.float64).mean(0)
        draws = None if len(draws) < 2 else draws
        if draws is None:
            unchecked.append("Samples were not compared: a regression has none.")
    elif draws is None:
        unchecked.append("Samples were not compared: only one restored image was given.")
    restored = restored if restored.ndim == 3 else restored[None]
    factor = _factor(image, restored)
    domain = judge_domain(image, model)
    if domain is None:
        unchecked.append(
            "Whether the image is like the training images was not checked: the model file has no description of them "
            "(it was written by an earlier version, or trained on fewer than three images)."
        )
    forward = consistency = None
    contradiction = ""
    try:
        forward = choose_forward(image, restored, model, optics)
        consistency = check_consistency(image, restored, forward)
    except ContradictionError as error:
        contradiction = f"The restored image contradicts the measurement: {error}."
    except ImageError as error:
        forward = None
        unchecked.append(f"The restored image was not measured again: {error}.")
    scale = factor * (1.5 if forward is None else forward.scale_px) / (optics.finer or factor)
    disagreement = None if draws is None else check_disagreement(draws.astype(np.float64).mean(1), max(scale, 1.0))
    return Audit(
        image, restored, factor, optics.pixel_um, forward, domain, consistency, disagreement, unchecked, contradiction
    )


def draw_samples(
    image: Array, model: LoadedModel, *, num_samples: int, num_steps: int | None = None, seed: int = 0
) -> NDArray[np.float32]:
    """Samples (N, C, F H, F W) of an image (K, H, W); one from a regression."""
    restorer = Restorer.of(model, num_samples, num_steps)
    restorer.check_spread()
    kept = restorer.draw(condition_of(image, model).condition(), NoiseField(seed), keep=(...,)).kept
    return np.asarray(model.info.target.invert(torch.stack(kept)).numpy())


def judge_domain(image: Array, model: LoadedModel) -> Judgement | None:
    """Compare an image (K, H, W) with the model's training images; None if its file does not describe them."""
    domain = domain_of(model)
    if domain is None:
        return None
    condition = condition_of(image, model).condition()
    return domain.judge(model.info.condition.invert(condition)[0].cpu().numpy())


def choose_forward(image: Array, restored: Array, model: LoadedModel, optics: Optics) -> Forward:
    """The forward model of a problem: for phases, for known optics, or otherwise a blur whose width is fitted.

    Raises:
        ImageError: If no forward model connects these images.
    """
    factor = _factor(image, restored)
    if model.info.recipe.problem == "phase":
        settings = parameters(PhaseSettings, model.info.recipe.forward)
        for name in ("pixel", "wavelength", "defocus"):
            if (told := getattr(optics, f"{name}_um")) is not None:
                settings = replace(settings, **{f"{name}_um": told, f"{name}_max_um": 0.0})
        return defocusing(settings)
    if len(image) != len(restored):
        raise ImageError(
            f"the measurement has {len(image)} channels and the restored image {len(restored)}, and it is "
            "unknown how one makes the other"
        )
    if optics.pixel_um and optics.numerical_aperture and optics.wavelength_um:
        return imaging(
            factor,
            pixel_um=optics.pixel_um,
            numerical_aperture=optics.numerical_aperture,
            wavelength_um=optics.wavelength_um,
            extension=optics.finer or float(factor),
        )
    light = torch.from_numpy(np.asarray(restored, np.float64))
    goal = np.asarray(image, np.float64)
    left = [_unexplained(blurring(factor, float(width)).predict(light).numpy(), goal) for width in _WIDTHS_PX]
    return blurring(factor, float(_WIDTHS_PX[int(np.argmin(left))]))


def _factor(image: Array, restored: Array) -> int:
    ratios = [fine / coarse for coarse, fine in zip(image.shape[1:], restored.shape[1:], strict=True)]
    if ratios[0] != ratios[1] or ratios[0] != int(ratios[0]):
        raise ImageError(
            f"the measurement has {image.shape[1:]} pixels and the restored image {restored.shape[1:]}; expected a "
            "whole multiple; give the restored image of this measurement"
        )
    return int(ratios[0])


def _unexplained(p: NDArray[np.float64], m: NDArray[np.float64]) -> float:
    """Share of the measurement's variance that no gain and offset of the prediction explain."""
    return -sum(float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) for a, b in zip(p, m, strict=True) if np.ptp(a) > 0)


def _count(number: int) -> str:
    return "1 structure is" if number == 1 else f"{number} structures are"
