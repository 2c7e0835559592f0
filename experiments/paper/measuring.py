"""What a cell scores on each test image, kept image by image so that a measurement that was stopped goes on."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from paper.matrix import CVDM_0_1, EFFORTS, LEVELS, OWN, POWERS, PROBLEMS, TRIAL_IMAGES, Cell, Draw, Problem
from paper.sources import TestImage, held_out_images, recipe_for
from paper.stored import Places, Row, label, sets_of
from sfumato.data.intensity import image_range, scale_to
from sfumato.diffusion.gaussian import diffuse
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.evaluation.compared_methods import Deconvolution, Method, TwoShots, classical_method, phase_method
from sfumato.figures.schedule_and_samples import otsu
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, load
from sfumato.models.recipe import Recipe
from sfumato.physics.optics import SIM_EXTENSION, blur
from sfumato.problems.microscopy_simulation import Microscope as Simulated
from sfumato.problems.phase_settings import PhaseSettings
from sfumato.problems.request import parameters
from sfumato.restoration.conditions import condition_of
from sfumato.restoration.restorer import Restorer
from sfumato.statistics import metrics
from sfumato.statistics.rank_histogram import central_interval
from sfumato.statistics.resolution import decorrelation
from sfumato.statistics.scores import crps, spread_and_error
from sfumato.statistics.significance import rank_correlation

__all__ = [
    "central",
    "classical",
    "comparable",
    "draws_of",
    "effort_of",
    "in_units",
    "measure",
    "score_draws",
    "score_estimate",
]

BATCH = 4
"""Draws that go through the network together; more of them are no faster on a CPU."""
BLOCK = 64
"""Side of the training patches, in whose multiples other sizes are measured."""
RULES = 4
"""Of measuring; what was measured by others is measured again, from the draws that were kept."""

Array = NDArray[Any]
Values = dict[str, float]


def measure(cell: Cell, places: Places) -> Iterator[Row]:
    """Rows of a cell; those of images that were measured before come from its folder."""
    if cell.problem == "real_phase":
        found = _real_phases(cell, places)
    elif cell.kind == "timing":
        found = _timing(cell, places)
    elif cell.kind == "sizes":
        found = _sizes(cell, places)
    elif cell.kind == "levels":
        found = _levels(cell, places)
    else:
        found = _images(cell, places)
    for method, test_set, image, values in found:
        for metric, value in values.items():
            yield Row(cell.problem, method, cell.seed, test_set, image, metric, value)


_Found = Iterator[tuple[str, str, str, Values]]


def _images(cell: Cell, places: Places) -> _Found:
    recipe, problem = recipe_for(cell, places), PROBLEMS[cell.problem]
    model = None if cell.kind == "classical" else load(places.model_file(cell))
    kept = Kept(places, cell, model)
    efforts = {} if model else {name: effort_of(cell, name, recipe, places) for name in sets_of(cell, OWN)}
    for draw in cell.draws:
        for test_set in sets_of(cell, draw):
            number = places.num_images(cell, test_set, draw)
            for place, image in enumerate(held_out_images(cell.problem, test_set, number, recipe, places)):
                key = [label(cell, draw), test_set, image.name]

                def work(
                    image: TestImage = image, draw: Draw = draw, place: int = place, key: list[str] = key
                ) -> Values:
                    if model is None:
                        return _classical(cell.method, efforts[key[1]], recipe, problem, image, places.side(cell))
                    drawing = Drawing(model, draw, places.num_samples(cell), places.side(cell))
                    file = places.work / cell.name / "draws" / f"{'-'.join(key).replace('/', '-')}.npz"
                    return _restored(drawing, problem, image, place, file)

                yield label(cell, draw), test_set, image.name, kept.get(key, work)


@dataclass(frozen=True)
class Drawing:
    """How images are restored, the same for all of a set."""

    model: LoadedModel
    draw: Draw
    num_samples: int
    side: int

    def of(self, image: TestImage, place: int, file: Path) -> tuple[Tensor, Tensor, float]:
        """Condition (1, K, H, W), draws (N, C, H, W) and the seconds that one took; from the file if they are its."""
        measured = central(image.condition, self.side)
        condition = condition_of(measured, self.model, on_target_grid=True).condition()
        told = [self.model.sha256, image.name, place, dataclasses.asdict(self.draw), self.num_samples, self.side]
        fingerprint = hashlib.sha256(json.dumps(told).encode() + measured.tobytes()).hexdigest()
        if file.exists():
            with np.load(file) as kept:
                if str(kept["of"]) == fingerprint:
                    return condition, torch.from_numpy(kept["draws"]).double(), float(kept["seconds"])
        started = time.process_time()
        draws = draws_of(self.model, condition, place, self.draw, self.num_samples).float()
        seconds = (time.process_time() - started) / len(draws)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        with part.open("wb") as writer:
            np.savez(writer, of=fingerprint, draws=draws.numpy(), seconds=seconds)
        part.replace(file)
        return condition, draws.double(), seconds


class Kept:
    """Values of images that were measured before, in a file of JSON lines; one cut off by a kill is measured again.

    The first line says which model and settings they are of; others' values are thrown away.
    """

    def __init__(self, places: Places, cell: Cell, model: LoadedModel | None) -> None:
        self.path = places.work / cell.name / "measured.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draws = [dataclasses.asdict(draw) for draw in cell.draws]
        told = [RULES, model.sha256 if model else "", places.num_samples(cell), places.side(cell), draws]
        head = {"of": hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]}
        lines = list(_lines(self.path))
        self.values: dict[tuple[str, ...], Values] = {}
        if lines[:1] == [head]:
            self.values = {tuple(line["key"]): line["values"] for line in lines[1:]}
        with self.path.open("w", encoding="utf-8") as file:
            for line in (head, *({"key": key, "values": values} for key, values in self.values.items())):
                file.write(json.dumps(line) + "\n")

    def get(self, key: list[str], work: Callable[[], Values]) -> Values:
        """The values of one image, measured now if they are not known."""
        if tuple(key) not in self.values:
            values = {name: float(f"{value:.5g}") for name, value in work().items()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "values": values}) + "\n")
            self.values[tuple(key)] = values
            print(f"measured: {', '.join(key)}", flush=True)
        return self.values[tuple(key)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                return


def central(image: Array, side: int) -> Array:
    """The square in the middle of (C, H, W), or all of it if it is smaller."""
    corners = [max(0, (length - side) // 2) for length in image.shape[1:]]
    return image[:, corners[0] : corners[0] + side, corners[1] : corners[1] + side]


def classical(method: str, recipe: Recipe, effort: float | None = None) -> Method:
    """A method that computes, by its name; with one of its ``EFFORTS``, or as the package has it."""
    if method == "gaussian":
        return Method(method, lambda noisy, _: _smoothed(noisy, effort or 1.0), "blurred, to average noise")
    if recipe.problem == "phase":
        settings = parameters(PhaseSettings, recipe.forward)
        shots = TwoShots(settings.pixel_um, settings.wavelength_um, settings.defocus_um, settings.planes)
        return phase_method(method, shots if effort is None else dataclasses.replace(shots, reg=effort))
    scope = Simulated()
    optics = Deconvolution(
        scope.pixel_um / 2, scope.numerical_aperture, scope.wavelength_um, offset=float(scope.camera.offset)
    )
    if effort is not None:
        optics = dataclasses.replace(optics, noise_to_signal=effort, num_iterations=round(effort))
    found = classical_method(method, optics)
    if method == "bicubic":
        return found

    def as_sharp_as_the_target(measured: Array, number: int) -> NDArray[np.float32]:
        sharp = torch.from_numpy(found.run(measured, number))
        return blur(sharp, cutoff=SIM_EXTENSION * scope.cutoff, pixel_um=optics.pixel_um).numpy()

    return Method(found.name, as_sharp_as_the_target, f"{found.about}, blurred as the targets are")


def _smoothed(image: Array, sigma: float) -> NDArray[np.float32]:
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(np.asarray(image, np.float32), (0, sigma, sigma), mode="reflect"))


def effort_of(cell: Cell, test_set: str, recipe: Recipe, places: Places) -> float | None:
    """The effort of least MAE on images that are kept from testing."""
    if cell.method not in EFFORTS:
        return None
    problem, side = PROBLEMS[cell.problem], places.side(cell)
    images = held_out_images(cell.problem, test_set, TRIAL_IMAGES, recipe, places, kept_from_testing=True)
    errors = {
        effort: np.mean([_classical(cell.method, effort, recipe, problem, image, side)["MAE"] for image in images])
        for effort in EFFORTS[cell.method]
    }
    return min(errors, key=errors.__getitem__)


def _classical(
    method: str, effort: float | None, recipe: Recipe, problem: Problem, image: TestImage, side: int
) -> Values:
    """Of a method that sees the whole image, which spares it false borders, and is measured on its middle."""
    truth = in_units(central(image.truth, side), recipe)
    if method == "truth":
        scored = score_estimate(truth, truth, problem)
        return {name: scored[name] for name in ("resolution", *POWERS)}
    started = time.process_time()
    estimate = classical(method, recipe, effort).run(image.condition, 0)
    seconds = time.process_time() - started
    values = score_estimate(central(estimate, side), truth, problem)
    if problem.affine:
        del values["MAE raw"]  # in the camera's units, not in the model's
    if method == "bicubic":
        values.pop("resolution", None)  # interpolated noise looks like detail
    return {**values, **({} if effort is None else {"effort": effort}), "seconds": seconds}


def in_units(truth: Array, recipe: Recipe) -> Array:
    """Truth as models give it, but from 0 to 1 where each image is scaled by itself."""
    if recipe.data.normalize != "image":
        return np.asarray(truth, np.float64)
    return (np.asarray(scale_to(truth, image_range(truth, recipe.data.quantiles)), np.float64) + 1) / 2


def _restored(drawing: Drawing, problem: Problem, image: TestImage, place: int, file: Path) -> Values:
    """Of a model on the middle of an image."""
    model = drawing.model
    truth = in_units(central(image.truth, drawing.side), model.info.recipe)
    condition, draws, seconds = drawing.of(image, place, file)
    if len(draws) == 1:
        return {**score_estimate(draws[0].numpy(), truth, problem), "seconds": seconds}
    scored = score_draws(draws, torch.from_numpy(np.ascontiguousarray(truth)), problem)
    with torch.no_grad():
        schedule = model.model.schedule(condition)
        scored |= _schedule_values(schedule, _centred(draws, problem).std(0).numpy(), truth)
    return {**scored, "seconds": seconds}


def draws_of(model: LoadedModel, condition: Tensor, place: int, draw: Draw, num_samples: int) -> Tensor:
    """(N, C, H, W) of float64 in the units of :func:`in_units`; a regression gives one."""
    recipe = model.info.recipe
    with _precision(recipe):
        parts = list(_parts(model, condition, place, draw, num_samples))
    found = model.info.target.invert(torch.cat(parts), axis=1).double()
    return (found + 1) / 2 if recipe.data.scales_each_image else found


def _precision(recipe: Recipe) -> torch.autocast:
    """A model is sampled, and timed, in the precision that it is trained in."""
    return torch.autocast("cpu", torch.bfloat16, enabled=recipe.train.precision == "bfloat16")


def _parts(model: LoadedModel, condition: Tensor, place: int, draw: Draw, num_samples: int) -> Iterator[Tensor]:
    """Draws as the network gives them, a few at a time, each (n, C, H, W)."""
    settings = model.info.recipe.sample
    chosen = draw if draw.name else settings
    if not model.model.draws_samples:
        yield from Restorer.of(model).draws(condition, NoiseField(0))
    else:
        for first in range(0, num_samples, BATCH):
            yield sample(
                model.model,
                condition,
                num_samples=min(BATCH, num_samples - first),
                num_steps=draw.steps or settings.steps,
                solver=chosen.solver,
                eta=chosen.eta,
                last_noise=chosen.last_noise,
                grid=chosen.grid,
                seed=NoiseField(0, image=place, sample=first),
            )[:, 0]


def score_estimate(estimate: Array, truth: Array, problem: Problem) -> Values:
    """Metrics of one image against its truth, both (C, H, W).

    Example:
        >>> problem = PROBLEMS["qpi"]
        >>> truth = np.arange(64.0).reshape(1, 8, 8)
        >>> score_estimate(truth + 2, truth, problem)["MAE"], score_estimate(truth + 2, truth, problem)["MAE raw"]
        (0.0, 2.0)
    """
    raw = float(np.abs(np.asarray(estimate, np.float64) - truth).mean())
    return {"MAE raw": raw, **_scores(*comparable(estimate, truth, problem), problem)}


def _scores(made: Tensor, against: Tensor, problem: Problem) -> Values:
    """Of what :func:`comparable` gave."""
    values = {
        "MAE": float(metrics.mae(made, against)),
        "NRMSE": _or_nan(lambda: float(metrics.nrmse(made, against))),
        "PSNR": _or_nan(lambda: float(metrics.psnr(made, against))),
        "MS-SSIM": _or_nan(lambda: float(metrics.ms_ssim(made, against))),
    }
    if problem.unit == "of white":
        values["PSNR"] = float(metrics.psnr(made, against, data_range=1.0))
        values["SSIM"] = _or_nan(lambda: float(metrics.ssim(made, against, data_range=1.0)))
    if problem.pixel_um is not None:
        values |= _sharpness(made[0, 0], against[0, 0], problem.pixel_um)
    return values


def comparable(estimate: Array, truth: Array, problem: Problem) -> tuple[Tensor, Tensor]:
    """As (1, C, H, W), with what no method can know taken from the truth: a phase's mean, brightness and offset."""
    made, against = (torch.from_numpy(np.array(image, np.float64))[None] for image in (estimate, truth))
    if problem.remove_mean:
        made, against = metrics.without_offset(made, against)
    return (metrics.affine_fit(made, against) if problem.affine else made), against


