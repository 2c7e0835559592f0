"""Streamed summaries equal the ones computed from all samples at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.diffusion.posterior import Posterior


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    levels=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=4),
    seed=st.integers(0, 100),
)
@settings(deadline=None)
def test_streaming_equals_all_at_once(sizes: list[int], levels: list[float], seed: int) -> None:
    total = sum(sizes)
    samples = 100 + torch.randn(total, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    posterior = Posterior.of(samples.split(sizes), total, quantiles=levels)
    torch.testing.assert_close(posterior.mean, samples.mean(0), rtol=1e-12, atol=0)
    if total > 1:
        torch.testing.assert_close(posterior.std, samples.std(0), rtol=1e-9, atol=1e-12)
    ordered = samples.sort(0).values
    for level in levels:
        position = min(max(level * (total + 1) - 1, 0), total - 1)
        below = int(position)
        expected = ordered[below] + (ordered[min(below + 1, total - 1)] - ordered[below]) * (position - below)
        torch.testing.assert_close(posterior.quantile(level), expected, rtol=1e-12, atol=1e-12)


def test_interval_covers_as_often_as_it_says() -> None:
    """With q (N + 1) positions the 80% interval of 9 samples covers a tenth draw 80% of the time (8 / 10)."""
    draws = torch.randn(10, 200_000, generator=torch.Generator().manual_seed(0))
    posterior = Posterior(9, quantiles=[0.1, 0.9]).add(draws[:9])
    inside = (posterior.quantile(0.1) < draws[9]) & (draws[9] < posterior.quantile(0.9))
    assert abs(float(inside.float().mean()) - 0.8) < 4 * (0.8 * 0.2 / 200_000) ** 0.5


def test_keeps_only_what_the_quantiles_need() -> None:
    posterior = Posterior(64, quantiles=[0.05, 0.95])
    for _ in range(8):
        posterior.add(torch.randn(8, 10))
    kept = [tensor for tensor in vars(posterior).values() if isinstance(tensor, torch.Tensor)]
    assert sum(len(tensor) if tensor.ndim == 2 else 1 for tensor in kept) <= 2 + 4 + 4


def test_wrong_use_says_what_to_do() -> None:
    posterior = Posterior(2, quantiles=[0.5])
    with pytest.raises(ValueError, match="add some first"):
        _ = posterior.mean
    posterior.add(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="needs two samples, got 1"):
        _ = posterior.std
    with pytest.raises(ValueError, match="got 1 of 2"):
        posterior.quantile(0.5)
    with pytest.raises(ValueError, match="not announced"):
        posterior.quantile(0.25)
    with pytest.raises(ValueError, match="at most the announced"):
        posterior.add(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="between 0 and 1"):
        Posterior(2, quantiles=[1.5])
    with pytest.raises(ValueError, match="at least 1"):
        Posterior(0)
