"""Hints at uncertainty without samples: the map by closed forms, and what `--uncertainty schedule` writes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from networks import seeded
from pair_folders import make_pairs
from sfumato import load, restore
from sfumato.cli import app
from sfumato.data.images.io import open_image
from sfumato.diffusion.schedule import LearnedSchedule, LinearSchedule, PaperSchedule
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.nn import UNet
from sfumato.restoration.conditions import condition_of
from sfumato.statistics.significance import rank_correlation
from sfumato.system.errors import ImageError
from sfumato.training.train import train
from small_runs import recipe


class _Ramp(nn.Module):
    """Raw rates that grow from left to right."""

    def forward(self, condition: Tensor) -> Tensor:
        return torch.linspace(-2, 2, condition.shape[-1]).expand(condition.shape)


def test_the_integral_of_beta() -> None:
    """The rate itself where rho(1) = 1; for a linear schedule T times the mean of its ends."""
    bound = LearnedSchedule(_Ramp())(torch.zeros(1, 1, 12, 16))
    np.testing.assert_allclose(integral_of_beta(bound), bound.rate.detach().numpy(), rtol=1e-4)
    linear = integral_of_beta(LinearSchedule.named("qpi")(torch.zeros(1, 1, 4, 4)))
    np.testing.assert_allclose(linear, 400 * (1e-4 + 0.02) / 2, rtol=1e-5)
    paper = PaperSchedule(seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel")))(torch.zeros(1, 1, 8, 8))
    t = torch.linspace(0, 1, 20_001)
    exact = torch.trapezoid(paper.warp(t).tau, t) * paper.rate
    np.testing.assert_allclose(integral_of_beta(paper), exact.detach().numpy(), rtol=1e-4)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return train(recipe(make_pairs(folder), train_steps=6), folder / "run", quiet=True).model_file


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make_pairs(tmp_path_factory.mktemp("images"), number=1, shape=(40, 48))[0]) / "image0.tif"


def test_the_hint_of_an_array_is_the_integral_of_beta_and_one_sample_will_do(model_file: Path, image: Path) -> None:
    model, pixels = load(model_file), open_image(image).read({})
    restored = restore(pixels, model, num_samples=1, uncertainty="schedule")
    condition = condition_of(pixels, model).condition()
    with torch.no_grad():
        rate = model.model.schedule(condition).rate[0, 0].numpy()
    assert restored.std is None
    assert restored.hint is not None
    assert np.ptp(rate) > 0
    np.testing.assert_allclose(restored.hint, rate, rtol=1e-4)
    tiles = restore(pixels, model, num_samples=1, uncertainty="schedule", tile=16).hint
    assert tiles is not None
    np.testing.assert_allclose(tiles, rate, rtol=1e-4)
    two = restore(pixels, model, num_samples=2)
    assert two.hint is None
    with pytest.raises(ImageError, match="needs at least 2"):
        restore(pixels, model, num_samples=1)


@pytest.mark.parametrize("norm", ["population", "channel", "instance"])
def test_the_command_writes_the_map_in_place_of_the_standard_deviation(tmp_path: Path, image: Path, norm: str) -> None:
    """In chunks too, and with statistics of the image: seams would show as differences from the whole."""
    made = train(recipe(make_pairs(tmp_path), train_steps=6, model_norm=norm), tmp_path / "run", quiet=True).model_file
    options = ["--samples", "1", "--uncertainty", "schedule", "--chunk", "32", "--picture", str(tmp_path / "all.png")]
    done = CliRunner().invoke(app, ["restore", str(made), str(image), str(tmp_path / "out.zarr"), *options])
    assert done.exit_code == 0, done.output
    assert "not a standard deviation" in done.output
    assert not (tmp_path / "out_std.zarr").exists()
    written = open_image(tmp_path / "out_schedule.zarr")
    assert "not a standard deviation" in (tmp_path / "out_schedule.zarr" / "zarr.json").read_text(encoding="utf-8")
    whole = restore(open_image(image).read({}), load(made), num_samples=1, uncertainty="schedule")
    assert whole.hint is not None
    pixels = np.asarray(written.read({}))
    if norm == "channel":
        np.testing.assert_allclose(pixels, whole.hint, rtol=1e-4)
    else:  # the statistics are those of a region, so near but not equal
        assert rank_correlation(pixels, whole.hint) > 0.8
    shown = CliRunner().invoke(
        app,
        ["restore", str(made), str(image), str(tmp_path / "x.tif"), *options[:4], "--preview", str(tmp_path / "p.png")],
    )
    assert shown.exit_code == 0, shown.output


def test_schedules_that_are_the_same_everywhere_are_refused(tmp_path: Path, image: Path) -> None:
    folders = make_pairs(tmp_path)
    for name, settings in (("global", {"model_schedule": "global"}), ("regression", {"model_method": "regression"})):
        made = train(recipe(folders, train_steps=2, **settings), tmp_path / name, quiet=True).model_file
        with pytest.raises(ImageError, match="same for all pixels"):
            restore(open_image(image).read({}), load(made), uncertainty="schedule")
        command = ["restore", str(made), str(image), str(tmp_path / f"{name}.tif"), "--uncertainty", "schedule"]
        assert CliRunner().invoke(app, command).exit_code == 2
