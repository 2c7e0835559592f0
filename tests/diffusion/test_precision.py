"""Which types of numbers meet the device: no float64, which Apple's has not, and no backward pass in autocast."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pair_folders import make_pairs
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.sampling_grid import SamplingGrid
from sfumato.diffusion.solvers import Solver
from sfumato.models.build import build_model
from sfumato.models.recipe import parse
from sfumato.training.distributed import Ranks
from sfumato.training.loop import Trainer
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from small_runs import recipe


class WithoutFloat64(TorchDispatchMode):
    """A device that has no float64: any operation that gives it fails, as Apple's does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if torch.float64 in given or torch.complex128 in given:
            raise TypeError(f"{func} gives float64, which the device does not have")
        return result


def test_the_mode_finds_float64() -> None:
    with WithoutFloat64(), pytest.raises(TypeError, match="which the device does not have"):
        torch.ones(2).double()


@pytest.mark.parametrize("schedule", ["learned", "paper", "global", "linear_biosr", "cosine"])
@pytest.mark.parametrize(("solver", "eta", "grid"), [("2m", 0.5, "log_snr"), ("algorithm2", 0.0, "uniform")])
def test_sampling_stays_in_single_precision(schedule: str, solver: Solver, eta: float, grid: SamplingGrid) -> None:
    read = parse(f"model: {{base: 4, rate_base: 2, num_scales: 2, schedule: {schedule}}}")
    model, condition = build_model(read.model, 1, 1), torch.zeros(1, 1, 16, 16)
    with WithoutFloat64():
        draws = sample(model, condition, num_samples=2, num_steps=3, solver=solver, eta=eta, grid=grid, seed=0)
    assert draws.dtype == torch.float32


@pytest.mark.parametrize("settings", [{}, {"model_mean_network": True}, {"model_schedule": "paper"}], ids=str)
def test_a_training_step_stays_in_single_precision(settings: dict[str, Any], tmp_path: Path) -> None:
    asked = recipe(make_pairs(tmp_path), **settings)
    trainer = Trainer(asked, RunFolder(tmp_path / "run"), prepare(asked), Ranks.join("cpu"))
    batch = trainer.batches(0, trainer.positions)
    assert trainer.validation is not None
    with WithoutFloat64():
        trainer.advance(batch)
        trainer.validation.loss(trainer.average, torch.device("cpu"))


def test_the_backward_pass_is_not_in_autocast(tmp_path: Path) -> None:
    asked = recipe(make_pairs(tmp_path), train_precision="bfloat16")
    trainer = Trainer(asked, RunFolder(tmp_path / "run"), prepare(asked), Ranks.join("cpu"))
    seen: dict[str, bool] = {}
    network = trainer.model.network
    assert isinstance(network, torch.nn.Module)

    def forward(*_: object) -> None:
        seen["forward"] = torch.is_autocast_enabled("cpu")

    def backward(*_: object) -> None:
        seen["backward"] = torch.is_autocast_enabled("cpu")

    network.register_forward_hook(forward)
    next(trainer.model.parameters()).register_hook(backward)
    trainer.advance(trainer.batches(0, trainer.positions))
    assert seen == {"forward": True, "backward": False}
