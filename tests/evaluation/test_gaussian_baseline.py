"""The Gaussian blur as a baseline of `sfumato evaluate`: tuned on validation images, never on those of the test."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from memory_pairs import Memory
from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.data.images.io import write_image
from sfumato.evaluation.compared_methods import gaussian_method
from sfumato.physics.smoothing import gaussian_blur
from sfumato.system.errors import ImageError, RecipeError
from sfumato.training.train import train
from small_runs import recipe


def pairs(noise: float, *, slope: float = 1.0, channels: int = 1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    generator = torch.Generator().manual_seed(0)
    points = (torch.rand(4, channels, 64, 64, generator=generator) > 0.99).float()
    truth = 100 * gaussian_blur(points, 2.0)
    measured = slope * truth + noise * torch.randn(truth.shape, generator=generator)
    return list(measured.numpy()), list(truth.numpy())


def width_of(about: str) -> float:
    found = re.search(r"width ([\d.]+) pixels", about)
    assert found is not None
    return float(found[1])


def test_noisier_images_are_blurred_more() -> None:
    widths = [width_of(gaussian_method(None, Memory(*pairs(noise))).about) for noise in (0.0, 0.5, 2.0)]
    assert widths[0] == 0
    assert 0 < widths[1] < widths[2]


def test_units_do_not_count_if_scale_and_offset_are_fitted() -> None:
    same, other = (Memory(*pairs(0.5 * slope, slope=slope)) for slope in (1.0, 20.0))
    widths = [width_of(gaussian_method(None, source, affine=True).about) for source in (same, other)]
    assert widths[0] == widths[1] < width_of(gaussian_method(None, other).about)


def test_it_blurs_as_it_says_and_refuses_what_it_cannot() -> None:
    measured, truth = pairs(1.0)
    method = gaussian_method(1.5, None)
    assert method.about == "width 1.5 pixels, as given"
    expected = gaussian_blur(torch.from_numpy(measured[0])[None], 1.5)[0].numpy()
    np.testing.assert_array_equal(method.run(measured[0], 0), expected)
    with pytest.raises(RecipeError, match=r"none that are marked as `validation`.*--blur-pixels"):
        gaussian_method(None, None)
    with pytest.raises(ImageError, match="which has 2 channels, and the truth has 1"):
        gaussian_method(None, Memory(pairs(1.0, channels=2)[0], truth))


def test_the_command_tunes_on_what_is_marked(tmp_path: Path) -> None:
    """Validation images are noisy and test images are not; a width above 0 shows what it was tuned on."""
    lines = ["input,target,split"]
    for split, noise in (("validation", 2.0), ("test", 0.0)):
        for number, sides in enumerate(zip(*pairs(noise), strict=True)):
            names = [f"{split}{number}_{side}.npy" for side in ("low", "high")]
            for name, image in zip(names, sides, strict=True):
                write_image(tmp_path / name, image[0], axes="YX")
            lines.append(f"{names[0]},{names[1]},{split}")
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    asked = [
        "evaluate",
        "--baseline",
        "gaussian",
        "--manifest",
        str(tmp_path / "list.csv"),
        "--out",
        str(tmp_path / "o"),
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "on 4 validation images" in done.output
    assert width_of(done.output) > 1
    given = CliRunner().invoke(app, [*asked, "--blur-pixels", "0.5"])
    assert width_of(given.output) == 0.5


def test_the_command_tunes_on_the_models_own_and_not_on_folders_for_a_test(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    model = str(train(recipe(folders, train_steps=2), tmp_path / "run", quiet=True).model_file)
    asked = ["evaluate", model, "--baseline", "gaussian", "--samples", "2", "--out", str(tmp_path / "out")]
    own = CliRunner().invoke(app, [*asked, "--from-recipe"])
    assert own.exit_code == 0, own.output
    assert "on 1 validation images" in own.output
    other = CliRunner().invoke(app, [*asked, "--inputs", folders[0], "--targets", folders[1], "--allow-seen"])
    assert other.exit_code == 2
    assert "--blur-pixels" in other.output
