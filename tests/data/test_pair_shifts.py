"""The shift between input and target is measured before training, to a fraction of a pixel, and told."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memory_pairs import Memory
from sfumato.audit.structures import smooth
from sfumato.data.images.io import open_image, write_image
from sfumato.data.pair_middles import middles
from sfumato.data.pair_shifts import Shifts, check_shifts, shift_between
from sfumato.models.recipe import parse
from sfumato.training.train import train

DATA = os.environ.get("SFUMATO_DATA")


def moved(image: NDArray[Any], down: float, right: float) -> NDArray[Any]:
    """Exactly, by the shift theorem; it wraps around."""
    rows, columns = np.meshgrid(*(np.fft.fftfreq(side) for side in image.shape), indexing="ij")
    return np.fft.ifft2(np.fft.fft2(image) * np.exp(-2j * np.pi * (rows * down + columns * right))).real


def scene(seed: int, side: int = 160) -> NDArray[Any]:
    return np.asarray(100 * smooth(np.random.default_rng(seed).standard_normal((side, side)), 2.0))


def pair(seed: int, down: float, right: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """A blurred, noisy input and a sharp target, which lies further down and right."""
    truth, rng = scene(seed), np.random.default_rng(1000 + seed)
    noisy = smooth(truth, 1.5) + 0.3 * truth.std() * rng.standard_normal(truth.shape)
    return noisy, 3 * moved(truth, down, right) + 7


@pytest.mark.parametrize("shift", [(0.0, 0.0), (5.0, -3.0), (-2.4, 7.7), (0.5, 0.5)])
def test_a_shift_is_measured(shift: tuple[float, float]) -> None:
    found = [shift_between(*pair(seed, *shift)) for seed in range(5)]
    np.testing.assert_allclose(np.array(found, float), np.array([shift] * 5), atol=0.3)


@pytest.mark.parametrize("shift", [(4, -6), (-9, 2)])
def test_another_library_measures_the_same(shift: tuple[int, int]) -> None:
    registration = pytest.importorskip("skimage.registration", reason="scikit-image is not installed")
    condition, target = pair(1, *shift)
    found, _, _ = registration.phase_cross_correlation(target, condition, upsample_factor=10)
    np.testing.assert_allclose(np.array(shift_between(condition, target), float), found, atol=0.3)


def test_unrelated_images_have_no_shift() -> None:
    """At most 3 of 100 are said to have one: a higher peak than of 4.5 standard deviations is that rare."""
    found = [shift_between(scene(seed), scene(seed + 500)) for seed in range(100)]
    assert sum(each is not None for each in found) <= 3
    assert shift_between(np.zeros((64, 64)), scene(0, 64)) is None
    assert shift_between(np.full((64, 64), np.nan), scene(0, 64)) is None


def source(shifts: list[tuple[float, float]]) -> Memory:
    pairs = [pair(seed, *shift) for seed, shift in enumerate(shifts)]
    return Memory([condition[None] for condition, _ in pairs], [target[None] for _, target in pairs])


def told(pairs: Memory) -> Shifts:
    return check_shifts(middles(pairs), pairs.factor)


def test_what_is_told() -> None:
    fine = told(source([(0.2, 0.1)] * 8))
    assert (fine.doubts, len(fine.notes)) == ([], 1)
    assert "8 pairs were checked: targets lie within 0." in fine.notes[0]
    (doubt,) = told(source([(3.0, -2.0)] * 8)).doubts
    assert "8 of 8 checked pairs are shifted" in doubt
    assert "by about 3.6 pixels (in the median 3.0 down and -2.0 to the right)" in doubt
    assert "register the images first" in doubt
    one = told(source([(9.0, 0.0), *[(0.0, 0.0)] * 9]))
    assert one.doubts == []
    assert "but for Präparat 0" in one.notes[0]
    unrelated = Memory([scene(seed)[None] for seed in range(3)], [scene(seed + 500)[None] for seed in range(3)])
    assert "cannot be told" in told(unrelated).notes[0]


@pytest.mark.parametrize(("shift", "said"), [((0.0, 0.0), "note: 4 pairs"), ((6.0, 0.0), "warning: the targets of")])
def test_training_says_it_before_it_starts(
    shift: tuple[float, float], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(5):
        for side, image in zip(("in", "out"), pair(seed, *shift), strict=True):
            (tmp_path / side).mkdir(exist_ok=True)
            write_image(tmp_path / side / f"{seed}.tif", image.astype(np.float32), axes="YX")
    recipe = parse(
        f"data: {{inputs: '{tmp_path / 'in'}', targets: '{tmp_path / 'out'}', patch: 16}}\n"
        "model: {base: 4, rate_base: 4, num_scales: 2}\n"
        "train: {steps: 1, batch_size: 1}\nsample: {steps: 1, samples: 2}"
    )
    train(recipe, tmp_path / "run")
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.skipif(DATA is None, reason="set SFUMATO_DATA to the folder of image sets")
def test_real_pairs_are_registered_and_a_planted_shift_is_found() -> None:
    folder = Path(DATA or "") / "fluor_denoise_w2s" / "train"
    names = sorted(path.name for path in (folder / "noisy").iterdir())
    both = [
        [np.squeeze(np.asarray(open_image(folder / side / name).read())) for name in names]
        for side in ("noisy", "clean")
    ]
    as_it_is = Memory(*([image[None] for image in images] for images in both))
    assert told(as_it_is).doubts == []
    planted = Memory([image[None, :-5, 3:] for image in both[0]], [image[None, 5:, :-3] for image in both[1]])
    (doubt,) = told(planted).doubts
    assert "20 of 20" in doubt
    assert "down and" in doubt
