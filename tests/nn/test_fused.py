"""A U-Net rewritten for inference is the same function, borders included."""

import pytest
import torch
from torch import Tensor, nn

from networks import seeded
from sfumato.nn import SR3UNet, UNet
from sfumato.nn.blocks import Activation, PopulationNorm
from sfumato.nn.fused import FusedUNet, fused


def trained(network: UNet, *, negative: bool = False, zero: bool = False) -> UNet:
    """As after training: averages that images left, and any scale and shift."""
    generator = torch.Generator().manual_seed(7)
    for layer in network.modules():
        if isinstance(layer, PopulationNorm):
            layer.mean.copy_(torch.randn(layer.mean.shape, generator=generator) / 2)
            layer.var.copy_(torch.rand(layer.var.shape, generator=generator) + 0.2)
            layer.weight.data[0] *= -1 if negative else 1
            layer.weight.data[-1] *= 0 if zero else 1
    return network.eval()


def unet(ndim: int = 2, **options: object) -> UNet:
    return seeded(lambda: UNet(5, 2, base=4, num_scales=3, ndim=ndim, **options))  # type: ignore[arg-type]


def images(*spatial: int, batch: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, 5, *spatial, generator=torch.Generator().manual_seed(0), dtype=dtype)


SIZES = [(24, 20), (23, 17), (4, 40), (1, 1), (2, 3), (12, 8, 16), (7, 9, 5), (1, 2, 3)]


@pytest.mark.parametrize("spatial", SIZES, ids=str)
@pytest.mark.parametrize("activation", ["silu", "softplus"])
@torch.no_grad()
def test_it_equals_the_network_in_double_precision(spatial: tuple[int, ...], activation: Activation) -> None:
    network = trained(unet(len(spatial), activation=activation).double())
    seen = images(*spatial)
    expected = network(seen)
    assert expected.abs().max() > 0.01
    assert torch.allclose(fused(network)(seen), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_read", range(1, 5))
@torch.no_grad()
def test_channels_that_are_read_once_are_the_same_input(num_read: int) -> None:
    network = trained(unet(activation="silu").double())
    seen = images(23, 17)
    split = FusedUNet(network, num_read=num_read)
    assert torch.allclose(split(seen[:, num_read:], split.read(seen[:, :num_read])), network(seen), rtol=0, atol=1e-12)


@torch.no_grad()
def test_what_is_read_of_one_image_serves_all() -> None:
    network = trained(unet(activation="silu").double())
    seen = images(20, 24, batch=3)
    seen[:, :2] = seen[:1, :2]
    split = FusedUNet(network, num_read=2)
    assert torch.allclose(split(seen[:, 2:], split.read(seen[:1, :2])), network(seen), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("negative", "zero"), [(True, False), (False, True), (True, True)])
@torch.no_grad()
def test_a_scale_that_is_not_positive_does_not_pass_a_pool(negative: bool, zero: bool) -> None:
    network = trained(unet(activation="silu").double(), negative=negative, zero=zero)
    seen = images(23, 17)
    assert torch.allclose(fused(network)(seen), network(seen), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_scales", [1, 2, 4])
@pytest.mark.parametrize("out_channels", [1, None])
@torch.no_grad()
def test_any_number_of_scales_with_and_without_a_head(num_scales: int, out_channels: int | None) -> None:
    network = trained(seeded(lambda: UNet(5, out_channels, base=4, num_scales=num_scales)).double())
    seen = images(16, 21)
    assert torch.allclose(fused(network)(seen), network(seen), rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["silu", "softplus"])
@torch.no_grad()
def test_single_precision_differs_by_rounding_and_is_repeatable(activation: Activation) -> None:
    network = trained(unet(activation=activation))
    seen = images(61, 64, dtype=torch.float32)
    expected, result = network(seen), fused(network)(seen)
    assert (result - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert torch.equal(result, fused(network)(seen))


@torch.no_grad()
def test_the_network_itself_and_its_input_stay_as_they_are() -> None:
    network, seen = trained(unet(activation="silu")), images(24, 24, dtype=torch.float32)
    state, given, expected = {k: v.clone() for k, v in network.state_dict().items()}, seen.clone(), network(seen)
    split = FusedUNet(network, num_read=3)
    known = split.read(seen[:, :3])
    kept = known.clone()
    split(seen[:, 3:], known)
    assert torch.equal(seen, given)
    assert torch.equal(known, kept)
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert torch.equal(network(seen), expected)


def test_what_cannot_be_rewritten_is_returned() -> None:
    others: list[nn.Module] = [UNet(5, 1, base=4, norm="channel"), UNet(5, 1, base=4, norm="instance")]
    for network in [*others, SR3UNet(5, 1, base=8, multipliers=(1, 2)), nn.Identity()]:
        assert fused(network) is network


def test_it_is_cut_into_tiles_like_the_network() -> None:
    network = unet()
    result = fused(network)
    assert isinstance(result, FusedUNet)
    assert (result.in_channels, result.stride, result.reach) == (network.in_channels, network.stride, network.reach)
