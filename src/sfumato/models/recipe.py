"""Read, validate and write recipes: the YAML files that describe a run.

Every field has a default that trains, the one of version 0.1; the key ``preset`` gives others (see
:mod:`~sfumato.models.presets`). So a newcomer only gives ``inputs`` and ``targets``. An unknown key raises an
error with the line and the nearest known name. The resolved recipe is written to the run folder and to the model file.
"""

import difflib
import itertools
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from sfumato.models.data_recipe import DataRecipe
from sfumato.models.presets import PRESETS, with_preset
from sfumato.models.recipe_section import Positive, Section
from sfumato.models.student_recipe import StudentRecipe
from sfumato.system import strict_yaml
from sfumato.system.bounds import seed_of
from sfumato.system.errors import RecipeError

__all__ = ["DataRecipe", "ModelRecipe", "Recipe", "SampleRecipe", "TrainRecipe", "dump", "load", "parse", "schema"]

_MOST_SHOWN = 200
"""Most characters of an invalid value that an error repeats."""
_MOST_ERRORS = 20


_SHARES = {"mean_share": 0.77, "scale_share": 0.08}
"""Of the presets."""


class ModelRecipe(Section):
    """The networks and what they predict."""

    method: Literal["cvdm", "regression"] = "cvdm"
    """Diffusion, or one network trained by mean square error, which gives one image and no uncertainty."""
    ndim: Literal[2, 3] = 2
    """2 for images, 3 for volumes."""
    network: Literal["unet", "sr3", "dfcan"] = "unet"
    """The paper's U-Net, the larger one for natural images, or DFCAN (images only), published as a regression."""
    base: Positive = 32
    """Filters of the noise network at full resolution; the reference code has 64, and so has DFCAN."""
    rate_base: Positive = 16
    """Filters of the rate network at full resolution; the reference code has 32."""
    num_scales: Positive = 5
    """Resolutions of the networks."""
    norm: Literal["population", "channel", "instance"] = "population"
    """The U-Net's norm: over batches, frozen halfway; over a pixel's channels; or, the paper's, over an image."""
    activation: Literal["softplus", "silu"] = "softplus"
    """Of the U-Nets: `softplus` is the paper's, `silu` costs less."""
    schedule: Literal["learned", "paper", "global", "linear_biosr", "linear_qpi", "cosine"] = "learned"
    """How the variance schedule is made; the last three are fixed, as in CDDPM (diffusion with a fixed schedule)."""
    beta_ends: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(gt=0, le=1)]] | None = None
    """Noise variance of the first and last step of a linear schedule, instead of its paper's values."""
    rate_ends: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (8.0, 40.0)
    """Smallest and largest rate of the schedules `learned` and `global`."""
    log_rates: bool = False
    """Learn the logarithm of the rate, which moves low rates as easily as high ones."""
    gamma_end: float | None = Field(default=None, gt=0, lt=1)
    """Signal variance at the end of the cosine schedule; 1e-4 by default."""
    predicts: Literal["velocity", "noise"] = "velocity"
    """What the network outputs; the paper uses `noise`."""
    objective: Literal["min_snr", "velocity", "noise", "elbo"] | None = None
    """Error in the loss; `min_snr` (velocity error, less at faint noise) by default, `noise` if noise is predicted."""
    residual: bool | Literal["last"] = False
    """Diffuse the difference between target and input; `last` for the input's last channels, if they are a guess."""
    mean_network: bool = False
    """Zero-mean diffusion: also train a mean network, and diffuse the difference between target and mean."""
    mean_error: Literal["mse", "rmse"] = "mse"
    """Error the mean learns from: `mse` of all pixels, or mean `rmse` of patches, so that faint ones count too."""
    linear_start: bool = False
    """Start from the best linear filter of the training pairs, found in closed form; the mean network corrects it."""
    linear_finish: bool = False
    """Pass what the mean network learned through the best linear filter of it, found in closed form."""
    read_once: bool = False
    """One network reads the input once, for the mean; scale, rates and denoising network see its features."""
    denoiser_base: Positive | None = None
    """Filters of the denoising network at full resolution, if not `base`; it runs at every call, so few are faster."""
    denoiser_scales: Positive | None = None
    """Resolutions of the denoising network, if not `num_scales`."""
    scale_network: bool = False
    """Also learn how uncertain each pixel is, and diffuse every pixel at a scale of its own."""
    coloured_noise: bool = False
    """Noise has the spectrum of what mean and scale leave; the network corrects the exact denoiser of a Gaussian."""
    scale: float | None = Field(default=None, gt=0)
    """Divides the diffused image; by default twice its root mean square, which training measures and records."""
    smoothness_weight: float = Field(default=3e-4, ge=0)
    """The paper's alpha; without it the schedule collapses."""

    @model_validator(mode="after")
    def _noise_of_what_is_left(self) -> Self:
        if self.coloured_noise and not self.scale_network:
            raise ValueError(
                "coloured_noise is true and scale_network false, but the noise has the spectrum of what mean and scale "
                "leave: set scale_network to true, or coloured_noise to false and train.scale_share to 0"
            )
        if self.coloured_noise and (self.predicts != "velocity" or self.objective in ("noise", "elbo")):
            raise ValueError(
                f"coloured_noise is true, predicts is {self.predicts} and objective is {self.objective}; the network "
                "corrects a Gaussian's velocity: set predicts to velocity and leave objective out"
            )
        if self.linear_finish and not self.mean_network:
            raise ValueError(
                "linear_finish is true and mean_network false, whose mean it filters: set mean_network to true, or "
                "linear_finish to false"
            )
        return self

    @model_validator(mode="after")
    def _ends_of_its_schedule(self) -> Self:
        if self.beta_ends is not None and not self.schedule.startswith("linear"):
            raise ValueError(f"beta_ends belongs to a linear schedule, and schedule is {self.schedule}: leave it out")
        if self.rate_ends[0] >= self.rate_ends[1]:
            raise ValueError(f"rate_ends are {self.rate_ends}; give the smaller rate first")
        given = self.rate_ends != type(self).model_fields["rate_ends"].default  # a resolved recipe always has the key
        if given and self.schedule not in ("learned", "global"):
            raise ValueError(f"rate_ends belong to a learned rate, and schedule is {self.schedule}: leave it out")
        if self.log_rates and self.schedule not in ("learned", "global"):
            raise ValueError(f"log_rates belongs to a learned rate, and schedule is {self.schedule}: leave it out")
        if self.gamma_end is not None and self.schedule != "cosine":
            raise ValueError(f"gamma_end belongs to the cosine schedule, and schedule is {self.schedule}: leave it out")
        return self


