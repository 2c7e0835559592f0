"""The networks: sizes, gradients, what their normalisation lets through."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from networks import seeded
from sfumato.nn import SR3UNet, UNet
from sfumato.nn.blocks import ChannelNorm, GroupNorm, crop_to, pad_to_stride

MAKERS: dict[str, Callable[..., nn.Module]] = {
    "channel": lambda i, o, ndim: UNet(i, o, base=4, ndim=ndim, norm="channel"),
    "instance": lambda i, o, ndim: UNet(i, o, base=4, ndim=ndim, norm="instance"),
    "sr3": lambda i, o, ndim: SR3UNet(i, o, base=8, multipliers=(1, 2, 2), num_blocks=1, ndim=ndim),
}


def images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("spatial", [(1, 1), (16, 16), (33, 50), (1, 7, 19), (16, 17, 5)])
@pytest.mark.parametrize(("channels_in", "channels_out"), [(1, 1), (4, 2), (3, 4)])
def test_any_size_any_channels(name: str, spatial: tuple[int, ...], channels_in: int, channels_out: int) -> None:
    network = seeded(lambda: MAKERS[name](channels_in, channels_out, len(spatial)))
    batch = images(2, channels_in, *spatial)
    output = network(batch)
    assert output.shape == (2, channels_out, *spatial)
    # An image alone gives what it gives in a batch.
    torch.testing.assert_close(network(batch[1:]), output[1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_untrained_output_is_zero_and_every_parameter_learns(name: str) -> None:
    batch = images(2, 3, 32, 32)
    assert MAKERS[name](3, 1, 2)(batch).abs().max() == 0
    network = seeded(lambda: MAKERS[name](3, 1, 2))
    network(batch).square().mean().backward()
    for label, parameter in network.named_parameters():
        assert parameter.grad is not None, label
        assert bool(parameter.grad.isfinite().all()), label
        assert float(parameter.grad.abs().max()) > 0, label


def test_padding_keeps_the_first_pixel_in_place() -> None:
    """A network sees an image of odd size as that image with its last row and column repeated."""
    network = seeded(lambda: UNet(1, 1, base=4))
    small = images(1, 1, 19, 30)
    padded = torch.nn.functional.pad(small, (0, 2, 0, 13), mode="replicate")
    torch.testing.assert_close(network(small), network(padded)[..., :19, :30], rtol=1e-5, atol=1e-6)
    assert torch.equal(crop_to(pad_to_stride(small, 16), small.shape[2:]), small)
    aligned = images(1, 1, 32, 16)
    assert pad_to_stride(aligned, 16) is aligned


@pytest.mark.parametrize(("norm", "survives"), [("channel", True), ("instance", False)])
def test_what_is_far_away_matters_only_to_instance_normalisation(norm: str, survives: bool) -> None:
    network, image = seeded(lambda: MAKERS[norm](1, 1, 2)), images(1, 1, 64, 480)
    changed = torch.cat([image[..., :320], image[..., 320:] + 5], dim=-1)
    difference = (network(image) - network(changed))[..., :64].abs().max()
    assert bool(difference < 1e-6) == survives


def test_channel_norm_keeps_absolute_intensity() -> None:
    """After one convolution, instance normalisation cannot tell an image from a brighter one; channel can."""
    convolution, dark = seeded(lambda: nn.Conv2d(1, 8, 1)), images(1, 1, 16, 16)
    with torch.no_grad():
        features = convolution(dark), convolution(dark + 2)
        for layer, tells in ((ChannelNorm(8), True), (GroupNorm(8, 8), False)):
            difference = (layer(features[0]) - layer(features[1])).abs().mean()
            assert bool(difference > 1e-2) == tells


@pytest.mark.parametrize("ndim", [2, 3])
def test_norms_match_torch(ndim: int) -> None:
    features = images(3, 6, *[5, 7, 4][:ndim]).double()
    channel, instance = ChannelNorm(6).double(), GroupNorm(6, 6).double()
    mean = features.mean(1, keepdim=True)
    var = features.var(1, keepdim=True, unbiased=False)
    torch.testing.assert_close(channel(features), (features - mean) / (var + 1e-5).sqrt())
    reference = torch.nn.functional.instance_norm(features)
    torch.testing.assert_close(instance(features), reference)


def test_paper_sizes() -> None:
    """Five scales from base 64: 31 million parameters for the noise network; 2 to 150 million is the range to carry."""
    count = sum(parameter.numel() for parameter in UNet(3, 1).parameters())
    assert 30e6 < count < 32e6
    count = sum(parameter.numel() for parameter in SR3UNet(9, 3).parameters())
    assert 50e6 < count < 150e6


@pytest.mark.parametrize(
    ("options", "words"),
    [({"ndim": 4}, "2 for images or 3"), ({"base": 0}, "base is 0"), ({"norm": "batch"}, "'channel' or 'instance'")],
)
def test_wrong_settings_say_what_to_give(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        UNet(1, 1, **options)  # type: ignore[arg-type]
