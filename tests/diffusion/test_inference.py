"""A model rewritten for inference draws the same samples."""

import pytest
import torch
from torch import Tensor

from networks import seeded
from sfumato import sample
from sfumato.diffusion.inference import for_inference
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.recipe import ModelRecipe
from sfumato.nn.fused import FusedUNet

READ_ONCE = {
    "mean_network": True,
    "linear_start": True,
    "read_once": True,
    "scale_network": True,
    "activation": "silu",
    "denoiser_base": 4,
    "denoiser_scales": 3,
}
KINDS: dict[str, dict[str, object]] = {
    "version 0.1": {},
    "read once": READ_ONCE,
    "regression": {"method": "regression"},
    "mean beside": {"mean_network": True},
    "volumes": {**READ_ONCE, "ndim": 3},
    "channel normalisation": {"norm": "channel"},
    "instance normalisation": {"norm": "instance"},
    "other networks": {"network": "sr3"},
}


def model_of(kind: str) -> CVDM:
    recipe = ModelRecipe.model_validate({"base": 4, "rate_base": 4, "num_scales": 3, **KINDS[kind]})
    return seeded(lambda: build_model(recipe, 2, 1)).double().eval()


def condition_for(kind: str, *, batch: int = 1) -> Tensor:
    spatial = (6, 10, 9) if kind == "volumes" else (50, 37)
    return torch.randn(batch, 2, *spatial, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 2])
def test_samples_are_those_of_the_model(kind: str, batch: int) -> None:
    model, condition = model_of(kind), condition_for(kind, batch=batch)
    options = {"num_samples": 3, "num_steps": 3, "seed": 0}
    expected = sample(model, condition, **options)  # type: ignore[arg-type]
    found = sample(for_inference(model), condition, **options)  # type: ignore[arg-type]
    assert expected.std() > 0.001
    assert torch.allclose(found, expected, rtol=0, atol=1e-11)


def test_the_condition_is_read_by_the_network_only_once() -> None:
    model = model_of("read once")
    rewritten = for_inference(model)
    known = rewritten.read(condition_for("read once"))
    assert isinstance(rewritten.network, FusedUNet)
    assert rewritten.network.num_read == rewritten.network.in_channels - 2
    assert known.seen.shape == (1, 4, 52, 40)
    drawn = sample(rewritten, condition_for("read once"), num_samples=2, num_steps=2, seed=0, known=known)
    assert torch.equal(drawn, sample(rewritten, condition_for("read once"), num_samples=2, num_steps=2, seed=0))


def test_the_model_stays_as_it_is() -> None:
    model = model_of("read once")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    networks = list(model.modules())
    sample(for_inference(model), condition_for("read once"), num_samples=2, num_steps=2, seed=0)
    assert all(a is b for a, b in zip(networks, model.modules(), strict=True))
    assert type(model) is CVDM
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
