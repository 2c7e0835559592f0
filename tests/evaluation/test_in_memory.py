"""Calibrate and evaluate on pairs in memory; the truths are drawn, so what must come out is known."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sfumato
from sfumato import CVDM
from sfumato.diffusion.schedule import CosineSchedule
from sfumato.evaluation.evaluate import summarise
from sfumato.models.own_model import own_model
from sfumato.system.errors import CalibrationError, ImageError, PairingError


class Nothing(nn.Module):
    """Predicts no velocity at all: samples are noise around 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        return images[:, :1] * self.weight


class Pairs:
    """A dataset as torch has them: it counts and gives, and is no list."""

    def __init__(self, number: int, spread: float = 1.0, side: int = 24) -> None:
        drawn = np.random.default_rng(7).standard_normal((number, side, side))
        self.truths = (spread * drawn).astype(np.float32)

    def __len__(self) -> int:
        return len(self.truths)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return torch.from_numpy(self.truths[index] + 0.5), self.truths[index]


def model() -> CVDM:
    return CVDM(CosineSchedule(), Nothing())


def calibrated(pairs: Any, **options: Any) -> Any:
    own = own_model(model(), condition_channels=1, ndim=2)
    return sfumato.calibrate(own, pairs, num_samples=4, num_steps=2, **options)


def test_intervals_cover_as_often_as_asked() -> None:
    found = calibrated(Pairs(20, spread=3.0), level=0.8)
    truth = Pairs(21, spread=3.0).truths[20]
    restored = sfumato.restore(truth, found)
    inside = (restored.low <= truth) & (truth <= restored.high)
    # On average 0.8; 576 independent pixels have a standard error of 0.017, and so has the fit of 20 images, of 0.004.
    assert 0.73 < inside.mean() < 0.87
    assert "80%" in restored.label
    assert found.info.calibration.num_units == 20, "each pair is a unit of its own"


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(CalibrationError, match="3 independent units"):
        calibrated(Pairs(3))


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_levels_are_fractions(level: float) -> None:
    with pytest.raises(ValueError, match="numbers between 0 and 1"):
        calibrated(Pairs(3), level=level)


def test_scores_are_those_of_each_method() -> None:
    pairs = Pairs(4)
    own = own_model(model(), condition_channels=1, ndim=2)
    methods: dict[str, Any] = {"ours": own, "shifted": lambda image: image, "exact": lambda image: image[0] - 0.5}
    found = sfumato.evaluate(methods, pairs, num_samples=2, num_steps=2)
    errors = dict(zip(methods, found.values[0].mean(1), strict=True))
    assert errors["shifted"] == pytest.approx(0.5)
    assert errors["exact"] == pytest.approx(0, abs=1e-6)
    assert errors["ours"] > 0.5
    assert [row.num_images for row in summarise(found)][:2] == [4, 4]
    alone = sfumato.evaluate(own, pairs, num_samples=2, num_steps=2)
    np.testing.assert_array_equal(alone.values[:, 0], found.values[:, 0])


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "no pair was given"),
        ([np.zeros((8, 8))], "expected two images"),
        ([(np.zeros((8, 8)), np.zeros((8, 9)))], "the same lengths"),
        ([(np.zeros((number, 8, 8)), np.zeros((8, 8))) for number in (1, 2)], "pair 1 has 2 and 1 channels"),
    ],
)
def test_pairs_are_checked(pairs: Any, said: str) -> None:
    with pytest.raises(PairingError, match=said):
        sfumato.evaluate({"same": lambda image: image}, pairs)


def test_pairs_of_other_channels_are_refused() -> None:
    with pytest.raises(ImageError, match="goes from 1 to 1"):
        calibrated([(np.zeros((2, 8, 8)), np.zeros((8, 8)))])
