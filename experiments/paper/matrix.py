"""All that is compared, as data: problems with their test images, and cells (problem, method, seed) with their recipes.

Diffusion methods of a problem share noise network, steps, batches and their order; they differ in what their settings
name and in nothing else (tests/experiments/test_paper_small.py holds them to it).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "CELLS",
    "CHANNEL",
    "CVDM_0_1",
    "DEFAULT",
    "EFFORTS",
    "HALF_PRECISION",
    "LEVELS",
    "POWERS",
    "PROBLEMS",
    "SAMPLES",
    "SIMULATION",
    "SOLVERS",
    "STUDIES",
    "Cell",
    "Draw",
    "Problem",
    "cell_named",
    "trials",
]

CVDM_0_1 = "cvdm_0_1"
"""The method with version 0.1's defaults, of which all else is one change; today's is in experiments/per_minute.py."""
SAMPLES = 32
"""Draws whose mean is an estimate."""
TRIAL_SAMPLES, TRIAL_IMAGES, TRIAL_CROP, TRIAL_SHARE = 8, 8, 128, 4
"""A trial of the tuning trains a quarter of the steps and is judged on so many validation images."""
ANCESTRAL_STEPS = 200
"""Of CDDPM as the paper sets it. The paper takes 400; half of them is what two cores can afford."""
ANCESTRAL_IMAGES = 8
HALF_PRECISION = "train.precision=bfloat16"
"""Of most trials of the tuning, which were run on a processor with matrix units; all else is in float32."""
SIMULATION = {"seed": 7, "side": 128, "cells": {"train": 12, "validation": 2, "test": 6}, "levels": (2, 5, 8)}
"""Of the simulated microscope: fields per structure, and the levels of light at which test fields are measured."""


@dataclass(frozen=True)
class Problem:
    """What is restored, and on which images it is measured.

    Attributes:
        title: For the page.
        recipe: Stem of the recipe in experiments/recipes/small_0_1.
        data: Folder of the training images within SFUMATO_DATA; empty for simulated ones.
        sets: Test sets with their number of images.
        crop: Side of the central square of each image that is restored and measured.
        unit: Of MAE and CRPS.
        remove_mean: Whether each image's mean is removed, which for a phase no method can know.
        affine: Whether estimates are fitted to the truth's scale, for intensities that are not absolute.
        pixel_um: Of the targets, where resolution is measured.
        field: Pattern of the part of an image's name that tells its field, where one field gives several images, which
            then count as one.
        groups: Whether the first part of an image's name is a structure, which gets a table of its own.
        settings: Of all its cells.
    """

    title: str
    recipe: str
    data: str
    sets: Mapping[str, int]
    crop: int = 176
    unit: str = "of the range"
    remove_mean: bool = False
    affine: bool = False
    pixel_um: float | None = None
    field: str = ""
    groups: bool = False
    settings: tuple[str, ...] = ()


PROBLEMS: Mapping[str, Problem] = {
    "qpi": Problem(
        "Phase from two defocused images",
        "qpi",
        "natural_imagenet100",
        {"noise-free": 16, "noisy": 8},
        unit="rad",
        remove_mean=True,
    ),
    "microscopy": Problem(
        "Widefield to SIM, simulated",
        "biosr",
        "",
        {"fields": 24},
        affine=True,
        pixel_um=0.0313,
        groups=True,
    ),
    "w2s": Problem(
        "One exposure to the mean of 400 (W2S)",
        "w2s",
        "fluor_denoise_w2s",
        {"test": 12},
        unit="grey levels",
        affine=True,
        field=r"\d+(?=_\d)",
        settings=("train.steps=3000",),
    ),
    "natural_x4": Problem(
        "Photographs, super-resolution x4", "imagenet_x4", "natural_imagenet100", {"kodak": 8}, unit="of white"
    ),
    "tsim_er": Problem(
        "Endoplasmic reticulum, widefield to SIM (T-SIM)",
        "tsim_er",
        "fluor_sim_pairs/tsim_er",
        {"er3": 3},
        affine=True,
        field=r"er\d",
    ),
    "real_phase": Problem(
        "Phases of real specimens, zero-shot",
        "qpi_in_focus",
        "natural_imagenet100",
        {"specimens": 3},
        unit="rad",
    ),
}


@dataclass(frozen=True)
class Draw:
    """How a trained model is sampled.

    Attributes:
        name: Goes behind the method's name, after a colon; the draw by the recipe's own settings has none.
        steps: Network calls; 0 for the recipe's.
        last_noise: At the last of them, on the grid of log-SNR.
        most: Only so many images of each set.
    """

    name: str = ""
    solver: Literal["2m", "first_order", "algorithm2"] = "2m"
    eta: float = 0.0
    steps: int = 0
    grid: Literal["log_snr", "uniform"] = "log_snr"
    sets: tuple[str, ...] = ()
    most: int = 99
    last_noise: float = 1e-6


OWN = Draw()
ANCESTRAL = Draw(
    "ancestral", "first_order", 1.0, ANCESTRAL_STEPS, "uniform", sets=("noise-free",), most=ANCESTRAL_IMAGES
)
SOLVERS: Mapping[str, tuple[Draw, ...]] = {
    "16_steps": (
        Draw("2m 16", steps=16, most=8),
        Draw("ddim 16", "first_order", steps=16, most=8),
        Draw("ancestral 16", "first_order", 1.0, 16, "uniform", most=8),
    ),
    "32_steps": (
        Draw("ddim 32", "first_order", steps=32, most=8),
        Draw("ancestral 32", "first_order", 1.0, 32, "uniform", most=8),
        Draw("algorithm 2, 32", "algorithm2", steps=32, grid="uniform", most=8),
    ),
    "with_noise": (
        Draw("2m 16, noise", eta=1.0, steps=16, most=8),
        Draw("2m 32, noise", eta=1.0, steps=32, most=8),
    ),
    "last_noise": tuple(
        Draw(f"2m 16, last noise {last_noise:.0e}", steps=16, most=8, last_noise=last_noise)
        for last_noise in (1e-3, 1e-2, 3e-2)
    ),
    "500_steps": (
        Draw("2m 32", steps=32, most=8),
        Draw("ancestral 500", "first_order", 1.0, 500, "uniform", most=4),
    ),
    "500_steps_log_snr": (Draw("ancestral 500 log-SNR", "first_order", 1.0, 500, "log_snr", most=4),),
}
"""Of the claims on solvers, in parts that can be measured side by side; those of 500 steps take longest, on half of the
images. The two whose seconds are compared stand in one part, so that one process times them."""


STUDIES = ("solvers", "sizes", "levels")
"""Kinds of cells that measure the model of another one."""
POWERS = tuple(f"power {band}" for band in range(1, 9))
"""Of an image in eight bands of frequencies, from the slowest to the cut-off."""
LEVELS = range(-12, 9)
"""Logarithms of the SNR at which a network is asked for the clean image."""


@dataclass(frozen=True)
class Cell:
    """One training and what is measured of it.

    Attributes:
        problem: One of ``PROBLEMS``.
        method: For tables.
        seed: Of weights, data order and noise.
        tier: 1 or 2; 3 for attempts at better settings.
        settings: What differs from the problem's recipe, as for `sfumato train --set`.
        kind: ``model`` trains; ``tuned`` too, with the end points that the trials chose; ``trial`` is one of these;
            ``classical`` computes; ``solvers``, ``sizes`` and ``levels`` measure another cell's model; ``timing`` times
            networks.
        draws: How a model is sampled.
        sets: Test sets, all of the problem's if empty.
        part: Of what ``kind`` measures, where that is more than one cell.
        variant: Of :mod:`paper.variants`: what no setting of a recipe changes.
    """

    problem: str
    method: str
    seed: int = 0
    tier: int = 1
    settings: tuple[str, ...] = ()
    kind: Literal["model", "tuned", "trial", "classical", "solvers", "sizes", "levels", "timing"] = "model"
    draws: tuple[Draw, ...] = field(default=(OWN,))
    sets: tuple[str, ...] = ()
    part: str = ""
    variant: str = ""

    @property
    def name(self) -> str:
        """On the command line and as a folder."""
        extra = (self.kind, self.part) if self.kind in (*STUDIES, "timing") else ()
        return "/".join([self.run, *filter(None, extra)])

    @property
    def trains(self) -> bool:
        """Whether it has a run of its own."""
        return self.kind in ("model", "tuned", "trial")

    @property
    def run(self) -> str:
        """Folder of the run whose model is measured."""
        return f"{self.problem}/{self.method}/{self.seed}"


EFFORTS: Mapping[str, Sequence[float]] = {
    "us_tie": (1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
    "tie_uniform": (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4),
    "wiener": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
    "richardson_lucy": (10, 40, 160, 320, 640, 1280, 2560),
    "gaussian": (0.5, 0.75, 1, 1.25, 1.5, 2, 3),
}
"""Of classical methods: damping of slow structures, noise over signal, iterations, pixels of a blur. The one of least
MAE on images kept from testing is taken, by test set."""
COSINE = "model.schedule=cosine"
LINEAR = "model.schedule=linear_qpi"
UNSCALED = "model.scale=1.0"
"""Diffuse targets as they are, within -1 and 1, as the paper does. Phases then have half of unit size, too."""
CHANNEL = "model.norm=channel"
"""Of all cells but those that say another: the recipes' own when the first of them were trained."""
INSTANCE = "model.norm=instance"
"""Statistics over each image, as in the paper: the network forgets how strong an image is, and looks at all of it."""
POPULATION = "model.norm=population"
"""Statistics over the training set, which are constants in the second half of training."""
TRANSPORT = "forward.transport_dampings=[1.0e-8, 1.0e-5, 1.0e-7]"
"""Show networks solutions of the transport equation for the whole image, beside the intensities."""
FROM_TRANSPORT = (TRANSPORT, "model.residual=last")
"""And diffuse what the last of them leaves."""
REGRESSION = ("model.method=regression",)
_TRIALS = {
    "qpi": ("linear_qpi", (0.01, 0.02, 0.04, 0.08), (1e-2, 1e-4, 1e-6)),
    "microscopy": ("linear_biosr", (0.015, 0.03, 0.06), (1e-2, 1e-4, 1e-6)),
    "natural_x4": ("linear_biosr", (0.03,), (1e-2, 1e-4, 1e-6)),
}
"""Candidates of the tuning: the linear schedule with the paper's start and several ends, and the cosine with several
signal variances that it leaves; the last of each comes as close to zero signal as float32 has use for."""