class TrainRecipe(Section):
    """The training loop."""

    steps: Positive = 20_000
    """Total number of optimizer steps."""
    extended_at: tuple[Positive, ...] = ()
    """Steps after which the run was finished and then extended, written by `sfumato train --minutes`."""
    batch_size: Positive = 8
    """Patches per step, over all ranks and accumulation rounds."""
    accumulate: Positive = 1
    """Rounds into which each rank's part of a batch is cut to save memory; `population` normalises over a round."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """Kind of optimizer."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Highest learning rate."""
    schedule_speed: float = Field(default=1.0, gt=0)
    """Learning rate of the schedule's networks, relative to the other networks."""
    mean_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps in which the mean network learns alone, before the rest; 0 trains all of them together."""
    scale_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps, after the mean's, in which the scale network learns alone; 0 trains it with the rest."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """Decay of the weights, for adamw."""
    warmup: int = Field(default=200, ge=0)
    """Steps until the highest learning rate; it then falls to 0 along a cosine."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""
    ema: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the exponential moving average of the weights."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """`bfloat16` runs the networks in autocast: faster on GPUs and processors with matrix units, slower elsewhere."""
    compile: bool = False
    """Compile the loss with torch.compile."""
    seed: int = 0
    """Seed of everything random."""
    validate_every: Positive = 500
    """Steps between validations."""
    save_every: Positive = 500
    """Steps between checkpoints."""
    log_every: Positive = 10
    """Steps between lines of the metrics log."""

    @model_validator(mode="after")
    def _extended_before_its_end(self) -> Self:
        ends = (0, *self.extended_at, self.steps)
        if any(one >= next for one, next in itertools.pairwise(ends)):
            raise ValueError(
                f"extended_at is {list(self.extended_at)} and steps {self.steps}; expected rising numbers below steps: "
                "leave extended_at out, which `sfumato train` writes"
            )
        return self


class SampleRecipe(Section):
    """Sampling in validation panels. Restoration uses these settings except `samples`; it draws 16 by default."""

    steps: Positive = 32
    """Network calls per sample."""
    solver: Literal["2m", "first_order", "gaussian", "first_order_gaussian", "algorithm2"] = "2m"
    """Solver for each step."""
    eta: float = Field(default=0.0, ge=0, le=1)
    """Amount of noise added between steps."""
    grid: Literal["log_snr", "uniform"] = "log_snr"
    """Where the network is called: at even steps of the log-SNR or, as in the paper, of t."""
    last_noise: float = Field(default=1e-6, gt=0, lt=1)
    """For the grid `log_snr`: noise variance at the last network call, in units of the diffused image."""
    samples: Positive = 8
    """Samples per image in validation panels."""
    mean: Literal["samples", "network"] = "samples"
    """The mean that is written: that of the samples, or the mean network's, which no number of samples blurs."""


