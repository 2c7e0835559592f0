"""The training loop: the same for one or many processes, resumable bit for bit from any checkpoint.

Every random draw is a pure function of (seed, step, position in the global batch), so the state of a run consists only
of its step, weights, moving average and optimizer moments.
"""

import contextlib
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.data.batches import Batch, PatchBatches
from sfumato.data.order import Order
from sfumato.data.prefetch import prefetch, usual_workers
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, load, save_model
from sfumato.models.recipe import Recipe, TrainRecipe, dump
from sfumato.nn.blocks import freeze_batch_statistics
from sfumato.nn.linear_filter import LinearFilter
from sfumato.system.device import pins_memory
from sfumato.system.errors import ModelFileError, RunError
from sfumato.system.progress import Bar
from sfumato.training.between_stages import fit_between, take_over
from sfumato.training.checkpoint import TrainingState, load_state, optimizer_tensors, restore_optimizer, save_state
from sfumato.training.distributed import Ranks
from sfumato.training.known_first import Estimate, fit_filter, trusted_share
from sfumato.training.measured_reach import LEAST_STEPS, store_reach
from sfumato.training.preparation import Prepared
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import Stage, stage_at
from sfumato.training.stop_signals import StopSignals
from sfumato.training.tensorboard import Dashboard
from sfumato.training.validation import Validation

__all__ = ["Trainer", "batches_of"]