def trials(problem: str) -> list[Cell]:
    """The short trainings that tune the fixed schedule of a problem."""
    if problem not in _TRIALS:
        return []
    linear, ends, gammas = _TRIALS[problem]
    tier, precision = (2, ()) if problem == "natural_x4" else (1, (HALF_PRECISION,))
    found = [
        Cell(
            problem,
            f"trial_linear_{end:g}",
            tier=tier,
            kind="trial",
            settings=(*precision, f"model.schedule={linear}", f"model.beta_ends=[1.0e-4, {end}]"),
            sets=("validation",),
        )
        for end in ends
    ]
    return found + [
        Cell(
            problem,
            f"trial_cosine_{gamma:.0e}",
            tier=tier,
            kind="trial",
            settings=(*precision, COSINE, f"model.gamma_end={gamma:f}"),
            sets=("validation",),
        )
        for gamma in gammas
    ]


ATTEMPT = "attempt_"
DEFAULT = f"{ATTEMPT}default"
_FIXED = (LINEAR, "model.beta_ends=[1.0e-4, 0.04]")
"""As the trials chose for phases."""
_ON_BOTH: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "rates_6_to_30": ("model.rate_ends=[6, 30]",),
    "velocity_loss": ("model.objective=velocity",),
    "noise_loss": ("model.objective=noise",),
    "instance": (INSTANCE,),
    "population": (POPULATION,),
}
_ATTEMPTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "qpi": {
        **_ON_BOTH,
        "rates_4_to_20": ("model.rate_ends=[4, 20]",),
        "rates_14_to_70": ("model.rate_ends=[14, 70]",),
        "smoothness_1e-3": ("model.smoothness_weight=1.0e-3",),
        "smoothness_1e-4": ("model.smoothness_weight=1.0e-4",),
        "schedule_faster": ("train.schedule_speed=10",),
        # The root mean square of what is diffused, as training measures it on the first patches; by default it is
        # divided by twice that, so that it has half of unit size.
        "unit_size": ("model.scale=0.525",),
        "noise": ("model.predicts=noise",),
        "patches_128": ("data.patch=128", "train.batch_size=2"),
        "fixed": _FIXED,
        "instance_fixed": (INSTANCE, *_FIXED),
    },
    "microscopy": {**_ON_BOTH, "global": ("model.schedule=global",)},
}
_DEFAULT_SEEDS = {"qpi": (0, 1), "microscopy": (0,)}
"""One shows that a second seed, which keeps other images for validation, does not compare; so there is no other."""
_VARIANTS: Mapping[str, tuple[str, ...]] = {"qpi": ("rates_shown", "schedule_from_bound", "times_logit_normal")}
"""Of :mod:`paper.variants`."""