class Recipe(Section):
    """Everything that a run depends on."""

    name: str = "run"
    """Free text to name the run."""
    problem: str = "pairs"
    """What turns files into pairs: `pairs` uses them as they are, other names read or simulate a data set."""
    forward: dict[str, float | tuple[float, ...]] = Field(default_factory=dict)
    """Parameters of the problem's forward model, by name with units, such as `pixel_um`."""
    data: DataRecipe = Field(default_factory=DataRecipe)
    """Where image pairs come from."""
    model: ModelRecipe = Field(default_factory=ModelRecipe)
    """The networks."""
    train: TrainRecipe = Field(default_factory=TrainRecipe)
    """The training loop."""
    sample: SampleRecipe = Field(default_factory=SampleRecipe)
    """Sampling."""
    student: StudentRecipe | None = None
    """How a student was taught, written by `sfumato distill`; left out for any other model."""

    @model_validator(mode="after")
    def _mean_to_learn(self) -> Self:
        if self.train.mean_share and not self.model.mean_network:
            raise ValueError(
                f"train.mean_share is {self.train.mean_share}, but there is no mean network to learn alone: set "
                "model.mean_network to true, or leave mean_share out"
            )
        if self.sample.mean == "network" and not self.model.mean_network and self.model.method == "cvdm":
            raise ValueError(
                "sample.mean is network, but there is no mean network to give it: set model.mean_network to true, or "
                "sample.mean to samples"
            )
        return self

    @model_validator(mode="after")
    def _stages(self) -> Self:
        wanted = {"linear_finish": "mean_share", "coloured_noise": "scale_share"}
        for field, share in wanted.items():
            if getattr(self.model, field) and not getattr(self.train, share) and self.student is None:
                raise ValueError(
                    f"model.{field} is true and train.{share} 0, but it is fitted when that share of the steps is "
                    f"over: give train.{share}, such as {_SHARES[share]}, or set model.{field} to false"
                )
        if self.train.scale_share and not (self.train.mean_share and self.model.scale_network):
            raise ValueError(
                f"train.scale_share is {self.train.scale_share}; the scale is learned after the mean: give "
                "train.mean_share and set model.scale_network to true, or leave scale_share out"
            )
        if self.train.mean_share + self.train.scale_share >= 1:
            raise ValueError(
                f"train.mean_share and train.scale_share are {self.train.mean_share} and {self.train.scale_share}, "
                "which leave no steps for the denoising network; give less of one"
            )
        return self

    @model_validator(mode="after")
    def _sampled_as_taught(self) -> Self:
        if self.student is not None:
            self.student.check(self.sample.steps, self.sample.solver, self.sample.eta)
            if self.model.method != "cvdm" or self.train.mean_share:
                raise ValueError("student is given: it needs model.method cvdm and train.mean_share 0; set them so")
            if self.train.steps < self.student.halvings:
                raise ValueError(
                    f"train.steps is {self.train.steps}; a student needs at least one for each of its "
                    f"{self.student.halvings} halvings"
                )
        return self


def load(path: str | Path) -> Recipe:
    """Read and validate a recipe file."""
    if Path(path).exists() and not Path(path).is_file():  # opening a pipe would block forever
        raise RecipeError(f"the recipe {path} is not a file; give the path of a YAML text file")
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(strict_yaml.MOST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}; give the path of a YAML text file") from error
    return parse(text, source=str(path))


def parse(text: str, *, source: str = "recipe") -> Recipe:
    """Validate a recipe given as YAML text.

    Example:
        >>> parse("train: {steps: 10}").train.steps
        10
    """
    document = strict_yaml.read(text, source=source)
    values = document.values
    if values is None:
        return Recipe()
    if not isinstance(values, dict):
        raise RecipeError(f"{source} holds a {type(values).__name__}, expected keys such as `data:` and `train:`")
    try:
        values = with_preset(values)
    except RecipeError as error:
        raise RecipeError(f"{source}, line {document.line(['preset'])}: {error}") from None
    try:
        recipe = Recipe.model_validate(values)
        seed_of(recipe.train.seed)  # not in the field itself: existing models with negative seeds must still open
        return recipe
    except RecipeError as error:
        raise RecipeError(f"{source}, line {document.line(['train', 'seed'])}: train.{error}") from None
    except ValidationError as error:
        lines = [_explain(details, document, source) for details in error.errors()[:_MOST_ERRORS]]
        raise RecipeError("\n".join(lines)) from None


def dump(recipe: Recipe) -> str:
    """Write the resolved recipe, with every default, as YAML text that :func:`parse` reads back."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False)


def schema() -> str:
    """Return the JSON schema of a recipe, for editors."""
    described = Recipe.model_json_schema()
    named = {"enum": list(PRESETS), "description": "Fields of a new recipe in one of three sizes; own fields win."}
    described["properties"] = {"preset": named, **described["properties"]}
    return json.dumps(described, indent=2)


def _explain(details: Any, document: strict_yaml.Document, source: str) -> str:
    """Describe one validation error: where, what was got, what to do."""
    place = [part for part in details["loc"] if not isinstance(part, int)]
    name, line = ".".join(map(str, place)) or "the recipe", document.line(place)
    where = f"{source}, line {line}" if line else source
    if details["type"] == "extra_forbidden":
        known = list(_section(place[:-1]).model_fields)
        near = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys here: {', '.join(known)}"
        return f"{where}: no such key as {_short(repr(name))}; {hint}"
    message = details["msg"].removeprefix("Value error, ")
    return f"{where}: {name} is {_short(repr(details['input']))}; {message[0].lower()}{message[1:]}"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _section(place: list[Any]) -> type[BaseModel]:
    """Return the section of the recipe that a path of keys leads to."""
    section: type[BaseModel] = Recipe
    for key in place:
        annotation = section.model_fields[key].annotation
        section = next(kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return section
