"""How far a model looks: one call by the sum along its networks, and a sample as measured."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from networks import seeded
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.measure_reach import measure_reach
from sfumato.models.reach import Reach, reach_of_call
from sfumato.models.recipe import ModelRecipe, SampleRecipe

ONE_SCALE = {"base": 2, "rate_base": 2, "num_scales": 1, "norm": "channel"}
"""U-Nets without pooling look exactly two pixels far."""


def of(fields: Mapping[str, Any]) -> CVDM:
    settings = ModelRecipe.model_validate({**ONE_SCALE, **fields})
    model = seeded(lambda: build_model(settings, 1, 1)).double().eval()
    for name, values in model.named_buffers():
        if name.startswith("start."):
            values.copy_(torch.rand(values.shape, generator=torch.Generator().manual_seed(1)))
    return model


@torch.no_grad()
def support(model: CVDM) -> int:
    """How far from a changed pixel of the condition the network's output changes."""

    def call(condition: Tensor) -> Tensor:
        known = model.read(condition)
        noisy = torch.ones_like(condition)
        output = model.predict(noisy, known.schedule.log_gamma(torch.tensor(0.5, dtype=torch.float64)), known.seen)
        return output if known.center is None else output + known.center

    condition = torch.randn(1, 1, 65, 65, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    changed = condition.clone()
    changed[..., 32, 32] += 1
    places = (call(changed) - call(condition))[0, 0].abs().amax(0).nonzero().flatten()
    return int((places - 32).abs().max())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"schedule": "cosine"}, 2),
        ({"schedule": "global"}, 2),
        ({}, 2 + 2),  # rate, then denoising network
        ({"mean_network": True}, 2 + 2),  # the rate network does not see the mean
        ({"mean_network": True, "linear_start": True}, 7 + 2 + 2),
        ({"mean_network": True, "linear_start": True, "read_once": True}, 7 + 2 + 2 + 2),
        ({"mean_network": True, "read_once": True, "scale_network": True, "schedule": "cosine"}, 2 + 4 + 2),
        ({"method": "regression", "linear_start": True}, 7 + 2),
    ],
)
def test_reaches_add_along_networks_in_a_row(fields: Mapping[str, Any], expected: int) -> None:
    model = of(fields)
    assert reach_of_call(model) == expected
    assert support(model) == expected


@pytest.mark.parametrize("fields", [{"norm": "instance"}, {"network": "sr3"}])
def test_a_network_with_statistics_of_the_image_has_no_reach(fields: Mapping[str, Any]) -> None:
    assert reach_of_call(of(fields)) is None


def given(number: int = 3, side: int = 96) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(1, 1, side, side, dtype=torch.float64, generator=generator) for _ in range(number)]


def test_a_measured_reach_is_the_exact_one_if_everything_matters() -> None:
    """With two calls of 2 pixels, a sample looks 4 pixels far through its noise, and 6 through the rates."""
    found = measure_reach(of({}), SampleRecipe(steps=2), given(), value_range=1e-7, side=96)
    assert found == Reach(sample=8, one_pass=None, denoiser=8)  # on the grid of 8


def test_mean_and_scale_are_measured_without_the_denoising_network() -> None:
    fields = {"mean_network": True, "linear_start": True, "read_once": True, "scale_network": True}
    found = measure_reach(of(fields), SampleRecipe(steps=4, solver="first_order"), given(), 1e-10, side=96)
    assert found is not None
    assert (found.one_pass, found.denoiser) == (16, 8)  # 7 + 2 + 4, and 4 * 2
    assert 16 <= found.sample <= 24  # at most their sum, whose last pixels have hardly any weight
    plain = of({"method": "regression", "linear_start": True})
    regression = measure_reach(plain, SampleRecipe(), given(), 1e-9, side=96)
    assert regression == Reach(sample=16, one_pass=16)  # 7 + 2


def test_noise_of_later_steps_is_cut_too() -> None:
    found = measure_reach(of({"schedule": "cosine"}), SampleRecipe(steps=3, eta=1.0), given(), 1e-9, side=96)
    assert found == Reach(sample=8, one_pass=None, denoiser=8)


def test_what_looks_too_far_is_not_measured() -> None:
    assert measure_reach(of({"norm": "instance"}), SampleRecipe(steps=2), given(), value_range=2.0) is None
    blurring = of({"linear_start": True, "method": "regression"})
    assert measure_reach(blurring, SampleRecipe(), given(side=40), 1e-9, side=96) == Reach(16, 16)
    assert measure_reach(blurring, SampleRecipe(), given(side=12), 1e-9) is None  # even with its mirrors
    assert measure_reach(blurring, SampleRecipe(), given(), float("nan"), side=96) is None


@pytest.mark.parametrize("wrong", [{"sample": -1}, {"sample": 8, "denoiser": 5000}])
def test_a_reach_that_no_image_needs_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 0 to 1024"):
        Reach(**wrong)


def test_mean_and_scale_are_read_without_rates_and_denoising_network() -> None:
    fields = {"mean_network": True, "linear_start": True, "read_once": True, "scale_network": True}
    assert reach_of_call(of(fields), reads_only=True) == 7 + 2 + 4
    assert reach_of_call(of({**fields, "norm": "instance"}), reads_only=True) is None