def _attempts(problem: str) -> list[Cell]:
    """Short trainings, as those of the tuning, that show what a choice of ours is worth."""
    short: Mapping[str, Any] = {"tier": 3, "kind": "trial", "sets": ("validation",)}
    return [
        *(
            Cell(problem, f"{ATTEMPT}{name}", seed, settings=settings, **short)
            for name, settings in _ATTEMPTS[problem].items()
            for seed in (_DEFAULT_SEEDS[problem] if name == "default" else (0,))
        ),
        *(Cell(problem, f"{ATTEMPT}{name}", variant=name, **short) for name in _VARIANTS.get(problem, ())),
    ]


def _qpi(seed: int) -> Iterator[Cell]:
    """In the order in which they are wanted; the steps from the paper's CDDPM to the tuned one with one seed."""
    noise = "model.predicts=noise"
    yield Cell("qpi", CVDM_0_1, seed)
    yield Cell("qpi", "cddpm_paper", seed, settings=(LINEAR, UNSCALED, noise, INSTANCE), draws=(ANCESTRAL, OWN))
    if seed == 0:
        yield from trials("qpi")
    yield Cell("qpi", "cddpm_tuned", seed, kind="tuned")
    yield Cell("qpi", "regression", seed, settings=REGRESSION)
    yield Cell("qpi", "cvdm_simple", seed, settings=("model.schedule=global",))
    yield Cell("qpi", "cvdm_two_networks", seed, settings=("model.schedule=paper",))
    # Trials are short and few images judge them: what came second is trained to the end too.
    yield Cell("qpi", "cddpm_cosine", seed, settings=(COSINE, "model.gamma_end=0.000001"))
    if seed == 0:
        yield Cell("qpi", "cddpm_0.04_unscaled", settings=(LINEAR, "model.beta_ends=[1.0e-4, 0.04]", UNSCALED))
        yield Cell("qpi", "cddpm_velocity", settings=(LINEAR, UNSCALED))
        yield Cell("qpi", "cddpm_noise", settings=(LINEAR, UNSCALED, noise))