class Trainer:
    """A run in memory.

    Args:
        recipe: Recipe of the run.
        folder: Where the run is saved.
        data: Samples and their statistics.
        ranks: This process among the others.
        start_from: A model file with the initial weights.
    """

    def __init__(
        self, recipe: Recipe, folder: RunFolder, data: Prepared, ranks: Ranks, *, start_from: str | Path | None = None
    ) -> None:
        self.recipe, self.folder, self.data, self.ranks, self.quiet = recipe, folder, data, ranks, True
        settings = recipe.train
        channels = (data.train.condition_channels, data.train.target_channels)
        self.model, self.average = (
            build_model(recipe.model, *channels, seed=settings.seed, student=recipe.student) for _ in range(2)
        )
        if start_from is not None:
            self._start_from(start_from)
        self._fits_start = self.model.start is not None and start_from is None
        self.model.to(ranks.device)
        self.average.to(ranks.device).eval()
        self.parallel = ranks.wrap(self.model, in_stages=settings.mean_share > 0)
        self.loss = torch.compile(self.parallel) if settings.compile else self.parallel
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.optimizer]
        decay = settings.weight_decay if settings.optimizer == "adamw" else 0.0
        fused = ranks.device.type in ("cpu", "cuda")  # one pass over memory instead of one per operation
        self.optimizer = kind(_groups(self.model, settings), lr=settings.learning_rate, weight_decay=decay, fused=fused)
        self.step = 0
        self.best: float | None = None
        self.sampling = recipe.sample
        self.positions = ranks.share(settings.batch_size)
        self.batches = batches_of(recipe, data)
        self.validation = None
        if data.validation is not None and ranks.is_first:
            self.validation = Validation(data.validation, data.condition, data.target, recipe.data.patch)

    def run(
        self, *, workers: int | None = None, quiet: bool = False, is_stopped: Callable[[], bool] | None = None
    ) -> None:
        """Train until the last step, or until it is stopped, with checkpoints; resumes from the newest one."""
        self._resume()
        settings, last = self.recipe.train, self.recipe.train.steps
        self.quiet = quiet or not self.ranks.is_first
        self.dashboard = Dashboard(self.folder.tensorboard, step=self.step, active=self.ranks.is_first)
        bar = Bar("training", last, done=self.step, quiet=self.quiet)
        with StopSignals(is_stopped) as stop, self._ahead(workers) as batches, contextlib.closing(self.dashboard), bar:
            for batch in batches:
                started = time.perf_counter()
                values = self.advance(batch)
                if self.step % settings.log_every == 0 or self.step == last:
                    self._log(values, time.perf_counter() - started, bar)
                if self.step % settings.validate_every == 0 or self.step == last:
                    self._validate()
                stopping = self.ranks.agree(stop.requested)
                if self.step % settings.save_every == 0 or self.step == last or stopping:
                    self.save()
                if stopping:
                    raise KeyboardInterrupt(f"stopped at step {self.step}; run the same command again to resume")

    def close(self) -> None:
        """Let go of what averages gradients over the ranks; call it while they are still joined.

        Freed after their group, it would wait for a thread of the group that waits for this one.
        """
        self.parallel = self.loss = self.model
        gc.collect()  # a compiled model refers to itself

    def _ahead(self, workers: int | None) -> contextlib.AbstractContextManager[Iterator[Batch]]:
        """The batches of the steps to come, in memory from where the device takes them."""
        device = self.ranks.device
        return prefetch(
            lambda step: self.batches(step, self.positions),
            range(self.step, self.recipe.train.steps),
            workers=usual_workers(device) if workers is None else workers,
            pinned=pins_memory(device),
        )

    def advance(self, batch: Batch) -> dict[str, float]:
        """Do one optimizer step on this process's part of a global batch; returns the values over the whole batch."""
        settings, device = self.recipe.train, self.ranks.device
        stage = self._enter_stage()
        rate = stage.learning_rate(settings, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["speed"]
        freeze_batch_statistics(self.model, frozen=stage.freezes_statistics(self.step))
        if stage.learns in ("scale", "rest"):
            for held in _mean_parts(self.model):
                freeze_batch_statistics(held)
        self.optimizer.zero_grad(set_to_none=True)
        terms = torch.zeros(len(Losses._fields), device=device)
        for part, is_last in self._rounds(batch):
            with contextlib.nullcontext() if is_last else self._no_sync():
                with self._autocast():
                    losses = self.loss(*(tensor.to(device, non_blocking=pins_memory(device)) for tensor in part))
                (losses.total / settings.accumulate).backward()
            terms += torch.stack([*losses]).detach() / settings.accumulate
        terms = self.ranks.mean(terms)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        *values, gradient_norm = torch.stack([*terms, norm]).tolist()  # the only wait for the device
        if not all(map(math.isfinite, (*values, gradient_norm))):
            self._stop_at_non_finite(batch, values)
        self.optimizer.step()
        self.step += 1
        self._follow(self.step - stage.first)
        named = dict(zip(Losses._fields, values, strict=True))
        return {"loss": sum(named.values()), **named, "gradient_norm": gradient_norm, "learning_rate": rate}

    def _enter_stage(self) -> Stage:
        """The stage of the next step; at its first, what it needs of the stage before is fitted."""
        stage = stage_at(self.recipe.train, self.step)
        self.model.learns = self.average.learns = stage.learns
        if self.step != stage.first:
            return stage
        before = stage_at(self.recipe.train, self.step - 1).learns if self.step else None
        fit_between(before, stage.learns, self.average, self.batches, self._trusted_share, is_added=stage.is_added)
        take_over(self.model, self.average)
        if before not in (None, stage.learns):
            self.best = None  # of other networks, which cannot be compared
        return stage

    def _trusted_share(self, first: Estimate, corrected: Estimate) -> float:
        """Share of a correction that lowers the validation error most; the same on all ranks."""
        share = 1.0
        if self.validation is not None:
            device = self.ranks.device
            pairs = (side.to(device) for side in (self.validation.condition, self.validation.target))
            share = trusted_share(first, corrected, *pairs)
        return self.ranks.from_first(share)

    def save(self) -> None:
        """Write a checkpoint and, if there are no validation images, the model."""
        if not self.ranks.is_first:
            return
        self.folder.settle()
        if self.data.validation is None and self.average.learns not in ("mean", "scale"):
            self._save_model(None)
        if self.step == self.recipe.train.steps >= LEAST_STEPS and self.folder.model_file.exists():
            store_reach(self.folder.model_file, self.data, self.ranks.device, quiet=self.quiet)
        state = TrainingState(
            step=self.step,
            best=self.best,
            model=dict(self.model.state_dict()),
            ema=dict(self.average.state_dict()),
            optimizer=optimizer_tensors(self.optimizer, self.model),
        )
        save_state(self.folder.checkpoints, state, recipe_text=dump(self.recipe))

    def _rounds(self, batch: Batch) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor, Tensor], bool]]:
        """Split the batch, with its noise, into the parts over which gradients are accumulated."""
        shape = torch.Size([1, *batch.target.shape])
        noise = NoiseField(self.recipe.train.seed, sample=self.step, image=self.positions.start)
        eps = noise(0, shape, device=self.ranks.device)[0]
        number = self.recipe.train.accumulate
        size = len(batch.t) // number
        if size * number != len(batch.t):
            raise RunError(
                f"train.accumulate is {number}, but each process has {len(batch.t)} patches per step; "
                "choose a number that divides them"
            )
        for round_ in range(number):
            cut = slice(round_ * size, (round_ + 1) * size)
            yield (batch.condition[cut], batch.target[cut], batch.t[cut], eps[cut]), round_ == number - 1

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.recipe.train.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.ranks.device.type, dtype=torch.bfloat16)

    def _no_sync(self) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.parallel, nn.parallel.DistributedDataParallel):
            return self.parallel.no_sync()
        return contextlib.nullcontext()

    @torch.no_grad()
    def _follow(self, steps: int) -> None:
        """Move the average towards the weights, faster in a stage's first steps so that it forgets initial values."""
        decay = min(self.recipe.train.ema, steps / (steps + 10))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)
        for followed, statistics in zip(self.average.buffers(), self.model.buffers(), strict=True):
            followed.copy_(statistics)

    def _resume(self) -> None:
        state = load_state(self.folder.checkpoints, self.model, self.optimizer)
        if state is not None:
            self.model.load_state_dict(state.model)
            self.average.load_state_dict(state.ema)
            restore_optimizer(self.optimizer, self.model, state.optimizer)
            self.step, self.best = state.step, state.best
        elif self._fits_start:
            assert isinstance(self.model.start, LinearFilter)
            fitted = fit_filter(self.model.start, self.batches, self.recipe.train.steps)
            _module(self.average.start).load_state_dict(fitted.state_dict())
        self.ranks.wait()
        if self.ranks.is_first:
            self.folder.rewind(self.step)

    def _start_from(self, path: str | Path) -> None:
        loaded = load(path, device="cpu")
        for model in (self.model, self.average):
            try:
                model.load_state_dict(loaded.model.state_dict())
            except RuntimeError as error:
                raise RunError(
                    f"{path} does not fit the recipe's networks: {_unlike(loaded.info, self.recipe, self.data)}"
                ) from error

    def _log(self, values: dict[str, float], seconds: float, bar: Bar) -> None:
        if not self.ranks.is_first:
            return
        pace = self.recipe.train.batch_size / seconds
        self.folder.log(step=self.step, **values, seconds=seconds)
        self.dashboard.scalars(self.step, {f"train/{name}": value for name, value in values.items()})
        shown = "  ".join(f"{name} {values[name]:.4f}" for name in ("loss", "diffusion", "smoothness"))
        bar.show(self.step, f"{shown}  {pace:.0f} patches/s")

    def _validate(self) -> None:
        if self.validation is None:
            return
        value = self.validation.loss(self.average, self.ranks.device)
        self.folder.log(step=self.step, validation=value)
        self.dashboard.scalars(self.step, {"validation/loss": value})
        if self.average.learns in ("mean", "scale"):  # nothing can be sampled yet
            return
        if math.isfinite(value) and (self.best is None or value < self.best):
            self.best = value
            self._save_model(value)
        panel = self.folder.panels / f"step-{self.step:08d}.png"
        try:
            self.validation.draw(self.average, self.ranks.device, self.sampling, panel)
        except ModelFileError as error:  # a schedule that need not be monotone may not be monotone yet
            print(f"note: no panel at step {self.step}: {error}", file=sys.stderr, flush=True)
            return
        self.dashboard.picture(self.step, "validation/restored", panel)

    def _save_model(self, value: float | None) -> None:
        save_model(self.folder.model_file, self.average.state_dict(), self.info(value))

    def info(self, value: float | None) -> ModelInfo:
        """What the model file holds beside the weights, given the validation error."""
        return ModelInfo(
            recipe=self.recipe,
            condition_channels=self.data.train.condition_channels,
            target_channels=self.data.train.target_channels,
            condition=self.data.condition,
            target=self.data.target,
            audit=self.data.audit,
            provenance={"step": self.step, "validation": value},
            factor=self.data.train.factor,
            seen=self.data.seen,
            channels=self.data.channels,
        )

    def _stop_at_non_finite(self, batch: Batch, terms: Sequence[float]) -> None:
        for statistics, before in zip(self.model.buffers(), self.average.buffers(), strict=True):
            statistics.copy_(before)  # the batch has spoilt them
        self.save()
        bad = [name for name, value in zip(Losses._fields, terms, strict=True) if not math.isfinite(value)]
        names = ", ".join(map(self.data.train.name, batch.samples))
        raise RunError(
            f"{', '.join(bad) or 'the gradient'} is not finite at step {self.step}, on {names}; "
            "the state before it is saved: start a new run with a lower train.learning_rate, or without these images"
        )


