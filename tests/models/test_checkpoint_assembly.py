"""From recipe to model: every choice builds, seeds alone decide the weights, and size is known before building."""

import inspect
import itertools
from typing import Any

import pytest
import torch

from sfumato.diffusion.schedule import CosineSchedule, GlobalSchedule, LearnedSchedule, LinearSchedule, PaperSchedule
from sfumato.models.build import build_model, least_weights
from sfumato.models.recipe import ModelRecipe
from sfumato.nn import SR3UNet, UNet
from sfumato.system.errors import RecipeError

SMALL: dict[str, Any] = {"base": 4, "rate_base": 2, "num_scales": 2}
SCHEDULES = {
    "learned": LearnedSchedule,
    "paper": PaperSchedule,
    "global": GlobalSchedule,
    "linear_biosr": LinearSchedule,
    "linear_qpi": LinearSchedule,
    "cosine": CosineSchedule,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mean_network", [False, True])
def test_every_schedule_builds_and_gives_a_loss(schedule: str, mean_network: bool) -> None:
    recipe = ModelRecipe.model_validate({**SMALL, "schedule": schedule, "mean_network": mean_network})
    model = build_model(recipe, 2, 3, seed=0)
    assert type(model.schedule) is SCHEDULES[schedule]
    generator = torch.Generator().manual_seed(0)
    condition = torch.randn(2, 2, 12, 12, generator=generator)
    target, eps = torch.randn(2, 2, 3, 12, 12, generator=generator)
    losses = model.loss(condition, target, torch.tensor([0.3, 0.7]), eps)
    assert losses.total.isfinite()
    assert (losses.mean > 0) == mean_network


def test_the_recipe_reaches_the_model() -> None:
    recipe = ModelRecipe(
        **SMALL, predicts="noise", objective="elbo", scale=0.5, smoothness_weight=0.25, norm="instance", residual=True
    )
    model = build_model(recipe, 1, 1)
    assert (model.predicts, model.objective, model.scale) == ("noise", "elbo", 0.5)
    assert (model.smoothness_weight, model.residual) == (0.25, True)
    assert isinstance(model.network, UNet)
    assert "GroupNorm" in str(model.network)
    linear = build_model(ModelRecipe(**SMALL, schedule="linear_qpi"), 1, 1).schedule(torch.zeros(1, 1, 2, 2))
    assert linear.rate.unique().item() == pytest.approx(400 * 0.01005)


@pytest.mark.parametrize("kind", ["unet", "sr3"])
@pytest.mark.parametrize("ndim", [2, 3])
def test_networks_of_both_kinds_in_both_dimensions(kind: str, ndim: int) -> None:
    recipe = ModelRecipe.model_validate({**SMALL, "network": kind, "ndim": ndim})
    model = build_model(recipe, 1, 1)
    assert isinstance(model.network, UNet if kind == "unet" else SR3UNet)
    condition, target, eps = torch.zeros(3, 1, 1, *[8] * ndim)
    assert model.loss(condition, target, torch.tensor([0.5]), eps).total.isfinite()


def test_the_u_net_has_the_defaults_of_the_recipe() -> None:
    given = inspect.signature(UNet).parameters
    own = {name: parameter.default for name, parameter in given.items() if parameter.default is not parameter.empty}
    assert own == {name: getattr(ModelRecipe(), name) for name in ("base", "num_scales", "ndim", "norm", "activation")}


def test_sr3_keeps_its_published_multipliers_at_five_scales() -> None:
    with torch.device("meta"):
        model = build_model(ModelRecipe(network="sr3", base=64), 3, 3)
        assert isinstance(model.network, SR3UNet)
        ours = {name: weight.shape for name, weight in model.network.state_dict().items()}
        published = {name: weight.shape for name, weight in SR3UNet(9, 3).state_dict().items()}
    assert ours == published


def test_weights_depend_on_the_seed_and_on_nothing_else() -> None:
    recipe = ModelRecipe(**SMALL)
    first = build_model(recipe, 1, 1, seed=3).state_dict()
    before = torch.get_rng_state()
    torch.rand(7)
    torch.set_default_dtype(torch.float64)
    try:
        again = build_model(recipe, 1, 1, seed=3).state_dict()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_rng_state(before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = build_model(recipe, 1, 1, seed=4).state_dict()
    assert not torch.equal(first["network.down.0.conv1.weight"], other["network.down.0.conv1.weight"])


def test_a_seed_gives_the_noise_network_the_same_weights_whatever_the_schedule() -> None:
    """Else methods that are compared would differ by the luck of their initial weights, which is several percent."""
    made = [build_model(ModelRecipe.model_validate({**SMALL, "schedule": name}), 1, 1, seed=3) for name in SCHEDULES]
    first, *others = (model.state_dict() for model in made)
    names = [name for name in first if name.startswith("network.")]
    assert len(names) > 10
    assert all(torch.equal(first[name], other[name]) for name in names for other in others)


def test_building_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    build_model(ModelRecipe(**SMALL), 1, 1, seed=3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", ["unet", "sr3"])
@pytest.mark.parametrize("schedule", ["learned", "paper", "global", "cosine"])
def test_without_memory_it_has_the_same_names_and_shapes(kind: str, schedule: str) -> None:
    recipe = ModelRecipe.model_validate({**SMALL, "network": kind, "schedule": schedule, "mean_network": True})
    with torch.device("meta"):
        outline = build_model(recipe, 2, 1).state_dict()
    assert {tensor.device.type for tensor in outline.values()} == {"meta"}
    real = build_model(recipe, 2, 1).state_dict()
    assert [(name, t.shape, t.dtype) for name, t in outline.items()] == [(n, t.shape, t.dtype) for n, t in real.items()]


def test_the_bound_on_weights_is_a_bound_and_not_far_off() -> None:
    choices = itertools.product(["unet", "sr3"], ["learned", "cosine"], [1, 4], [2, 3], [False, True])
    for kind, schedule, scales, ndim, mean_network in choices:
        values = {"network": kind, "schedule": schedule, "num_scales": scales, "ndim": ndim}
        recipe = ModelRecipe.model_validate({**values, "mean_network": mean_network, "base": 8, "rate_base": 4})
        with torch.device("meta"):
            number = sum(p.numel() for p in build_model(recipe, 7, 2).parameters())
        assert number / 100 < least_weights(recipe, 7, 2) <= number, recipe


@pytest.mark.parametrize(
    ("values", "channels", "words"),
    [
        ({"num_scales": 11}, (1, 1), "num_scales is 11; give at most 10"),
        ({"num_scales": 10**9}, (1, 1), "num_scales is 1000000000; give at most 10"),
        ({"residual": True}, (2, 1), "as many condition channels as target channels, got 2 and 1"),
        ({"residual": "last"}, (1, 2), "fewer than the target's 2"),
        ({"residual": True, "mean_network": True}, (1, 1), "keep one"),
        ({"base": 10**9}, (1, 1), "base 1000000000.*choose smaller ones"),
        ({"rate_base": 10**30}, (1, 1), "cannot be made.*choose smaller ones"),
        ({"base": 1, "norm": "channel"}, (1, 1), "model.base is 1, .* give at least 2, or another model.norm"),
        ({"rate_base": 1, "network": "sr3", "norm": "channel"}, (1, 1), "model.rate_base is 1"),
        ({}, (0, 1), "0 channels and the target 1; give at least 1"),
    ],
)
def test_impossible_models(values: dict[str, object], channels: tuple[int, int], words: str) -> None:
    recipe = ModelRecipe.model_validate({**SMALL, **values})
    with torch.device("meta"), pytest.raises(RecipeError, match=words):
        build_model(recipe, *channels)


def test_one_filter_is_enough_where_nothing_is_normalised_over_channels() -> None:
    for values in ({"norm": "instance"}, {"network": "sr3", "schedule": "global"}):
        recipe = ModelRecipe.model_validate({**SMALL, "base": 1, "rate_base": 1, **values})
        assert build_model(recipe, 1, 1).network is not None
