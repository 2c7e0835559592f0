"""A model that remembers what images it was trained on, without a training."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.domain import corners, fit_domain
from sfumato.data.normalize import Normalization, fit_together
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, ModelInfo
from sfumato.models.recipe import parse

__all__ = ["model_of"]

SIDE = 32


def model_of(images: list[NDArray[Any]], *, described: bool = True) -> LoadedModel:
    """A model with random weights that remembers images (K, H, W) as if it had been trained on them."""
    recipe = parse(f"model: {{base: 4, rate_base: 4, num_scales: 2}}\nsample: {{steps: 1}}\ndata: {{patch: {SIDE}}}")
    rng = np.random.default_rng(0)
    patches = []
    for image in images:
        places = list(corners(image.shape[1:], SIDE))
        kept = rng.permutation(len(places))[:16]
        patches.append([image[:, y : y + SIDE, x : x + SIDE] for y, x in (places[place] for place in kept)])
    domain = fit_domain(patches, SIDE)
    assert domain is not None
    (condition,) = fit_together("quantile", [(image[None],) for image in images])
    target = Normalization((0.0,), (1.0,))
    audit: Any = {"domain": domain.to_json()} if described else {}
    info = ModelInfo(recipe, 1, 1, condition, target, audit, {}, factor=(1, 1))
    return LoadedModel(build_model(recipe.model, 1, 1).eval(), info, "0")
