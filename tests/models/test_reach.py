"""How far one call of all networks looks: the sum along the networks that see each other's output."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from networks import seeded
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.reach import reach_of_call
from sfumato.models.recipe import ModelRecipe

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
        ({"mean_network": True, "read_once": True, "scale_network": True, "schedule": "cosine"}, 2 + 2 + 2),
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
