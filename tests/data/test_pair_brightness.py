"""Whether brightness differs from pair to pair is measured before training, and the setting that helps is told."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from memory_pairs import Memory
from sfumato.audit.structures import smooth
from sfumato.cli import app
from sfumato.data.images.io import write_image
from sfumato.data.pair_brightness import brightness_note, slope_between
from sfumato.data.pair_middles import middles
from sfumato.models.recipe import parse
from sfumato.training.preparation import prepare
from small_runs import command

DATA = os.environ.get("SFUMATO_DATA")


def scene(seed: int, side: int = 128) -> NDArray[Any]:
    return np.asarray(100 + 500 * smooth(np.random.default_rng(seed).standard_normal((side, side)), 6.0))


def exposed(truth: NDArray[Any], slope: float, seed: int) -> NDArray[Any]:
    """What a microscope makes of it: blurred, of another brightness, with as much noise as contrast."""
    blurred = slope * smooth(truth, 2.0) + 30
    return np.asarray(blurred + blurred.std() * np.random.default_rng(1000 + seed).standard_normal(truth.shape))


def source(slopes: list[float]) -> Memory:
    truths = [scene(seed) for seed in range(len(slopes))]
    inputs = [exposed(truth, slope, seed) for seed, (truth, slope) in enumerate(zip(truths, slopes, strict=True))]
    return Memory([image[None] for image in inputs], [truth[None] for truth in truths])


@pytest.mark.parametrize("slope", [0.2, 1.0, 40.0])
def test_a_slope_is_measured_in_spite_of_noise_and_blur(slope: float) -> None:
    found = [slope_between(exposed(scene(seed), slope, seed), scene(seed)) for seed in range(8)]
    np.testing.assert_allclose(np.array(found, float), slope, rtol=0.1)


def test_images_with_nothing_in_common_have_none() -> None:
    assert slope_between(scene(0), scene(500)) is None
    assert slope_between(-scene(0), scene(0)) is None
    assert slope_between(np.full((64, 64), 3.0), scene(0, 64)) is None
    assert slope_between(np.full((64, 64), np.nan), scene(0, 64)) is None
    assert slope_between(scene(0, 16), scene(0, 16)) is None


def test_what_is_told() -> None:
    assert brightness_note(middles(source([0.5] * 8))) is None
    assert brightness_note(middles(source([0.5] * 19 + [5.0]))) is None, "one odd pair is no reason"
    told = brightness_note(middles(source([0.4, 0.5, 0.6, 0.7, 0.8, 0.9])))
    assert told is not None
    assert "brightness differs from pair to pair: in 6 checked pairs one unit of the target is 0.4" in told
    assert "add --set data.match_intensity=true" in told


def test_the_command_tells_it_until_it_is_followed(tmp_path: Path) -> None:
    for number, slope in enumerate([0.4, 0.5, 0.6, 0.7, 0.8, 0.9]):
        truth = scene(number, 64)
        for name, image in (("low", exposed(truth, slope, number)), ("high", truth)):
            (tmp_path / name).mkdir(exist_ok=True)
            write_image(tmp_path / name / f"{number}.tif", image.astype(np.float32), axes="YX")
    folders = str(tmp_path / "low"), str(tmp_path / "high")
    plain, followed = (
        CliRunner().invoke(app, command(folders, tmp_path / str(number), "train.steps=2", "model.num_scales=1", *more))
        for number, more in enumerate([(), ("data.match_intensity=true",)])
    )
    assert (plain.exit_code, followed.exit_code) == (0, 0), plain.output + followed.output
    assert "note: brightness differs from pair to pair" in plain.stderr
    assert "brightness differs" not in followed.stderr


@pytest.mark.skipif(DATA is None, reason="set SFUMATO_DATA to the folder of image sets")
@pytest.mark.parametrize(
    ("inputs", "targets", "is_told"),
    [
        ("fluor_denoise_w2s/train/noisy", "fluor_denoise_w2s/train/clean", True),
        ("fluor_denoise_fmd/raw", "fluor_denoise_fmd/gt", False),
    ],
    ids=["each image stretched", "one scale"],
)
def test_real_pairs(inputs: str, targets: str, is_told: bool) -> None:
    places = Path(DATA or "") / inputs, Path(DATA or "") / targets
    recipe = parse(f"data: {{inputs: {places[0]}, targets: {places[1]}, validation_fraction: 0}}")  # truths repeat
    notes = prepare(recipe).notes
    assert any("brightness differs" in note for note in notes) == is_told
