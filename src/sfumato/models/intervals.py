r"""The result of a calibration, stored in the model file: how wide intervals must be.

.. math:: m \pm \lambda\,(a\,s + b)

with m and s the mean and standard deviation of the samples or, if none are drawn, of the networks that read the
condition. Guaranteed intervals have a = 1 and a small fixed b, so
that only :math:`\lambda` is fitted to the held-out images; recalibration fits all three.
"""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from torch import Tensor

from sfumato.statistics.conformal import num_units_needed

if TYPE_CHECKING:  # pydantic takes long to import
    from sfumato.models.recipe import SampleRecipe

__all__ = ["FLOOR", "NO_SAMPLES", "Correction", "Method", "Sampled", "sampled_as"]

Method: TypeAlias = Literal["risk_control", "rcps", "recalibrated"]

FLOOR = 1e-3
"""b of guaranteed intervals, in normalised units: where all samples agree, an interval still has width."""


@dataclass(frozen=True)
class Sampled:
    """How the samples were drawn; a correction holds for these settings and no others.

    Attributes:
        num_samples: Samples per image.
        num_steps: Network calls per sample.
        solver: Name of the solver.
        eta: Noise of the sampler.
        last_noise: Noise variance at the last network call; corrections without this value were made with the default.
        grid: Times at which the network is called; corrections without this value were made with the default.
    """

    num_samples: int
    num_steps: int
    solver: str
    eta: float
    last_noise: float = 1e-6
    grid: Literal["log_snr", "uniform"] = "log_snr"


NO_SAMPLES = Sampled(0, 0, "none", 0.0)
"""Nothing is drawn: mean and standard deviation are the networks' own, from one read of the condition."""


def sampled_as(sample: "SampleRecipe", num_samples: int) -> Sampled:
    """Return the sampling settings of a recipe in the form that a calibration stores."""
    return Sampled(num_samples, sample.steps, sample.solver, sample.eta, sample.last_noise, sample.grid)


@dataclass(frozen=True)
class Correction:
    r"""Calibrated intervals of one level.

    Attributes:
        method: ``risk_control`` or ``rcps``, which carry a guarantee, or ``recalibrated``, which carries none.
        level: Fraction of the pixels of an image that should lie inside.
        delta: For RCPS, the share of calibration sets for which the guarantee may fail.
        factor: :math:`\lambda`.
        scale: a.
        offset: b, in normalised units of the target.
        num_units: Number of independent units of held-out data used.
        num_images: Number of images in these units.
        raw_coverage: Fraction of pixels inside the uncalibrated interval of this level: the samples' own or, without
            samples, the Gaussian one.
        sampled: How the samples were drawn; :data:`NO_SAMPLES` if none were.
        num_seen: Number of these images that the model was trained or validated on; if above 0, nothing is guaranteed.
    """

    method: Method
    level: float
    factor: float
    num_units: int
    num_images: int
    raw_coverage: float
    sampled: Sampled
    scale: float = 1.0
    offset: float = FLOOR
    delta: float | None = None
    num_seen: int = 0

    def __post_init__(self) -> None:
        numbers = {"factor": self.factor, "scale": self.scale, "offset": self.offset}
        for name, value in numbers.items():
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} of the calibration is {value}; expected a finite number that is not negative")
        if not 0 < self.level < 1:
            raise ValueError(f"level of the calibration is {self.level}; expected a number between 0 and 1")
        if self.method not in get_args(Method):
            raise ValueError(f"method of the calibration is {self.method!r}; expected {', '.join(get_args(Method))}")
        if (self.method == "rcps") != (self.delta is not None):
            raise ValueError(f"delta of the calibration is {self.delta}; RCPS needs one, and only RCPS")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"delta of the calibration is {self.delta}; expected a number between 0 and 1")
        if not 1 <= self.num_units <= self.num_images or not 0 <= self.num_seen <= self.num_images:
            raise ValueError(
                f"the calibration is of {self.num_units} units and {self.num_images} images, {self.num_seen} of them "
                "seen; expected at least 1 unit, and no more units or seen images than images"
            )
        if not 0 <= self.raw_coverage <= 1:
            raise ValueError(f"raw_coverage of the calibration is {self.raw_coverage}; expected a number from 0 to 1")
        drawn = self.sampled
        if drawn == NO_SAMPLES:
            return
        if drawn.num_samples < 1 or drawn.num_steps < 1 or not 0 <= drawn.eta <= 1 or not 0 < drawn.last_noise < 1:
            raise ValueError(f"the calibration is of draws by {drawn}; expected some draws, steps and noise below 1")

    @property
    def formula(self) -> str:
        """The intervals, in one line."""
        return f"intervals: mean +- {self.factor:.4g} x ({self.scale:.4g} std + {self.offset:.4g}), normalised"

    @property
    def label(self) -> str:
        """One sentence, stored with the image, on what the intervals guarantee."""
        inside, count = f"{100 * self.level:g}% of pixels inside", self.num_units
        if self.num_seen:
            return (
                f"{inside} on the {count} units it was made from; no guarantee: the model was trained or validated on "
                f"{self.num_seen} of their {self.num_images} images"
            )
        if self.method == "recalibrated":
            needed = num_units_needed(self.level)
            reason = f": too few units, {needed} are needed" if count < needed else ""
            return f"{inside} by recalibration on {count} held-out units; no guarantee{reason}"
        sure = "" if self.delta is None else f" with confidence {1 - self.delta:g}"
        return f"{inside} on average, guaranteed{sure} for images like the {count} held out"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `num_seen` is left out if it is 0."""
        values = asdict(self)
        if not self.num_seen:
            del values["num_seen"]
        return values

    def spread(self, std: Tensor) -> Tensor:
        """Return the corrected standard deviation if recalibrated, otherwise the one given."""
        return self.scale * std + self.offset if self.method == "recalibrated" else std

    def interval(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the lower and upper ends of intervals, in the normalised units and the shape of ``mean`` and ``std``.

        Example:
            >>> sampled = Sampled(16, 16, "2m", 0.0)
            >>> found = Correction("risk_control", 0.9, 2.0, 200, 200, 0.8, sampled, offset=0.0)
            >>> import torch
            >>> [end.item() for end in found.interval(torch.tensor(1.0), torch.tensor(0.5))]
            [0.0, 2.0]
        """
        half = self.factor * (self.scale * std + self.offset)
        return mean - half, mean + half
