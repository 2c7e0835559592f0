"""Methods that can be evaluated: trained models, and classical restoration by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.seen import SeenImages
from sfumato.models.model_file import LoadedModel, load
from sfumato.physics.deconvolution import richardson_lucy, wiener
from sfumato.physics.optics import cutoff_frequency
from sfumato.physics.phase_retrieval import SOLVERS
from sfumato.restoration.in_memory import restore
from sfumato.restoration.intervals import sampled_by
from sfumato.system.errors import ImageError, RecipeError

__all__ = ["CLASSICAL", "Image", "Method", "Microscope", "classical_method", "model_method", "open_model"]

Image = NDArray[np.generic]

CLASSICAL = ("bicubic", "wiener", "richardson_lucy")
"""Names that :func:`classical_method` knows; for phase retrieval see :mod:`sfumato.evaluation.phase_methods`."""


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
class Microscope:
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


def open_model(text: str, *, device: str = "cpu") -> tuple[str, LoadedModel]:
    """Load ``path`` or ``name=path``; the default name is the recipe's, or the run folder's if it has none."""
    name, _, path = ("", "", text) if Path(text).exists() else text.rpartition("=")
    model = load(path, device=device)
    told = model.info.recipe.name
    return name or (told if told != "run" else Path(path).resolve().parent.name), model


def model_method(
    name: str, model: LoadedModel, *, num_samples: int = 16, num_steps: int | None = None, seed: int = 0
) -> Method:
    """The mean of a model's samples; a regression runs once."""

    def run(measured: Image, image: int) -> NDArray[np.float32]:
        draws: dict[str, Any] = {"num_samples": num_samples, "num_steps": num_steps, "seed": seed, "image": image}
        return restore(measured, model, **draws, on_target_grid=True).mean

    drawn = sampled_by(model, num_samples, num_steps)
    about = f"mean of {num_samples} samples, {drawn.num_steps} steps, solver {drawn.solver}, seed {seed}"
    if not model.model.draws_samples:
        about = "regression, one pass"
    relative = model.info.recipe.data.scales_each_image
    return Method(name, run, f"{about}, model {model.sha256[:12]}", relative, model.info.seen)


def classical_method(name: str, microscope: Microscope | None = None) -> Method:
    """One of ``CLASSICAL``; each channel is restored separately.

    ``bicubic`` is the measured image on the target grid, interpolated by the reader if it was smaller; the other two
    start from that image.

    Raises:
        RecipeError: If the method is unknown, or needs a microscope and none is given.
    """
    if name not in CLASSICAL:
        raise RecipeError(f"no baseline is called {name!r}; choose one of {', '.join((*CLASSICAL, *SOLVERS))}")
    if name == "bicubic":
        return Method(name, lambda measured, _: np.asarray(measured, np.float32), "the input on the target's grid")
    if microscope is None:
        raise RecipeError(
            f"{name} needs the microscope's blur; give the pixel size, the numerical aperture and the wavelength"
        )
    optics: dict[str, Any] = {
        "cutoff": cutoff_frequency(microscope.numerical_aperture, microscope.wavelength_um),
        "pixel_um": microscope.pixel_um,
    }

    def run(measured: Image, _: int) -> NDArray[np.float32]:
        light = torch.from_numpy(np.asarray(measured, np.float32)) - microscope.offset
        try:
            if name == "wiener":
                return wiener(light, noise_to_signal=microscope.noise_to_signal, **optics).numpy()
            return richardson_lucy(light, num_iterations=microscope.num_iterations, **optics).numpy()
        except ValueError as error:
            raise ImageError(f"{name} cannot run: {error}") from error

    effort = (
        f"noise to signal {microscope.noise_to_signal:g}"
        if name == "wiener"
        else f"{microscope.num_iterations} iterations"
    )
    blur = f"cut-off {optics['cutoff']:.3g}/um, pixel {microscope.pixel_um:g} um, offset {microscope.offset:g}"
    return Method(name, run, f"{effort}, {blur}")