def _microscopy(seed: int) -> Iterator[Cell]:
    yield Cell("microscopy", CVDM_0_1, seed)
    if seed == 0:
        yield from trials("microscopy")
    yield Cell("microscopy", "cddpm_tuned", seed, kind="tuned")
    yield Cell("microscopy", "regression", seed, settings=REGRESSION)
    yield Cell("microscopy", "dfcan", seed, settings=(*REGRESSION, "model.network=dfcan"))


def _second_tier() -> Iterator[Cell]:
    yield Cell("qpi", "cvdm_transport", settings=FROM_TRANSPORT)
    yield Cell("qpi", "regression_transport", settings=(*REGRESSION, *FROM_TRANSPORT))
    yield Cell("qpi", "cvdm_no_smoothness", settings=("model.smoothness_weight=0",))
    # Rates of our schedule are bounded, so it cannot collapse altogether; the paper's own can.
    yield Cell("qpi", "cvdm_two_networks_no_smoothness", settings=("model.schedule=paper", "model.smoothness_weight=0"))
    yield Cell("qpi", "cvdm_exact_weight", settings=("model.objective=elbo",))
    yield Cell("qpi", "cvdm_zero_mean", settings=("model.mean_network=true",))
    yield from (Cell(problem, "cvdm_population", settings=(POPULATION,)) for problem in ("qpi", "microscopy"))
    # The normalisation that recipes have by now: does what is said of the others hold with it?
    yield Cell("qpi", "cvdm_population", 1, settings=(POPULATION,))
    yield from (Cell("qpi", "cddpm_tuned_population", seed, kind="tuned", settings=(POPULATION,)) for seed in (0, 1))
    # What attempts with lower rates promise, on validation images, beside that normalisation.
    for problem, seed in (("qpi", 0), ("qpi", 1), ("microscopy", 0)):
        yield Cell(problem, "cvdm_lower_rates", seed, settings=(POPULATION, "model.rate_ends=[6, 30]"))
    yield Cell("qpi", "cvdm_instance", settings=(INSTANCE,))
    yield Cell("microscopy", "cvdm_not_residual", settings=("model.residual=false",))
    yield Cell("w2s", CVDM_0_1)
    yield Cell("w2s", "cvdm_population", settings=(POPULATION,))
    yield Cell("w2s", "cddpm_cosine", settings=(COSINE,))
    yield from (Cell("w2s", name, kind="classical") for name in ("bicubic", "gaussian"))
    yield Cell("natural_x4", CVDM_0_1)
    yield from trials("natural_x4")
    yield Cell("natural_x4", "cddpm_tuned", kind="tuned")
    yield Cell("natural_x4", "bicubic", kind="classical")
    yield Cell("tsim_er", CVDM_0_1)
    yield Cell("tsim_er", "cddpm_cosine", settings=(COSINE,))
    yield Cell("tsim_er", "bicubic", kind="classical")
    yield Cell("real_phase", CVDM_0_1)
    yield Cell("real_phase", "cddpm_velocity", settings=(LINEAR,))
    yield from (Cell("real_phase", name, kind="classical") for name in ("best_tie", "flat"))


