"""Complete a recipe with what is measured before training: the scale of what is diffused, the steps that fit a time."""

import math
import time
from pathlib import Path

from sfumato.models.model_file import inspect_model
from sfumato.models.recipe import Recipe
from sfumato.training.loop import Trainer, batches_of
from sfumato.training.preparation import Prepared
from sfumato.training.stages import stages_of

__all__ = ["as_before", "extended", "measure_scale", "steps_in", "what_fits", "with_scale", "with_steps"]

_TIMED_STEPS = 5
_SCALE_PATCHES, _LEAST_SCALE = 256, 1e-4
"""Patches used to measure the scale of what is diffused; if nothing is left to diffuse, the scale is 1."""
_FEW_STEPS = 1000
"""A time limit that allows fewer gives a warning: after 100 steps, restored W2S images were noisier than the inputs."""
_DIFFUSED_SIZE = 0.5
"""Root mean square of what is diffused, as in EDM (Karras et al. 2022, Table 1). docs/results.md reports the cost of
unit size, where the same noise hides less."""


def measure_scale(recipe: Recipe, data: Prepared, start_from: str | Path | None) -> float:
    """Scale of the initial model, or twice the root mean square of what is diffused, over the first patches.

    A noise variance of 1 then means the same for residuals, which are small, as for whole images. The residual of a
    mean network is unknown before training: it is assumed to be half of the target's standard deviation.
    """
    if start_from is not None:
        return inspect_model(start_from).recipe.model.scale or 1.0
    if recipe.model.scale_network:
        return 1.0  # measured later, when the mean is known
    batches, size = batches_of(recipe, data), recipe.train.batch_size
    squares = []
    for step in range(-(-_SCALE_PATCHES // size)):
        batch = batches(step, range(size))
        guess = batch.condition[:, -batch.target.shape[1] :]
        diffused = batch.target - guess if recipe.model.residual else batch.target
        if recipe.model.mean_network:
            diffused = (diffused - diffused.mean()) / 2
        squares.append(float(diffused.double().square().mean()))
    found = math.sqrt(math.fsum(squares) / len(squares)) / _DIFFUSED_SIZE
    return float(f"{found:.3g}") if found > _LEAST_SCALE else 1.0


def steps_in(seconds: float, trainer: Trainer) -> int:
    """How many steps fit into a time, measured on a few steps of an untrained model, which is then discarded.

    For a run that is being extended, these are further steps.
    """
    settings, before, per_step = trainer.recipe.train, 0.0, 0.0
    stages = stages_of(settings)
    total = sum(stage.steps for stage in stages)
    for stage in stages:
        entering, seconds_per_step = _seconds(trainer, stage.first)
        before += entering if stage.first else 0.0  # the very first step also allocates
        per_step += seconds_per_step * stage.steps / total
    started = time.perf_counter()
    if trainer.validation is not None:
        trainer.validation.loss(trainer.average, trainer.ranks.device)
        with_panel = 1 + trainer.validation.calls_of_panel(trainer.recipe.sample) / trainer.validation.calls_of_loss
        per_step += with_panel * (time.perf_counter() - started) / trainer.recipe.train.validate_every
    # What is fitted between stages takes longer than a very short training.
    return max(1, int(trainer.ranks.from_first((seconds - min(before, seconds / 2)) / per_step)))


def _seconds(trainer: Trainer, first: int) -> tuple[float, float]:
    """Seconds to enter a stage, given its first step, and seconds of a step, from a few after the first."""
    trainer.step = first
    started = time.perf_counter()
    trainer.advance(trainer.batches(0, trainer.positions))
    entered = time.perf_counter()
    for step in range(1, 1 + _TIMED_STEPS):
        trainer.advance(trainer.batches(step, trainer.positions))
    per_step = (time.perf_counter() - entered) / _TIMED_STEPS
    return max(0.0, entered - started - per_step), per_step


def what_fits(recipe: Recipe, minutes: float) -> str:
    """How many steps fit into a time, in words, with advice if they are few."""
    done = max(recipe.train.extended_at, default=0)
    steps = recipe.train.steps
    if done:
        return (
            f"{steps - done} steps fit into {minutes:g} minutes and extend this run, which was finished at {done}: its "
            "stages are repeated, at the learning rates with which a run of all these steps would end"
        )
    fits = f"{steps} steps fit into {minutes:g} minutes"
    if steps >= _FEW_STEPS:
        return fits
    return (
        f"{fits}: few, so expect a rough model; give more time, or a smaller network, which takes more steps in it "
        f"(--set model.base={max(1, recipe.model.base // 2)}, now {recipe.model.base})"
    )


def with_scale(recipe: Recipe, scale: float | None) -> Recipe:
    """The recipe with another scale of what is diffused."""
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"scale": scale})})


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """Set the number of steps that fit into a time; if they are few, the warm-up takes a tenth of them."""
    return _with(recipe, steps=steps, warmup=min(recipe.train.warmup, steps // 10))


def extended(recipe: Recipe, steps: int) -> Recipe:
    """The recipe of a finished run with further steps."""
    done = recipe.train.steps
    return _with(recipe, steps=done + steps, extended_at=(*recipe.train.extended_at, done))


def as_before(recipe: Recipe) -> Recipe:
    """The recipe of a run as it was before it was ever extended."""
    return _with(recipe, steps=(*recipe.train.extended_at, recipe.train.steps)[0], extended_at=())


def _with(recipe: Recipe, **update: object) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=update)})
