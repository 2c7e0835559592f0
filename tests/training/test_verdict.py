"""One line after a training: the model beside the measured image and a blur, and whether more time would help."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from memory_pairs import Memory
from pair_folders import make_pairs
from sfumato.data.normalize import Normalization
from sfumato.models.recipe import Recipe, parse
from sfumato.physics.smoothing import gaussian_blur
from sfumato.statistics.metrics import psnr
from sfumato.training.train import train
from sfumato.training.validation import Validation
from sfumato.training.verdict import trend, verdict
from small_runs import recipe

SAME = Normalization((0.0,), (1.0,))
LINE = re.compile(
    r"^validation PSNR over 1 image: model -?\d+\.\d dB(, measured image -?\d+\.\d dB, best Gaussian blur -?\d+\.\d dB "
    r"\([\d.]+ pixels\))?; (.*)$",
    re.MULTILINE,
)


def noisy(truth: torch.Tensor, size: float) -> torch.Tensor:
    return truth + size * torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))


def validation_of(condition: torch.Tensor, target: torch.Tensor) -> Validation:
    pairs = Memory(list(condition.numpy()), list(target.numpy()))
    return Validation(pairs, SAME, SAME, 32)


@pytest.fixture(scope="module")
def truth() -> torch.Tensor:
    points = torch.rand(3, 1, 48, 48, generator=torch.Generator().manual_seed(0)) > 0.99
    return 100 * gaussian_blur(points.float(), 2.0)


def test_the_blur_is_the_best_and_the_model_is_its_own_psnr(truth: torch.Tensor) -> None:
    validation = validation_of(noisy(truth, 1.0), truth)
    measured, target = validation.images()
    found = verdict(validation, noisy(target, 0.1).split(1))
    assert found is not None
    assert found.num_images == 3
    assert found.model == pytest.approx(float(psnr(noisy(target, 0.1), target).mean()), abs=1e-3)
    assert found.measured == pytest.approx(float(psnr(measured, target).mean()), abs=1e-3)
    blurs = [float(psnr(gaussian_blur(measured, width), target).mean()) for width in np.arange(0.3, 6, 0.1)]
    assert found.blurred == pytest.approx(max(blurs), abs=0.1)
    assert found.measured is not None
    assert found.blurred is not None
    assert found.measured < found.blurred < found.model


def test_images_in_other_units_are_not_compared(truth: torch.Tensor) -> None:
    found = verdict(validation_of(500 - 3 * noisy(truth, 1.0), truth), truth.split(1))
    assert found is not None
    assert found.measured is None
    assert "blur" not in str(found)


def test_flat_images_are_left_out(truth: torch.Tensor) -> None:
    flat = torch.cat([truth, torch.zeros(1, 1, 48, 48)])
    found = verdict(validation_of(noisy(flat, 1.0), flat), noisy(flat, 0.1).split(1))
    assert found is not None
    assert found.num_images == 3
    nothing = torch.zeros(1, 1, 48, 48)
    assert verdict(validation_of(nothing, nothing), [nothing]) is None


def curve(*values: float) -> list[dict[str, float]]:
    """Validations after every 100 steps, among other lines."""
    points = [{"step": 100 * (place + 1), "validation": value} for place, value in enumerate(values)]
    return [{"step": 1, "loss": 1.0}, *points]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((4.0, 2.0, 1.5, 1.0), r"^more time would help: the validation error fell by 50% from step 200 to 400$"),
        ((4.0, 1.002, 1.0, 1.0), r"^more time would hardly help: .* changed by 0.2% from step 200 to 400$"),
        ((4.0, 1.0, 1.0, 1.1), r"^more time would not help, but more images may: .* rose by 10% from step 200 to 400$"),
        ((4.0,), r"^too few validations .*\(train.validate_every is 100\)$"),
        ((-1.0, -2.0), r"^its validation error is no ratio"),
    ],
)
def test_the_curve_tells_whether_more_time_would_help(values: tuple[float, ...], words: str) -> None:
    asked = parse(f"train: {{steps: {100 * len(values)}, validate_every: 100}}")
    assert re.search(words, trend(asked, curve(*values)))


def staged(**settings: object) -> Recipe:
    found = parse("{model: {mean_network: true}, train: {steps: 400, mean_share: 0.5}}")
    return found.model_copy(update={"train": found.train.model_copy(update=settings)})


def test_the_stage_of_the_mean_is_judged() -> None:
    assert "fell by 75% from step 100 to 200" in trend(staged(), curve(4.0, 1.0, 9.0, 9.0))


def test_of_an_extended_run_that_stage_is_compared_with_the_one_before() -> None:
    values = (4.0, 2.0, 9.0, 9.0, 3.0, 1.5, 9.0, 9.0)
    assert "fell by 25% from step 200 to 600" in trend(staged(steps=800, extended_at=(400,)), curve(*values))


def test_training_says_it_once_and_not_if_it_is_to_be_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = recipe(make_pairs(tmp_path), train_steps=4, train_validate_every=1)
    for place, quiet in (("loud", False), ("quiet", True)):
        train(asked, tmp_path / place, quiet=quiet)
        assert len(LINE.findall(capsys.readouterr().err)) == (not quiet)
    train(asked, tmp_path / "loud")
    assert not LINE.findall(capsys.readouterr().err), "it was finished already"
