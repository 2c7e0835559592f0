"""Noise is Philox, normal, independent, and a pure function of where it is used."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.diffusion.noise import NoiseField, _box_muller, philox

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
"""Counter, key and result of philox4x32-10 as published with Random123 (its file kat_vectors)."""


def words(text: str) -> list[torch.Tensor]:
    return [torch.tensor(int(word, 16)) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_matches_the_published_vectors(counter: str, key: str, expected: str) -> None:
    result = " ".join(f"{int(word):08x}" for word in philox(words(counter), words(key)))
    assert result == expected


def field(*shape: int, step: int = 0, **where: object) -> torch.Tensor:
    return NoiseField(seed=7, **where)(step, torch.Size(shape))  # type: ignore[arg-type]


def test_normal_draws_pass_kolmogorov_smirnov() -> None:
    draws = field(2, 1, 2, 256, 256).flatten().numpy()
    assert stats.kstest(draws, "norm").pvalue > 0.001
    assert stats.kstest(draws**2, "chi2", args=(1,)).pvalue > 0.001
    tail = np.mean(np.abs(draws) > 4)
    assert abs(tail - 2 * stats.norm.sf(4)) < 5 * np.sqrt(2 * stats.norm.sf(4) / len(draws))


def test_neighbours_samples_steps_and_channels_are_uncorrelated() -> None:
    """Every correlation of n pairs has standard error 1/sqrt(n); the worst of these stays within 4.5 of them."""
    base = field(1, 1, 1, 256, 256)[0, 0, 0]
    others = {
        **{f"x+{k}": base.roll(-k, 1) for k in (1, 2, 3, 4, 5, 8)},
        **{f"y+{k}": base.roll(-k, 0) for k in (1, 2, 4)},
        "sample": field(1, 1, 1, 256, 256, sample=1)[0, 0, 0],
        "image": field(1, 1, 1, 256, 256, image=1)[0, 0, 0],
        "step": field(1, 1, 1, 256, 256, step=1)[0, 0, 0],
        "channel": field(1, 1, 2, 256, 256)[0, 0, 1],
        "seed": NoiseField(seed=8)(0, torch.Size([1, 1, 1, 256, 256]))[0, 0, 0],
        "high seed": NoiseField(seed=7 + 2**32)(0, torch.Size([1, 1, 1, 256, 256]))[0, 0, 0],
    }
    for name, other in others.items():
        for transform in (lambda x: x, torch.abs, torch.square):
            correlation = torch.corrcoef(torch.stack([transform(base).flatten(), transform(other).flatten()]))[0, 1]
            assert abs(float(correlation)) < 4.5 / 256, name


@given(
    origin=st.tuples(st.integers(0, 2**31), st.integers(0, 30), st.integers(0, 30)),
    size=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
)
@settings(deadline=None, max_examples=50)
def test_noise_of_a_crop_is_the_crop_of_the_noise(origin: tuple[int, int, int], size: tuple[int, int, int]) -> None:
    plane, row, column = origin
    whole = field(1, 1, 1, 3, 40, 40, origin=(plane, 0, 0))
    crop = field(1, 1, 1, *size, origin=origin)
    expected = whole[..., : size[0], row : row + size[1], column : column + size[2]]
    assert torch.equal(crop, expected)


def test_samples_images_and_channels_can_be_drawn_apart() -> None:
    together = field(3, 4, 2, 5, 6)
    apart = torch.stack([torch.cat([field(1, 1, 2, 5, 6, sample=n, image=b)[0] for b in range(4)]) for n in range(3)])
    assert torch.equal(together, apart)
    assert torch.equal(together[:, :, :1], field(3, 4, 1, 5, 6))


def test_one_dimension_and_wrong_shapes() -> None:
    assert field(2, 1, 1, 7).shape == (2, 1, 1, 7)
    with pytest.raises(ValueError, match="one to three spatial axes"):
        field(2, 1, 1)
    with pytest.raises(ValueError, match="as many origin coordinates"):
        field(1, 1, 1, 4, 4, origin=(3,))


def test_double_precision_is_the_same_noise() -> None:
    single = field(1, 1, 1, 64, 64)
    double = NoiseField(seed=7)(0, torch.Size([1, 1, 1, 64, 64]), dtype=torch.float64)
    assert (single - double).abs().max() < 1e-3


def test_every_address_has_its_own_noise() -> None:
    """Numbers of sample, image, step and channel are told apart, also where their sums are equal."""
    shape = torch.Size([1, 1, 1, 16, 16])
    fields = [
        NoiseField(seed=1, sample=sample, image=image)(step, torch.Size([1, 1, 2, 16, 16]))[:, :, channel]
        for sample in (0, 1)
        for image in (0, 1)
        for step in (0, 1)
        for channel in (0, 1)
    ]
    for first in range(len(fields)):
        for second in range(first):
            assert not torch.equal(fields[first], fields[second]), (first, second)
    assert torch.equal(NoiseField(seed=1)(0, shape)[:, :, 0], fields[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_word_gives_a_finite_normal(dtype: torch.dtype) -> None:
    words = tuple(torch.tensor([0, 2**32 - 1]) for _ in range(4))
    assert bool(_box_muller(words, dtype).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_the_rounded_noise(dtype: torch.dtype) -> None:
    shape = torch.Size([1, 1, 1, 64, 64])
    assert torch.equal(NoiseField(seed=7)(0, shape, dtype=dtype), NoiseField(seed=7)(0, shape).to(dtype))


@pytest.mark.parametrize("origin", [(), (3, 5)])
def test_noise_is_drawn_where_it_is_needed(origin: tuple[int, ...]) -> None:
    """The meta device refuses tensors of another one, so none is left on the CPU and moved."""
    field = NoiseField(1, origin=origin)
    assert field(0, torch.Size([2, 1, 1, 6, 9]), device="meta").device.type == "meta"
