"""Baselines: closed forms of the classical filters, the published DFCAN, and regression by the loop of all models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import sfumato
from networks import seeded
from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.diffusion.reading import Residual
from sfumato.diffusion.regression import Regression
from sfumato.models.build import build_model
from sfumato.models.recipe import ModelRecipe, parse
from sfumato.nn import UNet
from sfumato.nn.dfcan import DFCAN
from sfumato.physics import optics
from sfumato.physics.deconvolution import bicubic, richardson_lucy, wiener
from sfumato.physics.grid import Boundary
from sfumato.restoration.run import restore_file
from sfumato.system.errors import RecipeError
from sfumato.training.train import train
from small_runs import recipe

OPTICS: dict[str, Any] = {"cutoff": 5.0, "pixel_um": 0.06}


def points(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) > 0.97).double()


@pytest.mark.parametrize("frequency", [0, 1, 5, 9, 12])
def test_wiener_is_the_analytic_filter(frequency: int) -> None:
    """A wave of transfer h is restored by h / (h^2 + NSR); beyond the cut-off nothing is left of it."""
    size = 40
    x = torch.arange(size, dtype=torch.float64)
    wave = torch.cos(2 * torch.pi * frequency * x / size).expand(32, size)
    q = min(frequency / (size * OPTICS["pixel_um"]) / OPTICS["cutoff"], 1.0)
    h = 2 / np.pi * (np.arccos(q) - q * np.sqrt(1 - q**2))
    blurred = optics.blur(wave, boundary="periodic", **OPTICS)
    torch.testing.assert_close(blurred, h * wave, rtol=0, atol=1e-12)
    restored = wiener(blurred, noise_to_signal=0.05, boundary="periodic", **OPTICS)
    torch.testing.assert_close(restored, h**2 / (h**2 + 0.05) * wave, rtol=0, atol=1e-12)


def test_wiener_has_the_least_error_at_the_true_noise_to_signal_ratio() -> None:
    """White specimen of variance 1, white noise of variance 0.05."""
    generator = torch.Generator().manual_seed(0)
    specimen, noise = torch.randn(2, 256, 256, generator=generator, dtype=torch.float64)
    measured = optics.blur(specimen, boundary="periodic", **OPTICS) + 0.05**0.5 * noise
    errors = [
        float((wiener(measured, noise_to_signal=ratio, boundary="periodic", **OPTICS) - specimen).square().mean())
        for ratio in (0.005, 0.05, 0.5)
    ]
    assert errors[1] < min(errors[0], errors[2])


@pytest.mark.parametrize("boundary", ["even", "periodic"])
def test_richardson_lucy_conserves_flux_and_sharpens(boundary: Boundary) -> None:
    specimen = 100 * points(2, 33, 48) + 1
    measured = optics.blur(specimen, boundary=boundary, **OPTICS)
    restored = richardson_lucy(measured, num_iterations=10, boundary=boundary, **OPTICS)
    torch.testing.assert_close(restored.sum((-2, -1)), measured.sum((-2, -1)), rtol=1e-9, atol=0)
    assert float(restored.min()) >= 0
    assert (restored - specimen).square().mean() < 0.95 * (measured - specimen).square().mean()


def test_the_truth_is_a_fixed_point_of_richardson_lucy_in_likelihood() -> None:
    """Each iteration raises the Poisson likelihood of the measured light."""
    measured = optics.blur(50 * points(32, 32) + 1, boundary="periodic", **OPTICS)

    def log_likelihood(number: int) -> float:
        expected = optics.blur(
            richardson_lucy(measured, num_iterations=number, boundary="periodic", **OPTICS),
            boundary="periodic",
            **OPTICS,
        )
        return float((measured * expected.log() - expected).sum())

    values = [log_likelihood(number) for number in (1, 2, 4, 8, 16)]
    assert values == sorted(values)


def test_dark_images_stay_dark() -> None:
    assert float(richardson_lucy(torch.zeros(16, 16), **OPTICS).abs().max()) == 0


def test_bicubic_keeps_a_plane_inside() -> None:
    plane = torch.arange(12.0).expand(2, 12, 12)
    finer = bicubic(plane, 2)[0, 12]
    torch.testing.assert_close(finer[8:16].diff(), torch.full((7,), 0.5))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wiener(torch.zeros(8, 8), noise_to_signal=0, **OPTICS), "above 0"),
        (lambda: richardson_lucy(torch.zeros(8, 8), num_iterations=0, **OPTICS), "at least 1"),
        (lambda: bicubic(torch.zeros(8, 8), 0), "at least 1"),
        (lambda: DFCAN(1, 1, scale=0), "scale is 0"),
    ],
)
def test_wrong_settings_say_what_to_give(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]


def test_dfcan_has_the_published_layers() -> None:
    """Weights of the authors' network for one channel at twice the sampling, counted by hand."""
    square, block = 64 * 64 * 9 + 64, 64 * 4 + 4 + 4 * 64 + 64
    expected = (9 * 64 + 64) + 16 * (3 * square + block) + (64 * 256 * 9 + 256) + (64 * 9 + 1)
    assert sum(parameter.numel() for parameter in DFCAN(1, 1, scale=2).parameters()) == expected


