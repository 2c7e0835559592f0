"""Figures: the numbers in them by closed forms, and every one of them drawn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typer.testing import CliRunner

from networks import seeded
from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.diffusion.schedule import CosineSchedule, LearnedSchedule, Schedule
from sfumato.evaluation.inspection import describe, draw_posterior, read_image
from sfumato.figures.network_diagram import draw_network, trace
from sfumato.figures.schedule_and_samples import (
    draw_comparison,
    draw_gamma,
    draw_sample_grid,
    draw_schedule,
    otsu,
    zones,
)
from sfumato.models.model_file import load
from sfumato.nn import SR3UNet, UNet
from sfumato.nn.dfcan import DFCAN
from sfumato.training.train import train
from small_runs import recipe


class _Ramp(nn.Module):
    """Raw rates that grow from left to right."""

    def forward(self, condition: Tensor) -> Tensor:
        return torch.linspace(-2, 2, condition.shape[-1]).expand(condition.shape)


def ramp() -> Schedule:
    bound: Schedule = LearnedSchedule(_Ramp()).requires_grad_(False)(torch.zeros(1, 1, 12, 16))
    return bound


def curves(schedule: Schedule, target: NDArray[np.float64]) -> list[list[NDArray[np.float64]]]:
    figure = draw_schedule(schedule, target)
    return [[np.asarray(line.get_ydata()) for line in plot.lines] for plot in figure.axes[2:4]]


def test_otsu_parts_two_clusters_and_maximises_the_variance_between_classes() -> None:
    generator = np.random.default_rng(0)
    image = np.concatenate([generator.normal(0, 1, 3000), generator.normal(10, 1, 1000)])

    def between(threshold: float) -> float:
        low, high = image[image <= threshold], image[image > threshold]
        return float(len(low) * len(high) * (low.mean() - high.mean()) ** 2)

    found = otsu(image)
    assert 2 < found < 8
    step = np.ptp(image) / 256
    best = max(between(image.min() + step * place) for place in range(1, 256))
    assert between(found) == pytest.approx(best, rel=1e-3)


def test_a_comparison_shows_every_method_with_its_error_on_one_scale() -> None:
    generator = np.random.default_rng(0)
    truth = generator.normal(size=(24, 20))
    figure = draw_comparison(truth, {"poor": truth + 0.5, "good": truth - 0.125}, truth, unit="rad")
    titles = {axes.get_title(): axes for axes in figure.axes if axes.images}
    assert [*titles] == ["input", "poor", "good", "truth", "error, mean 0.5 rad", "error, mean 0.125 rad"]
    scales = [titles[title].images[0].get_clim() for title in titles if "error" in title]
    assert scales[0] == scales[1] == pytest.approx((0, 0.5))


def test_images_are_grey_and_maps_of_numbers_coloured_wherever_black_lies() -> None:
    generator = np.random.default_rng(0)
    truth = generator.uniform(size=(24, 20)).clip(0.5) - 0.5
    figure = draw_sample_grid(truth, truth + generator.normal(size=(6, 24, 20)) ** 2, truth, truth)
    colours = {axes.get_title(): axes.images[0].get_cmap().name for axes in figure.axes if axes.images}
    assert colours["truth"] == colours["sample 1"] == colours["zone 1"] == "gray"
    assert colours["error against truth"] == colours["variance of 6 samples"] == "inferno"


def test_zones_are_where_variance_is_and_do_not_overlap() -> None:
    variance = np.zeros((64, 96))
    variance[10:26, 70:86] = 2
    variance[40:56, 8:24] = 1
    assert zones(variance, side=16) == [(10, 70, 16), (40, 8, 16)]
    assert len(zones(np.ones((12, 12)))) == 1


def test_averages_over_structure_and_background() -> None:
    """The right half is structure and has the larger rates."""
    bound, target = ramp(), np.zeros((12, 16))
    target[:, 8:] = 1
    (beta_in, beta_out), (gamma_in, gamma_out) = curves(bound, target)
    t = torch.linspace(0, 1, 201)
    exact = bound.beta(t[100])[0, 0, :, 8:].mean()
    assert beta_in[100] == pytest.approx(float(exact), rel=1e-5)
    assert bool((beta_in[1:] > beta_out[1:]).all())
    assert bool((gamma_in[1:] < gamma_out[1:]).all())
    line = draw_gamma(bound).axes[0].lines[0]
    gamma_middle = float(bound.gamma(t[100]).mean())
    assert np.asarray(line.get_ydata())[100] == pytest.approx(gamma_middle, rel=1e-5)


def test_a_schedule_that_is_the_same_everywhere_can_be_drawn() -> None:
    (inside, outside), _ = curves(CosineSchedule()(torch.zeros(1, 1, 4, 4)), np.eye(4))
    np.testing.assert_allclose(inside, outside, rtol=1e-6)


def test_diagrams_follow_the_code() -> None:
    parts = {part.name: part for part in trace(seeded(lambda: UNet(3, 1, base=4, num_scales=3, norm="channel")), 3)}
    names = list(parts)
    assert names == ["down 0", "down 1", "down 2", "lift 0", "up 0", "lift 1", "up 1", "head"]
    assert [parts[name].skip for name in names] == [None, None, None, None, 1, None, 0, None]
    assert [parts[name].side for name in names] == [16, 8, 4, 8, 8, 16, 16, 16]
    assert (parts["up 0"].takes, parts["up 0"].gives) == (16, 8)
    assert parts["up 0"].made_of == "2 Conv2d 3x3, 2 ChannelNorm"
    larger = trace(seeded(lambda: SR3UNet(3, 1, base=8, multipliers=(1, 2), num_blocks=1)), 3)
    downward = [number for number, part in enumerate(larger) if part.name in ("stem", "down 0", "down 1", "down 2")]
    assert sorted(part.skip for part in larger if part.skip is not None) == downward  # each is taken once
    doubled = trace(DFCAN(1, 1, base=16, scale=2, num_groups=1), 1)
    assert doubled[-1].side == 2 * doubled[0].side
    assert "weights" in draw_network(DFCAN(1, 1, base=16), 1).axes[0].get_title()


def test_the_command_draws_every_figure(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    diffusion = train(recipe(folders, train_steps=2), tmp_path / "run", quiet=True).model_file
    image, truth = (str(Path(folder) / "image0.tif") for folder in folders)
    command = ["inspect", str(diffusion), image, "--allow-seen", "--samples", "5", "--steps", "2", "--out"]
    done = CliRunner().invoke(app, [*command, str(tmp_path / "known"), "--target", truth])
    assert done.exit_code == 0, done.output
    assert "schedule: learned" in done.output
    expected = {"network", "rate_network", "schedule", "gamma", "mean_and_std", "samples"}
    assert {path.stem for path in (tmp_path / "known").iterdir()} == expected
    assert CliRunner().invoke(app, [*command, str(tmp_path / "unknown")]).exit_code == 0
    settings = {"model_method": "regression", "train_steps": 2}
    regression = train(recipe(folders, **settings), tmp_path / "regression", quiet=True).model_file
    refused = CliRunner().invoke(
        app, ["inspect", str(regression), image, "--allow-seen", "--out", str(tmp_path / "none")]
    )
    assert refused.exit_code == 2
    assert "no schedule and no samples" in refused.output
    assert {path.stem for path in (tmp_path / "none").iterdir()} == {"network"}


def test_a_truth_is_drawn_in_the_units_of_a_model_that_scales_each_image_by_itself(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    made = train(recipe(folders, train_steps=2, data_normalize="image"), tmp_path / "run", quiet=True)
    model = load(made.model_file)
    paths = [Path(folder) / "image0.tif" for folder in folders]
    seen, truth = read_image(model, paths[0], paths[1], allow_seen=True)
    assert truth is not None
    brighter = 1000 * truth.astype(np.float64) + 7
    drawn = [
        draw_posterior(model, seen, tmp_path / name, target=target, num_samples=2, num_steps=2)
        for name, target in (("as measured", truth), ("brighter", brighter))
    ]
    for one, other in zip(*drawn, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert "step: 2" in describe(model)