def _solvers(problem: str, tier: int, test_set: str) -> Iterator[Cell]:
    for part, draws in SOLVERS.items():
        yield Cell(problem, CVDM_0_1, tier=tier, kind="solvers", draws=draws, sets=(test_set,), part=part)


CELLS: Sequence[Cell] = (
    *(Cell("qpi", name, kind="classical") for name in ("us_tie", "tie_uniform")),
    *_qpi(0),
    Cell("qpi", CVDM_0_1, kind="sizes"),
    Cell("qpi", CVDM_0_1, kind="timing"),
    *(Cell("microscopy", name, kind="classical") for name in ("truth", "bicubic", "wiener", "richardson_lucy")),
    *_microscopy(0),
    *_qpi(1),
    *_microscopy(1),
    *_solvers("qpi", 1, "noise-free"),
    *(dataclasses.replace(cell, tier=2) for cell in _second_tier()),
    *_solvers("microscopy", 2, "fields"),
    *(cell for problem in _ATTEMPTS for cell in _attempts(problem)),
    *(Cell(problem, DEFAULT, tier=3, kind="levels") for problem in _ATTEMPTS),
)
"""In order of priority."""


def cell_named(name: str) -> Cell:
    """The cell of a name such as ``qpi/cvdm_0_1/0``."""
    for cell in CELLS:
        if cell.name == name:
            return cell
    raise SystemExit(f"there is no cell {name!r}; see --list")
