"""Who competes: recipes of the package, closed forms, classical methods, and peers by their own packages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sfumato.models.presets import Preset

__all__ = ["BUDGETS", "CONTENDERS", "PARTS", "PART_MINUTES", "REPEATED", "Contender"]

BUDGETS = (1.0, 4.0, 30.0)
"""Minutes of one core."""
REPEATED = (4.0, 30.0)
"""Those at which a contender with several seeds is trained with each of them."""

Kind = Literal["recipe", "filter", "classical", "flow", "care"]


@dataclass(frozen=True)
class Contender:
    """One way to restore.

    Attributes:
        about: What it is, in words.
        kind: How it is trained and run.
        settings: Of its recipe, on top of version 0.1's.
        of: Further settings of single problems.
        small: Further settings at budgets below half an hour.
        presets: Presets at budgets below half an hour and above it, instead of version 0.1's recipe.
        budgets: Minutes at which it competes; 0 for what is not trained.
        seeds: Trainings at each of those that are :data:`REPEATED`.
        problems: All three by default.
        calls: Network calls of a sample; 0 for its recipe's.
        images: Test images of each set that it restores; all where 16 samples of each cost less than its training.
    """

    about: str
    kind: Kind = "recipe"
    settings: tuple[str, ...] = ()
    of: Mapping[str, tuple[str, ...]] | None = None
    small: tuple[str, ...] = ()
    presets: tuple[Preset, Preset] | None = None
    budgets: tuple[float, ...] = BUDGETS
    seeds: int = 1
    problems: tuple[str, ...] = ("microscopy", "phase", "w2s")
    calls: int = 0
    images: int | None = None


PART_MINUTES = 4.0
"""Budget at which the default is compared with itself, one part left out."""
_FROZEN = {"microscopy": ("forward.draws=9",), "phase": ("forward.draws=1",)}
_SMALL_PATCHES = ("data.patch=64",)
_WHITE = ("model.coloured_noise=false", "train.scale_share=0")
_SIMULATED = ("microscopy", "phase")


def _without(about: str, *settings: str, seeds: int = 1) -> Contender:
    return Contender(about, settings=settings, presets=("small", "default"), budgets=(PART_MINUTES,), seeds=seeds)


PARTS: Mapping[str, Contender] = {
    "no_filter": _without("without the linear start", "model.linear_start=false"),
    "no_finish": _without("without the linear filter of the mean", "model.linear_finish=false"),
    "square_error": _without("the mean learns from the mean square error of all pixels", "model.mean_error=mse"),
    "white_noise": _without("with white noise", *_WHITE),
    "together": _without(
        "mean and rest learn together from the start",
        "train.mean_share=0",
        "model.linear_finish=false",
        *_WHITE,
    ),
    "one_scale": _without("one scale for all pixels", "model.scale_network=false", "sample.solver=2m", *_WHITE),
    "read_often": _without(
        "every network reads the condition itself, with one scale",
        "model.read_once=false",
        "model.scale_network=false",
        "sample.solver=2m",
        *_WHITE,
    ),
    "softplus": _without("the paper's activation", "model.activation=softplus"),
    "frozen": replace(_without("each image keeps its noise"), of=_FROZEN, problems=_SIMULATED),
    "cosine": _without("a fixed schedule, the same for all pixels", "model.schedule=cosine", seeds=2),
}
"""The default without one of its parts, or with what it replaced."""

_REGRESSION = ("model.method=regression", "model.mean_network=false", "model.scale=null")
CONTENDERS: Mapping[str, Contender] = {
    "default": Contender(
        "CVDM with today's presets: mean and scale first, read once",
        presets=("small", "default"),
        budgets=(0.33, *BUDGETS),
        seeds=3,
    ),
    "default_0_1": Contender("CVDM with the defaults of version 0.1", of={"phase": _SMALL_PATCHES}, budgets=(30.0,)),
    "default_0_1_frozen": Contender(
        "the same; each image keeps its noise",
        of={**_FROZEN, "phase": (*_FROZEN["phase"], *_SMALL_PATCHES)},
        budgets=(30.0,),
        problems=_SIMULATED,
    ),
    "regression": Contender(
        "the same U-Net, trained on the mean square error",
        settings=(*_REGRESSION, "train.learning_rate=0.002"),
        of={"w2s": ("model.residual=true", "model.base=16", "model.num_scales=5")},
        small=("model.base=8",),
        seeds=3,
    ),
    "filter": Contender("the best linear filter of 15 x 15 pixels, in closed form", kind="filter", budgets=(0.0,)),
    "measured": Contender("the measured image on the target's grid", kind="classical", budgets=(0.0,)),
    "gaussian": Contender("the measured image, blurred; width tuned", kind="classical", budgets=(0.0,)),
    "richardson_lucy": Contender(
        "Richardson-Lucy deconvolution with the true blur; iterations tuned",
        kind="classical",
        budgets=(0.0,),
        problems=("microscopy",),
    ),
    "us_tie": Contender(
        "solver of the transport-of-intensity equation; damping tuned",
        kind="classical",
        budgets=(0.0,),
        problems=("phase",),
    ),
    "dfcan": Contender(
        "DFCAN (Qiao et al. 2021), trained on the mean square error",
        settings=(*_REGRESSION, "model.network=dfcan", "model.residual=false"),
        budgets=(30.0,),
    ),
    "cddpm_paper": Contender(
        "diffusion with a fixed schedule as the paper sets it, patches of 64 pixels; 100 steps of its sampler",
        settings=(
            "model.norm=instance",
            "model.predicts=noise",
            "model.objective=noise",
            "model.scale=1.0",
            "model.mean_network=false",
            "model.residual=false",
            "sample.solver=first_order",
            "sample.eta=1.0",
            "sample.grid=uniform",
            "sample.steps=100",
        ),
        of={"phase": ("model.schedule=linear_qpi", *_SMALL_PATCHES)},
        budgets=(30.0,),
        problems=("phase",),
        images=6,
    ),
    **PARTS,
    "care": Contender("CARE by CAREamics 0.3.5, its defaults", kind="care", budgets=(4.0, 30.0)),
    "flow": Contender(
        "flow matching as ResMatching: linear path, 20 Euler calls", kind="flow", budgets=(4.0, 30.0), images=12
    ),
}