def test_dfcan_attention_follows_the_spectrum() -> None:
    """Its weights see amplitudes of the spectrum alone: shifting a periodic image shifts the attended features."""
    from sfumato.nn.dfcan import _power

    image = torch.rand(1, 2, 9, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(_power(image), _power(image.roll((3, 5), (-2, -1))))
    flat = _power(torch.ones(1, 1, 8, 8))
    assert flat.argmax() == 4 * 8 + 4  # frequency 0 stands in the middle
    assert flat.max() == pytest.approx(8**0.8)


def test_dfcan_learns_and_all_its_weights_have_gradients() -> None:
    network = seeded(lambda: DFCAN(2, 1, base=16, num_groups=2, num_blocks=1))
    network(torch.rand(2, 2, 17, 20, generator=torch.Generator().manual_seed(0))).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize(("residual", "channels"), [(False, 1), (True, 1), ("last", 3)])
def test_regression_is_its_network_whatever_time_and_noise(residual: Residual, channels: int) -> None:
    model = Regression(seeded(lambda: UNet(channels, 1, base=4, num_scales=2, norm="channel")), residual=residual)
    generator = torch.Generator().manual_seed(0)
    target, eps = torch.randn(2, 2, 1, 16, 16, generator=generator)
    condition = torch.randn(2, channels, 16, 16, generator=generator)
    output = model.network(condition) + (condition[:, -1:] if residual else 0)
    torch.testing.assert_close(
        model.loss(condition, target, torch.rand(2), eps).total, (output - target).square().mean()
    )
    draws = sfumato.sample(model, condition, num_samples=2, num_steps=3, seed=0)
    torch.testing.assert_close(draws, output.detach().expand(2, *output.shape))


def test_regression_trains_resumes_and_restores_without_uncertainty(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    settings = {"model_method": "regression", "model_network": "dfcan", "train_save_every": 3, "train_steps": 6}
    whole = train(recipe(folders, **settings), tmp_path / "whole", quiet=True)
    (whole.checkpoints / "step-00000006.safetensors").unlink()
    bytes_before = whole.model_file.read_bytes()
    train(recipe(folders, **settings), tmp_path / "whole", quiet=True)
    assert whole.model_file.read_bytes() == bytes_before
    values = [line["validation"] for line in whole.metrics() if "validation" in line]
    assert all(value > 0 for value in values)
    model = sfumato.load(whole.model_file)
    assert isinstance(model.model, Regression)
    measured = np.random.default_rng(0).random((20, 26), dtype=np.float32)
    restored = sfumato.restore(measured, model)
    assert restored.std is None
    assert restored.mean.shape == (20, 26)
    write_image(tmp_path / "in.tif", measured, axes="YX")
    names = [str(tmp_path / name) for name in ("in.tif", "out.tif", "picture.png")]
    done = CliRunner().invoke(app, ["restore", str(whole.model_file), *names[:2], "--picture", names[2]])
    assert done.exit_code == 0, done.output
    assert "none, since this model is a regression" in done.output
    np.testing.assert_array_equal(open_image(tmp_path / "out.tif").read(), restored.mean)
    assert not (tmp_path / "out_std.tif").exists()
    assert len(restore_file(whole.model_file, tmp_path / "in.tif", tmp_path / "again.tif")) == 1


def test_schedule_ends_reach_the_model() -> None:
    small = {"base": 4, "num_scales": 2}
    linear = ModelRecipe.model_validate({**small, "schedule": "linear_qpi", "beta_ends": [0.001, 0.04]})
    bound = build_model(linear, 1, 1).schedule(torch.zeros(1, 1, 4, 4))
    torch.testing.assert_close(bound.beta(torch.tensor([0.0, 1.0])).flatten(), torch.tensor([0.4, 16.0]))
    cosine = ModelRecipe.model_validate({**small, "schedule": "cosine", "gamma_end": 0.01})
    bound = build_model(cosine, 1, 1).schedule(torch.zeros(1, 1, 4, 4))
    assert bound.gamma(torch.ones(())).item() == pytest.approx(0.01)
    for schedule in ("learned", "global"):
        rates = ModelRecipe.model_validate({**small, "rate_base": 4, "schedule": schedule, "rate_ends": [7, 47]})
        bound = build_model(rates, 1, 1).schedule(torch.zeros(1, 1, 4, 4))
        assert bound.rate.detach().flatten()[0].item() == pytest.approx(12)
        assert bound.reference_rate == 7


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method": "regression", "mean_network": True}, "its own mean"),
        ({"network": "dfcan", "ndim": 3}, "images only"),
    ],
)
def test_recipes_that_contradict_themselves(values: dict[str, object], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        build_model(ModelRecipe.model_validate({"base": 4, "rate_base": 4, "num_scales": 2, **values}), 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "{beta_ends: [0.1, 0.2]}",
        "{schedule: linear_qpi, gamma_end: 0.1}",
        "{rate_ends: [30, 6]}",
        "{schedule: cosine, rate_ends: [6, 30]}",
    ],
)
def test_ends_belong_to_their_schedule(text: str) -> None:
    with pytest.raises(RecipeError, match=r"leave it out|smaller rate first"):
        parse(f"model: {text}")