def _single(draw: Tensor, mean: Tensor, truth: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """A draw beside the truth as :func:`comparable` does, but with the fit of the mean of draws.

    Its own fit would take even a perfect draw, which is not the truth but another possible one, for too bright.
    """
    if not problem.affine:
        return comparable(draw.numpy(), truth.numpy(), problem)
    fitted, against = comparable(mean.numpy(), truth.numpy(), problem)
    slope = fitted.std() / mean.std()
    return (fitted.mean() + slope * (draw - mean.mean()))[None], against


def score_draws(draws: Tensor, truth: Tensor, problem: Problem) -> Values:
    """Metrics of the mean of draws (N, C, H, W) against the truth (C, H, W), of one draw, and of all as a posterior."""
    mean = draws.mean(0)
    values = score_estimate(mean.numpy(), truth.numpy(), problem)
    single = _scores(*_single(draws[0], mean, truth, problem), problem)
    values |= {f"{name} single": single[name] for name in ("MAE", "resolution", *POWERS) if name in single}
    values["CRPS raw"] = float(crps(draws[:, None], truth[None]))
    centred, sought = _centred(draws, problem), _centred(truth, problem)
    values["CRPS"] = float(crps(centred[:, None], sought[None]))
    i, j = central_interval(len(draws), 0.9)
    for name, drawn, true in (("coverage 90", centred, sought), ("coverage 90 raw", draws, truth)):
        ordered = drawn.sort(0).values
        values[name] = float(((true >= ordered[i - 1]) & (true <= ordered[j - 1])).double().mean())
    spread, error = spread_and_error(centred[:, None], sought[None])
    values["spread / error"] = float((spread / error).sqrt())
    values["std-error"] = rank_correlation(centred.std(0).numpy(), (centred.mean(0) - sought).abs().numpy())
    return values


def _centred(images: Tensor, problem: Problem) -> Tensor:
    """Without the mean of each image, where it does not count."""
    return images - images.mean((-2, -1), keepdim=True) if problem.remove_mean else images


def _schedule_values(schedule: Schedule, std: Array, truth: Array) -> Values:
    """How the schedule of an image lies: against the draws' spread, on structure, and over time."""
    t = torch.linspace(0, 1, 101)
    gamma = np.array([float(schedule.gamma(time).mean()) for time in t])
    values = {"gamma width": float(((gamma > 0.05) & (gamma < 0.95)).mean()), "gamma end": float(gamma[-1])}
    beta = integral_of_beta(schedule)[0].cpu().numpy()
    if beta.shape == truth.shape and np.ptp(beta) > 0:
        values["std-beta"] = rank_correlation(std, beta)
        mask = truth > otsu(truth)
        values["beta structure / background"] = float(beta[mask].mean() / beta[~mask].mean())
    return values


def _sharpness(image: Tensor, truth: Tensor, pixel_um: float) -> Values:
    """Resolution in nm, and power in bands up to the cut-off, in units of the truth's power in all of them."""
    nyquist = 0.5 / pixel_um
    highest = min(1.0, SIM_EXTENSION * Simulated().cutoff / nyquist)
    power = _power(image, highest) / _power(truth, highest).sum()
    return {
        "resolution": _or_nan(lambda: 1000 * decorrelation(image, pixel_um=pixel_um).resolution_um),
        **dict(zip(POWERS, power.tolist(), strict=True)),
    }


def _power(image: Tensor, highest: float) -> Array:
    """Power in rings of equal width up to a fraction of the Nyquist frequency."""
    window = torch.hann_window(image.shape[0], periodic=False).double()[:, None] * torch.hann_window(
        image.shape[1], periodic=False
    )
    power = torch.fft.fft2((image - image.mean()) * window).abs().square()
    radius = torch.hypot(*torch.meshgrid(*(2 * torch.fft.fftfreq(n) for n in image.shape), indexing="ij"))
    band = (radius / highest * len(POWERS)).long()
    return np.array([float(power[band == number].sum()) for number in range(len(POWERS))])


def _or_nan(work: Callable[[], float]) -> float:
    try:
        return work()
    except ValueError:  # an image too small or too flat for the metric
        return math.nan


LAYOUTS = {
    "1x": (BLOCK, BLOCK),
    "2x": (2 * BLOCK, 2 * BLOCK),
    "4x": (4 * BLOCK, 4 * BLOCK),
    "1x by 4x": (BLOCK, 4 * BLOCK),
}


def _sizes(cell: Cell, places: Places) -> _Found:
    """Error when the same pixels are restored in pieces of different sizes; means are removed in blocks of 64."""
    recipe, model = recipe_for(cell, places), load(places.model_file(cell))
    kept = Kept(places, cell, model)
    number = places.num_images(cell, "noise-free", OWN)
    images = held_out_images(cell.problem, "noise-free", number, recipe, places, is_mirrored=True)  # 4 x 64 pixels
    for place, image in enumerate(images):

        def work(image: TestImage = image, place: int = place) -> Values:
            found = {}
            for name, size in LAYOUTS.items():
                estimate = _in_pieces(model, image.condition, size, place, places.num_samples(cell))
                error = estimate - np.asarray(image.truth, np.float64)
                found[f"MAE {name}"] = _blockwise(error)
                found[f"MAE raw {name}"] = float(np.abs(error).mean())
            return found

        yield cell.method, "sizes", image.name, kept.get(["sizes", image.name], work)


def _in_pieces(model: LoadedModel, condition: Array, size: tuple[int, int], place: int, num_samples: int) -> Array:
    estimate = np.empty((model.info.target_channels, *condition.shape[1:]))
    for top in range(0, condition.shape[1], size[0]):
        for left in range(0, condition.shape[2], size[1]):
            cut = np.s_[:, top : top + size[0], left : left + size[1]]
            part = condition_of(np.ascontiguousarray(condition[cut]), model, on_target_grid=True).condition()
            estimate[cut] = draws_of(model, part, place, OWN, num_samples).mean(0).numpy()
    return estimate


def _blockwise(error: Array) -> float:
    """Mean absolute error once the mean of each block of 64 pixels is removed."""
    blocks = [
        error[:, top : top + BLOCK, left : left + BLOCK]
        for top in range(0, error.shape[1], BLOCK)
        for left in range(0, error.shape[2], BLOCK)
    ]
    return float(np.mean([np.abs(block - block.mean()).mean() for block in blocks]))


def _levels(cell: Cell, places: Places) -> _Found:
    """What share of the power of what is diffused the network does not know, by how much noise is on it."""
    recipe, model = recipe_for(cell, places), load(places.model_file(cell))
    kept, test_set, side = Kept(places, cell, model), sets_of(cell, OWN)[0], places.side(cell)
    number = places.num_images(cell, test_set, OWN)
    for place, image in enumerate(held_out_images(cell.problem, test_set, number, recipe, places)):

        def work(image: TestImage = image, place: int = place) -> Values:
            condition = condition_of(central(image.condition, side), model, on_target_grid=True).condition()
            target = as_seen(central(image.truth, side), model)
            with torch.no_grad(), _precision(recipe):
                return unknown_share(model.model, condition, target, seed=place)

        yield cell.method, "levels", image.name, kept.get(["levels", image.name], work)


def as_seen(truth: Array, model: LoadedModel) -> Tensor:
    """A truth (C, H, W) as the network is trained on it, shape (1, C, H, W)."""
    seen = in_units(truth, model.info.recipe)
    if model.info.recipe.data.scales_each_image:
        seen = 2 * seen - 1
    return model.info.target.apply(torch.from_numpy(np.ascontiguousarray(seen)).float(), axis=0)[None]


def unknown_share(model: CVDM, condition: Tensor, target: Tensor, *, seed: int) -> Values:
    """Mean square error of the clean image over the mean square of what is diffused, at each of ``LEVELS``."""
    known = model.read(condition)
    diffused = known.diffused(target)
    eps = NoiseField(0, image=seed)(0, torch.Size([1, *diffused.shape]))[0]
    found = {}
    for level in LEVELS:
        log_gamma = -F.softplus(torch.tensor(-float(level))).reshape([1] * diffused.ndim)
        clean = model.predict(diffuse(diffused, eps, log_gamma), log_gamma, known.seen)
        found[f"unknown {level:+d}"] = float((clean - diffused).square().mean() / diffused.square().mean())
    return found


def _timing(cell: Cell, places: Places) -> _Found:
    """Seconds of a draw, of what is compared in turn; weights do not matter for that.

    CVDM and CDDPM at equal steps, then the default solver with 32 calls and the paper's way with 500.
    """
    kind = recipe_for(cell, places).model
    kinds = {"cvdm": kind, "cddpm": kind.model_copy(update={"schedule": "linear_qpi"})}
    models = {name: build_model(each, 2, 1) for name, each in kinds.items()}
    side = places.side(cell)
    condition = torch.zeros(1, 2, side, side)

    def draw(model: CVDM, number: int, how: Draw) -> Callable[[int], object]:
        return lambda seed: sample(
            model,
            condition,
            num_samples=number,
            num_steps=how.steps,
            solver=how.solver,
            eta=how.eta,
            seed=seed,
            grid=how.grid,
        )

    equal = _best_in_turn({name: draw(model, BATCH, Draw(steps=16)) for name, model in models.items()}, 5)
    cvdm, cddpm = equal["cvdm"] / BATCH, equal["cddpm"] / BATCH
    yield CVDM_0_1, "timing", "best of 5", {"seconds": cvdm, "ratio to cddpm": cvdm / cddpm}
    yield "cddpm", "timing", "best of 5", {"seconds": cddpm}
    ways = (Draw(steps=32), Draw("ancestral", "first_order", 1.0, 500, "uniform"))
    few, many = _best_in_turn({how.name: draw(models["cvdm"], 1, how) for how in ways}, 3).values()
    yield CVDM_0_1, "timing", "best of 3", {"500 steps over 32": many / few}


def _best_in_turn(works: dict[str, Callable[[int], object]], repeats: int) -> dict[str, float]:
    """Least seconds of each: a busy machine can only add to them."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            work(repeat)
            seconds[name].append(time.perf_counter() - started)
    return {name: min(values) for name, values in seconds.items()}


def _real_phases(cell: Cell, places: Places) -> _Found:
    """How well the phases of real specimens explain the defocused images, and agree with the transport equation."""
    import phase_zero_shot
    from real_phases import forward_error

    for field in phase_zero_shot.fields():
        _, reference = phase_zero_shot.best_tie(field)
        if cell.kind == "classical":
            mean = torch.zeros_like(reference) if cell.method == "flat" else reference
        else:
            mean, _ = phase_zero_shot.estimated(places.work / cell.run, field)
        values = {}
        if cell.method != "flat":
            values["correlation with TIE"], values["NRMSE against TIE"] = phase_zero_shot.agreement(mean, reference)
        values["forward error"] = forward_error(field, mean, field.defocus_um, field.defocused)
        for distance, measured in field.unseen:
            values[f"forward error at {distance:+g} um"] = forward_error(field, mean, distance, measured)
        yield cell.method, "specimens", field.name, values


def seconds_of(cell: Cell, places: Places) -> tuple[float, float]:
    """Processor seconds of a training step and of a network call on one test image, from a few of each."""
    recipe, problem = recipe_for(cell, places), PROBLEMS[cell.problem]
    channels = {"phase": (2, 1), "natural": (3, 3)}.get(recipe.problem, (1, 1))
    model = build_model(recipe.model, *channels)
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(0)
    shape = (recipe.train.batch_size, recipe.data.patch, recipe.data.patch)
    condition = torch.randn(shape[0], channels[0], *shape[1:], generator=generator)
    target, eps = torch.randn(2, shape[0], channels[1], *shape[1:], generator=generator)
    steps, calls = [], []
    for _ in range(4):
        started = time.process_time()
        optimizer.zero_grad()
        with _precision(recipe):
            loss = model.loss(condition, target, t=torch.rand(len(eps), generator=generator), eps=eps).total
        loss.backward()
        optimizer.step()
        steps.append(time.process_time() - started)
    image = torch.randn(1, channels[0], problem.crop, problem.crop, generator=generator)
    for _ in range(2):
        started = time.process_time()
        if not model.draws_samples:
            model.center(image)
            calls.append(0.0)
        else:
            with _precision(recipe):
                sample(model, image, num_samples=BATCH, num_steps=2, seed=0)
            calls.append((time.process_time() - started) / BATCH / 2)
    return min(steps), min(calls)