def batches_of(recipe: Recipe, data: Prepared) -> PatchBatches:
    """The batches of a run, identical on every rank."""
    return PatchBatches(
        data.train,
        Order(recipe.train.seed, len(data.train), recipe.train.batch_size),
        patch=recipe.data.patch,
        augment=recipe.data.augment,
        condition=data.condition,
        target=data.target,
    )


def _module(network: object) -> nn.Module:
    """A network that a recipe describes is a module, though a model takes any function."""
    assert isinstance(network, nn.Module)
    return network


def _mean_parts(model: CVDM) -> list[nn.Module]:
    """The networks that learn the mean, and are held while the rest learns."""
    return [_module(part) for part in (model.reader, model.mean_network) if part is not None]


def _unlike(info: ModelInfo, recipe: Recipe, data: Prepared) -> str:
    """How a model file differs from the networks to be trained, and what to do; torch would list all tensors."""
    traits = [
        ("the number of input channels", info.condition_channels, data.train.condition_channels),
        ("the number of target channels", info.target_channels, data.train.target_channels),
        *((f"model.{name}", value, getattr(recipe.model, name)) for name, value in info.recipe.model),
    ]
    said = ", ".join(f"{what} is {its} in the file and {ours} here" for what, its, ours in traits if its != ours)
    return f"{said}; use the file's own, or another model to start from"


def _groups(model: nn.Module, settings: TrainRecipe) -> list[dict[str, Any]]:
    """Parameters by learning rate relative to the recipe's; one group in the model's order if that is 1."""
    speeds: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        speeds.setdefault(settings.schedule_speed if name.startswith("schedule.") else 1.0, []).append(parameter)
    return [{"params": parameters, "speed": speed} for speed, parameters in speeds.items()]
