"""Methods that can be compared: trained models, classical deconvolution and phase retrieval by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.seen import SeenImages
from sfumato.data.sources import PairSource, evenly_spread
from sfumato.models.model_file import LoadedModel, load
from sfumato.physics.deconvolution import richardson_lucy, wiener
from sfumato.physics.optics import cutoff_frequency
from sfumato.physics.phase_retrieval import MAX_ITERATIONS, ONE_SOLVE, SOLVERS, two_shot_phase
from sfumato.physics.smoothing import WIDTHS, best_width, gaussian_blur
from sfumato.restoration.in_memory import restore
from sfumato.restoration.intervals import sampled_by
from sfumato.statistics.metrics import affine_fit
from sfumato.system.errors import ImageError, RecipeError

__all__ = [
    "CLASSICAL",
    "Deconvolution",
    "Method",
    "TwoShots",
    "classical_method",
    "gaussian_method",
    "model_method",
    "open_model",
    "phase_method",
]

Image = NDArray[np.generic]

CLASSICAL = ("bicubic", "wiener", "richardson_lucy")
"""Names that :func:`classical_method` knows; for phase retrieval see :func:`phase_method`."""
_TUNED_IMAGES, _TUNED_SIDE = 16, 512
"""A blur is tuned in seconds on this many images, of this many pixels per side in their middle."""


@dataclass(frozen=True)
class Method:
    """A method that turns a measured image into an estimate.

    Attributes:
        name: Name in tables.
        run: Takes the measured image, (K, H, W) on the target grid, and its number, and returns (C, H, W).
        about: How it was run, in a few words.
        relative: Whether estimates are known only up to scale, so that they cannot be compared with a truth directly.
        seen: Images that it was trained on, if known.
    """

    name: str
    run: Callable[[Image, int], NDArray[np.float32]]
    about: str = ""
    relative: bool = False
    seen: SeenImages | None = None


@dataclass(frozen=True)
class Deconvolution:
    """What deconvolution must know of the images, and its effort.

    Attributes:
        pixel_um: Side of a pixel of the target grid.
        numerical_aperture: Of the objective.
        wavelength_um: Of the emitted light.
        noise_to_signal: Of the Wiener filter.
        num_iterations: Of Richardson-Lucy.
        offset: Grey level without light, subtracted first; Richardson-Lucy takes the rest for photons.
    """

    pixel_um: float
    numerical_aperture: float
    wavelength_um: float
    noise_to_signal: float = 0.01
    num_iterations: int = 20
    offset: float = 0.0


@dataclass(frozen=True)
class TwoShots:
    """What the transport equation must know of a two-shot condition.

    Attributes:
        pixel_um: Side of a pixel.
        wavelength_um: In the medium.
        defocus_um: The unit of ``planes``, as in a phase recipe.
        planes: Where the two channels were taken: (1, -1) at plus and minus ``defocus_um``, (0, 1) in focus and
            defocused.
        reg: Damping of slow structures.
        max_iterations: Of the iterative solvers.
    """

    pixel_um: float
    wavelength_um: float
    defocus_um: float
    planes: tuple[float, ...] = (1.0, -1.0)
    reg: float = 1e-9
    max_iterations: int = MAX_ITERATIONS

    def __post_init__(self) -> None:
        if min(self.pixel_um, self.wavelength_um) <= 0 or self.defocus_um == 0 or self.reg < 0:
            raise RecipeError(
                f"pixel_um is {self.pixel_um:g}, wavelength_um {self.wavelength_um:g}, defocus_um {self.defocus_um:g} "
                f"and the damping {self.reg:g}; give sizes above 0, a distance other than 0 and no negative damping"
            )
        if len(self.planes) != 2 or self.planes[0] == self.planes[1]:
            raise RecipeError(
                f"planes are {', '.join(f'{plane:g}' for plane in self.planes)}; the transport equation is solved from "
                "two different ones: give 1,-1 or 0,1"
            )

    @property
    def distances_um(self) -> tuple[float, ...]:
        """Distances of the two channels, in micrometres."""
        return tuple(self.defocus_um * plane for plane in self.planes)


def open_model(text: str, *, device: str = "auto") -> tuple[str, LoadedModel]:
    """Load ``path`` or ``name=path``; the default name is the recipe's, or the run folder's if it has none."""
    name, _, path = ("", "", text) if Path(text).exists() else text.rpartition("=")
    model = load(path, device=device)
    told = model.info.recipe.name
    return name or (told if told != "run" else Path(path).resolve().parent.name), model


def model_method(
    name: str, model: LoadedModel, *, num_samples: int = 16, num_steps: int | None = None, seed: int = 0
) -> Method:
    """The mean that a model writes; a regression runs once."""

    def run(measured: Image, image: int) -> NDArray[np.float32]:
        draws: dict[str, Any] = {"num_samples": num_samples, "num_steps": num_steps, "seed": seed, "image": image}
        return restore(measured, model, **draws, on_target_grid=True).mean

    drawn = sampled_by(model, num_samples, num_steps)
    mean = "mean network beside" if model.info.recipe.sample.mean == "network" else "mean of"
    about = f"{mean} {num_samples} samples, {drawn.num_steps} steps, solver {drawn.solver}, seed {seed}"
    if not model.model.draws_samples:
        about = "regression, one pass"
    relative = model.info.recipe.data.scales_each_image
    return Method(name, run, f"{about}, model {model.sha256[:12]}", relative, model.info.seen)


def classical_method(name: str, microscope: Deconvolution | None = None) -> Method:
    """One of ``CLASSICAL``; each channel is restored separately.

    ``bicubic`` is the measured image on the target grid, interpolated by the reader if it was smaller; the other two
    start from that image.

    Raises:
        RecipeError: If the method is unknown, or needs a microscope and none is given.
    """
    if name not in CLASSICAL:
        known = (*CLASSICAL, "gaussian", *SOLVERS)
        raise RecipeError(f"no baseline is called {name!r}; choose one of {', '.join(known)}")
    if name == "bicubic":
        return Method(name, lambda measured, _: np.asarray(measured, np.float32), "the input on the target's grid")
    if microscope is None:
        raise RecipeError(
            f"{name} needs the microscope's blur; give the pixel size, the numerical aperture and the wavelength"
        )
    cutoff, pixel_um = cutoff_frequency(microscope.numerical_aperture, microscope.wavelength_um), microscope.pixel_um
    deconvolve: Callable[..., Tensor]
    if name == "wiener":
        deconvolve = partial(wiener, noise_to_signal=microscope.noise_to_signal)
        effort = f"noise to signal {microscope.noise_to_signal:g}"
    else:
        deconvolve = partial(richardson_lucy, num_iterations=microscope.num_iterations)
        effort = f"{microscope.num_iterations} iterations"

    def solve(measured: Image) -> Tensor:
        light = torch.from_numpy(np.asarray(measured, np.float32)) - microscope.offset
        return deconvolve(light, cutoff=cutoff, pixel_um=pixel_um)

    blur = f"cut-off {cutoff:.3g}/um, pixel {pixel_um:g} um, offset {microscope.offset:g}"
    return _solved(name, solve, f"{effort}, {blur}")


def gaussian_method(width: float | None, tuned_on: PairSource | None, *, affine: bool = False) -> Method:
    """A Gaussian blur of each channel.

    Args:
        width: Its standard deviation in pixels of the target grid; None for the one with the best mean PSNR.
        tuned_on: The validation images that this is found on, in the middle of 16 of them.
        affine: Fit each blurred image to the truth's scale and offset first, as :func:`evaluate` will.

    Raises:
        RecipeError: If there are neither a width nor images to tune it on.
        ImageError: If the measured images have other channels than the truth.
    """
    about = "as given"
    if width is None:
        if tuned_on is None:
            raise RecipeError(
                "gaussian is tuned on validation images, and the data has none that are marked as `validation`; mark "
                "some, or give the width of the blur in pixels (--blur-pixels); `sfumato train` prints the best one"
            )
        chosen = evenly_spread(len(tuned_on), _TUNED_IMAGES)
        pairs = (_middle_of(tuned_on, index) for index in chosen)
        width = best_width(pairs, affine_fit if affine else None)
        about = f"the best of {len(WIDTHS)} on {len(chosen)} validation images"

    def run(measured: Image, _: int) -> NDArray[np.float32]:
        return gaussian_blur(torch.from_numpy(np.asarray(measured, np.float32))[None], width)[0].numpy()

    return Method("gaussian", run, f"width {width:g} pixels, {about}")


def _middle_of(source: PairSource, index: int) -> tuple[Tensor, Tensor]:
    """The middle of a measured image and of its truth, each (1, C, H, W)."""
    spatial = source.spatial(index)
    size = [min(length, _TUNED_SIDE) for length in spatial]
    corner = [(length - part) // 2 for length, part in zip(spatial, size, strict=True)]
    measured, truth = (
        torch.from_numpy(np.asarray(side, np.float64))[None] for side in source.read(index, corner, size)
    )
    if measured.shape != truth.shape:
        raise ImageError(
            f"gaussian blurs the measured image, which has {measured.shape[1]} channels, and the truth has "
            f"{truth.shape[1]}; leave it out"
        )
    return measured, truth


def phase_method(name: str, shots: TwoShots | None) -> Method:
    """One of the solvers of :mod:`sfumato.physics.phase_retrieval` on two channels; the phase has mean 0.

    Raises:
        RecipeError: If the solver is unknown, or the shots are not described.
    """
    if name not in SOLVERS:
        raise RecipeError(f"no solver is called {name!r}; choose one of {', '.join(SOLVERS)}")
    if shots is None:
        raise RecipeError(
            f"{name} solves the transport equation, which needs the pixel size, the wavelength and the defocus "
            "distance; give --pixel-um, --wavelength-um and --defocus-um"
        )
    optics = {"wavelength_um": shots.wavelength_um, "pixel_um": shots.pixel_um}
    effort = {"reg": shots.reg, "max_iterations": shots.max_iterations}

    def solve(measured: Image) -> Tensor:
        light = torch.from_numpy(np.asarray(measured, np.float64))
        return two_shot_phase(light, shots.distances_um, solver=name, **optics, **effort).phase[None]

    iterations = "" if name in ONE_SOLVE else f"at most {shots.max_iterations} iterations, "
    planes = " and ".join(f"{distance:g}" for distance in shots.distances_um)
    light = f"wavelength {shots.wavelength_um:g} um, pixel {shots.pixel_um:g} um"
    return _solved(name, solve, f"{iterations}damping {shots.reg:g}, shots at {planes} um, {light}")


def _solved(name: str, solve: Callable[[Image], Tensor], about: str) -> Method:
    """A method that says which image its solver cannot take."""

    def run(measured: Image, _: int) -> NDArray[np.float32]:
        try:
            return solve(measured).float().numpy()
        except ValueError as error:
            raise ImageError(f"{name} cannot run: {error}") from error

    return Method(name, run, about)
