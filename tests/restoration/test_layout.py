"""Halos: what was chosen before a model was measured stays, and `reach` is all that one call looks at."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from networks import seeded
from sfumato.cli import app
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, ModelInfo
from sfumato.models.recipe import parse
from sfumato.restoration.layout import choose_layout
from sfumato.system.errors import RecipeError
from untrained_models import noise, write_model


def loaded(text: str) -> LoadedModel:
    recipe, unit = parse(text), Normalization((0.0,), (1.0,))
    return LoadedModel(seeded(lambda: build_model(recipe.model, 1, 1)), ModelInfo(recipe, 1, 1, unit, unit, {}, {}), "")


@pytest.mark.parametrize(
    ("text", "usual", "of_call"),
    [
        ("model: {base: 2, rate_base: 2}", 128, 256),  # version 0.1: 122, and 122 + 122
        ("model: {base: 2, rate_base: 2, num_scales: 3}", 64, 56),  # 26 + 26
        ("model: {base: 2, rate_base: 2, mean_network: true, linear_start: true}", 128, 256),  # 7 + 122 + 122
        ("{preset: small, model: {base: 2, rate_base: 2, denoiser_base: 2}}", 192, 192),  # 7 + 122 + 2 + 58
    ],
)
def test_the_usual_halo_stays_and_reach_is_the_sum(text: str, usual: int, of_call: int) -> None:
    model = loaded(text)
    assert choose_layout(model, (4096, 4096), 16).halo == usual
    assert choose_layout(model, (4096, 4096), 16, halo="reach").halo == of_call


def test_a_network_that_sees_the_whole_image_has_no_exact_halo() -> None:
    model = loaded("model: {base: 2, rate_base: 2, norm: instance}")
    assert choose_layout(model, (4096, 4096), 16).halo == 128
    with pytest.raises(RecipeError, match="a network of this model looks at the whole image"):
        choose_layout(model, (4096, 4096), 16, halo="reach")


def test_the_command_takes_pixels_or_reach(tmp_path: Path) -> None:
    import tifffile

    model, image = write_model(tmp_path / "model.safetensors"), tmp_path / "image.tif"
    tifffile.imwrite(image, noise(96, 80))
    begin = ["restore", str(model), str(image), str(tmp_path / "out.zarr"), "--samples", "2", "--steps", "2"]
    done = CliRunner().invoke(app, [*begin, "--chunk", "32", "--halo", "reach"])
    assert done.exit_code == 0, done.output
    same = CliRunner().invoke(app, [*begin, "--chunk", "32", "--halo", "56"])
    assert same.exit_code == 0, same.output
    assert "already restored" in same.output
    refused = CliRunner().invoke(app, [*begin, "--halo", "far"])
    assert refused.exit_code == 2
    assert "--halo is 'far'" in refused.output
