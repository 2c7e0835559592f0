"""Photographs on coarser grids."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_sets import make_photographs
from sfumato.problems.natural import coarsen
from sfumato.problems.registry import open_problem
from sfumato.problems.request import Request
from sfumato.system.errors import RecipeError


@pytest.mark.parametrize("factor", [4, 8])
def test_a_coarse_grid_keeps_slow_waves_and_drops_fast_ones_without_aliasing(factor: int) -> None:
    place = torch.arange(128) / 128

    def seen(periods: int) -> torch.Tensor:
        wave = 0.5 + 0.4 * (2 * torch.pi * periods * place).cos()
        return coarsen(wave.expand(1, 128, 128), factor)[0, 64, 2 * factor : -2 * factor] - 0.5

    assert float(seen(2).std()) == pytest.approx(0.4 / 2**0.5, rel=0.1)
    # One and a half times the coarse grid's Nyquist frequency: without antialiasing it would come back as a slow wave.
    assert float(seen(128 // factor * 3 // 4).std()) < 0.05


def test_patches_are_parts_of_the_whole(tmp_path: Path) -> None:
    make_photographs(tmp_path, ["a.png", "b.png"])
    forward = {"factor": 8.0, "side_px": 64.0}
    source = open_problem("natural", Request(folder=tmp_path, forward=forward, validation_fraction=0))["train"]
    whole = source.read(1, (0, 0), (64, 64))
    assert whole[0].shape == whole[1].shape == (3, 64, 64)
    for side, part in zip(whole, source.read(1, (7, 3), (16, 24)), strict=True):
        np.testing.assert_array_equal(part, side[:, 7:23, 3:27])
    with pytest.raises(RecipeError, match="divides the side"):
        open_problem("natural", Request(folder=tmp_path, forward={"factor": 7.0}))
