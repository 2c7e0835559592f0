"""Sampling grids against the formulas that place them."""

import pytest
import torch

from sfumato.diffusion.sampling_grid import log_snr_grid, uniform_grid
from sfumato.diffusion.schedule import PaperSchedule
from sfumato.diffusion.warp import LinearWarp

CLOCK = LinearWarp(0.3, 1.7)
"""rho = 0.3 t + 0.7 t^2."""


def test_grids() -> None:
    """From 1 down; uniform in log-SNR at the reference rate, or in t."""
    grid = torch.tensor(log_snr_grid(32, 6.0), dtype=torch.float64)
    assert grid[0] == 1
    assert float(6 * grid[-1]) == pytest.approx(1e-6, rel=1e-6)
    assert 6 * log_snr_grid(32, 6.0, 0.01)[-1] == pytest.approx(0.01, rel=1e-9)
    log_snr = -torch.expm1(6 * grid).log()
    torch.testing.assert_close(log_snr.diff(), log_snr.diff()[:1].expand(31), rtol=1e-6, atol=0)
    t = torch.tensor([1.0, 0.75, 0.5, 0.25], dtype=torch.float64)
    assert uniform_grid(4, CLOCK, t) == pytest.approx((0.3 * t + 0.7 * t**2).tolist())


def test_uniform_grid_is_relative_to_the_end() -> None:
    """The paper's rho(1) is not 1, but the grid starts there: its fractions multiply log gamma(1)."""
    warp, t = PaperSchedule(torch.zeros_like).double().warp, torch.tensor([1.0, 0.75, 0.5, 0.25], dtype=torch.float64)
    rho = warp(t).rho.detach()
    assert float(rho[0]) > 1.05
    assert uniform_grid(4, warp, t) == pytest.approx((rho / rho[0]).tolist(), rel=1e-12)


def test_grid_of_a_large_rate_is_finite_and_uniform() -> None:
    """At a rate of 2000, exp(u) overflows; there minus the log-SNR is u itself, to 16 digits."""
    grid = torch.tensor(log_snr_grid(8, 2000.0), dtype=torch.float64)
    assert grid[0] == 1
    assert float(2000 * grid[-1]) == pytest.approx(1e-6, rel=1e-6)
    torch.testing.assert_close(grid[:6].diff(), grid[:2].diff().expand(5), rtol=1e-9, atol=0)
    for rate in (1e-7, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="finite rate above 1e-06"):
            log_snr_grid(8, rate)
    with pytest.raises(ValueError, match="last noise above 0"):
        log_snr_grid(8, 6.0, 0.0)
