"""Attempts that the library has no settings for: that each changes what it says, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pair_folders import make_pairs
from paper.matrix import CELLS
from paper.variants import VARIANTS, changed
from sfumato import load, restore
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.recipe import ModelRecipe
from sfumato.training.train import train
from small_runs import recipe

SMALL = {"base": 4, "rate_base": 2, "num_scales": 2, "norm": "channel"}


def network(model: CVDM) -> Any:
    """Of which only the class knows the layers."""
    return model.network


def made(variant: str = "", **settings: object) -> CVDM:
    """In float64, with an output that is not the initial 0."""
    model = build_model(ModelRecipe(**{**SMALL, **settings}), 2, 1, seed=3)  # type: ignore[arg-type]
    if variant:
        VARIANTS[variant](model)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        network(model).head.weight.normal_(generator=generator)
    return model.double()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    condition, target, eps = (
        torch.randn(1, channels, 8, 8, generator=generator, dtype=torch.float64) for channels in (2, 1, 1)
    )
    return condition, target, torch.tensor([0.3], dtype=torch.float64), eps


def gradients(model: CVDM, loss: Tensor, part: str) -> list[Tensor]:
    weights = [weight for name, weight in model.named_parameters() if name.startswith(part)]
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


def test_rates_that_are_shown_count_for_nothing_at_first_and_then_for_something(batch: tuple[Tensor, ...]) -> None:
    condition, target, t, eps = batch
    plain, shown = made(), made("rates_shown")
    torch.testing.assert_close(shown.loss(condition, target, t, eps).total, plain.loss(condition, target, t, eps).total)
    with torch.no_grad():
        network(shown).down[0].conv1.weight[:, 2] = 1.0
    other = shown.predict(target, torch.full_like(target, -1.0), shown.read(condition).seen)
    rates = shown.schedule(condition)
    assert not torch.allclose(other, plain.predict(target, torch.full_like(target, -1.0), plain.read(condition).seen))
    # What is shown is the rate itself, after the condition.
    seen: list[Tensor] = []
    network(shown).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    shown.predict(target, torch.full_like(target, -1.0), shown.read(condition).seen)
    torch.testing.assert_close(seen[0][:, 2:3], rates.rate / rates.reference_rate)
    torch.testing.assert_close(seen[0][:, :2], condition)


def test_the_schedule_learns_from_the_bound_and_the_network_as_before(batch: tuple[Tensor, ...]) -> None:
    """With one rate for all pixels of one image the shared gradient is exact: that of ``objective=elbo``."""
    condition, target, t, eps = batch
    ours, plain, exact = (
        made(name, schedule="global", **given)
        for name, given in (("schedule_from_bound", {}), ("", {}), ("", {"objective": "elbo"}))
    )
    moved = ours.t_min + (1 - ours.t_min) * t
    of_ours, of_exact = (model.loss(condition, target, t, eps).diffusion for model in (ours, exact))
    of_plain = plain.loss(condition, target, moved, eps).diffusion
    for mine, theirs in zip(gradients(ours, of_ours, "network"), gradients(plain, of_plain, "network"), strict=True):
        torch.testing.assert_close(mine, theirs)
    found, bound, usual = (
        gradients(model, loss, "schedule") for model, loss in ((ours, of_ours), (exact, of_exact), (plain, of_plain))
    )
    for mine, theirs in zip(found, bound, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not torch.allclose(found[0], usual[0])


def test_times_gather_in_the_middle(batch: tuple[Tensor, ...]) -> None:
    condition, target, _, eps = batch
    plain, gathered = made(), made("times_logit_normal")
    for given, meant in ((0.5, 0.5), (0.8413447460685429, 0.7310585786300049)):  # one standard deviation up
        t = torch.tensor([given], dtype=torch.float64)
        torch.testing.assert_close(
            gathered.loss(condition, target, t, eps).total,
            plain.loss(condition, target, torch.full_like(t, meant), eps).total,
        )
    assert gathered.loss(condition, target, torch.zeros(1, dtype=torch.float64), eps).total.isfinite()


def test_the_matrix_has_each_of_them() -> None:
    assert {cell.variant for cell in CELLS} - {""} == set(VARIANTS)


def test_a_variant_is_trained_and_measured_within_and_forgotten_after(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    plain = recipe(folders, train_steps=2)
    with changed("rates_shown"):
        path = train(plain, tmp_path / "run", quiet=True).model_file
        model = load(path)
        assert type(model.model).__name__ == "_RatesShown"
        restore(torch.zeros(16, 16).numpy(), model, num_samples=2, num_steps=2)
    with pytest.raises(Exception, match="does not hold the weights"):
        load(path)
