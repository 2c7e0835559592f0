"""Tiles: their weights sum to 1, and a network through them is the network itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from networks import seeded
from sfumato import CVDM, LearnedSchedule, sample
from sfumato.diffusion.inference import for_inference
from sfumato.nn import UNet
from sfumato.restoration.tiles import TiledNetwork, spans, tiled


@given(st.integers(1, 400), st.sampled_from([16, 32, 64]), st.sampled_from([16, 32]), st.integers(1, 32))
def test_weights_sum_to_one_and_cores_cover_the_axis(length: int, tile: int, halo: int, blend: int) -> None:
    total = torch.zeros(length)
    for span in spans(length, tile, halo, blend):
        assert span.start % 16 == 0
        assert 0 <= span.start < span.stop <= length
        assert span.stop - span.start <= 1.5 * tile + 2 * halo
        total[span.start : span.stop] += span.weights
    assert torch.allclose(total, torch.ones(length), atol=1e-6)


@pytest.mark.parametrize("num_scales", [1, 2, 3, 4])
def test_reach_bounds_what_a_pixel_depends_on(num_scales: int) -> None:
    network = seeded(lambda: UNet(1, 1, base=2, num_scales=num_scales, norm="channel")).double()
    furthest = 0
    for place in range(64, 64 + network.stride):
        images = torch.randn(1, 1, 128, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(place))
        images.requires_grad_()
        network(images)[0, 0, place, place].backward()
        assert images.grad is not None
        rows = images.grad[0, 0].abs().amax(1).nonzero().flatten()
        furthest = max(furthest, place - int(rows.min()), int(rows.max()) - place)
    assert network.reach is not None
    assert 0.75 * network.reach <= furthest <= network.reach


@pytest.mark.parametrize("shape", [(100, 150), (96, 40), (33, 200)])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_tiles_give_the_network_itself(shape: tuple[int, int], tile: int) -> None:
    network = seeded(lambda: UNet(2, 3, base=4, num_scales=3, norm="channel")).double()
    images = torch.randn(2, 2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tiled = TiledNetwork(network, tile=tile, halo=32, blend=12, stride=network.stride)
    with torch.no_grad():
        assert torch.allclose(tiled(images), network(images), atol=1e-10)


def test_volumes_are_tiled_along_three_axes() -> None:
    network = seeded(lambda: UNet(1, 1, base=2, num_scales=2, ndim=3, norm="channel")).double()
    images = torch.randn(1, 1, 20, 40, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tiled = TiledNetwork(network, tile=8, halo=12, blend=4, stride=network.stride)
    with torch.no_grad():
        assert torch.allclose(tiled(images), network(images), atol=1e-10)


@pytest.mark.parametrize("wrong", [{"tile": 10}, {"tile": 0}, {"halo": 5}, {"blend": 0}, {"blend": 40}])
def test_layouts_that_do_not_fit_the_stride_are_refused(wrong: dict[str, int]) -> None:
    layout = {"tile": 16, "halo": 16, "blend": 8, "stride": 4} | wrong
    with pytest.raises(ValueError, match="expected positive multiples of the network's stride, 4"):
        TiledNetwork(UNet(1, 1, base=2, num_scales=3, norm="channel"), **layout)


@pytest.mark.parametrize("shape", [(96, 128), (141, 75)])
def test_tiles_of_a_rewritten_model_are_those_of_the_model(shape: tuple[int, int]) -> None:
    """What its network reads once lies on the grid of the whole image, from which every tile takes its part."""
    model = seeded(
        lambda: CVDM(LearnedSchedule(UNet(2, 1, base=4, num_scales=2)), UNet(4, 1, base=4, num_scales=3))
    ).double()
    model.eval()
    condition = torch.randn(1, 2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = sample(tiled(model, 32), condition, num_samples=2, num_steps=2, seed=0)
    found = sample(tiled(for_inference(model), 32), condition, num_samples=2, num_steps=2, seed=0)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
