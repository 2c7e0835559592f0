"""The networks: sizes, gradients, what their normalisation lets through."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from networks import seeded
from sfumato.nn import SR3UNet, UNet
from sfumato.nn.blocks import ChannelNorm, GroupNorm, PopulationNorm, crop_to, freeze_batch_statistics, pad_to_stride

MAKERS: dict[str, Callable[..., nn.Module]] = {
    "channel": lambda i, o, ndim: UNet(i, o, base=4, ndim=ndim, norm="channel"),
    "population": lambda i, o, ndim: UNet(i, o, base=4, ndim=ndim, norm="population").eval(),
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
    network = seeded(lambda: UNet(1, 1, base=4, norm="channel"))
    small = images(1, 1, 19, 30)
    padded = torch.nn.functional.pad(small, (0, 2, 0, 13), mode="replicate")
    torch.testing.assert_close(network(small), network(padded)[..., :19, :30], rtol=1e-5, atol=1e-6)
    assert torch.equal(crop_to(pad_to_stride(small, 16), small.shape[2:]), small)
    aligned = images(1, 1, 32, 16)
    assert pad_to_stride(aligned, 16) is aligned


@pytest.mark.parametrize(("norm", "survives"), [("channel", True), ("population", True), ("instance", False)])
def test_what_is_far_away_matters_only_to_instance_normalisation(norm: str, survives: bool) -> None:
    network, image = seeded(lambda: MAKERS[norm](1, 1, 2)), images(1, 1, 64, 480)
    changed = torch.cat([image[..., :320], image[..., 320:] + 5], dim=-1)
    difference = (network(image) - network(changed))[..., :64].abs().max()
    assert bool(difference < 1e-6) == survives


def test_absolute_intensity_is_lost_in_instance_normalisation_alone() -> None:
    """After one convolution it cannot tell an image from a brighter one; the others can."""
    convolution, dark = seeded(lambda: nn.Conv2d(1, 8, 1)), images(1, 1, 16, 16)
    with torch.no_grad():
        features = convolution(dark), convolution(dark + 2)
        for layer, tells in ((ChannelNorm(8), True), (PopulationNorm(8).eval(), True), (GroupNorm(8, 8), False)):
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


@pytest.mark.parametrize("ndim", [2, 3])
def test_population_norm_learns_from_batches_until_it_is_frozen(ndim: int) -> None:
    layer, spatial = PopulationNorm(6).double(), [5, 7, 4][:ndim]
    batches = [shift + images(3, 6, *spatial).double() for shift in range(200)]
    shape, others = [1, 6, *[1] * ndim], [axis for axis in range(ndim + 2) if axis != 1]
    mean, var = torch.zeros(6).double(), torch.ones(6).double()
    for batch in batches:
        centred = batch - batch.mean(others, keepdim=True)
        torch.testing.assert_close(layer(batch), centred / (centred.square().mean(others, True) + 1e-5).sqrt())
        mean, var = 0.95 * mean + 0.05 * batch.mean(others), 0.95 * var + 0.05 * batch.var(others)
    torch.testing.assert_close((layer.mean, layer.var), (mean, var))
    freeze_batch_statistics(nn.Sequential(layer))
    expected = (batches[0] - mean.reshape(shape)) / (var.reshape(shape) + 1e-5).sqrt()
    torch.testing.assert_close(layer(batches[0]), expected)
    torch.testing.assert_close(layer.eval()(batches[0]), expected)
    torch.testing.assert_close((layer.mean, layer.var), (mean, var))  # not of the batch that came after


def test_population_norm_of_one_value_learns_nothing_from_it() -> None:
    """A patch as small as the coarsest pixel has no variance to learn; torch's own would make it infinite."""
    layer = PopulationNorm(3)
    torch.testing.assert_close(layer(images(1, 3, 1, 1)), images(1, 3, 1, 1) / (1 + 1e-5) ** 0.5)
    assert torch.equal(layer.var, torch.ones(3))


def test_channel_norm_of_bfloat16_is_that_of_float32_rounded() -> None:
    features = 100 + images(2, 8, 5, 7).bfloat16()  # statistics of 8 bits would lose most of such features
    normalised = ChannelNorm(8)(features)
    assert normalised.dtype == torch.bfloat16
    torch.testing.assert_close(normalised, ChannelNorm(8)(features.float()).bfloat16(), rtol=0, atol=0)


def test_paper_sizes() -> None:
    """Five scales from base 64: 31 million parameters for the noise network; 2 to 150 million is the range to carry."""
    count = sum(parameter.numel() for parameter in UNet(3, 1, base=64).parameters())
    assert 30e6 < count < 32e6
    count = sum(parameter.numel() for parameter in SR3UNet(9, 3).parameters())
    assert 50e6 < count < 150e6


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (UNet, {"ndim": 4}, "2 for images or 3"),
        (UNet, {"base": 0}, "base is 0"),
        (UNet, {"norm": "batch"}, "'population', 'channel' or 'instance'"),
        (UNet, {"base": 1, "norm": "channel"}, "gives 0 for every image; give at least 2"),
        (SR3UNet, {"ndim": 1}, "2 for images or 3"),
        (SR3UNet, {"base": 0}, "base is 0"),
        (SR3UNet, {"num_blocks": 0}, "num_blocks is 0; give at least 1"),
        (SR3UNet, {"multipliers": ()}, r"multipliers are \(\); give one number"),
        (SR3UNet, {"multipliers": (1, 0)}, r"multipliers are \(1, 0\)"),
        (SR3UNet, {"attention_scales": -1}, "attention_scales is -1; give 0 to 5"),
        (SR3UNet, {"attention_scales": 6}, "attention_scales is 6; give 0 to 5"),
        (SR3UNet, {"dropout": 1.0}, "dropout is 1.0; give a probability"),
    ],
)
def test_wrong_settings_say_what_to_give(make: type[nn.Module], options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(1, 1, **options)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("shape", [(2, 2, 16, 16), (2, 4, 16, 16), (2, 3, 8, 16, 16), (3, 16, 16)])
def test_images_of_another_kind_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="takes a batch with 3 channels and 2 spatial axes; give it such images"):
        MAKERS[name](3, 1, 2)(torch.zeros(shape))


def test_instance_normalisation_lives_with_one_filter() -> None:
    """Channel normalisation of one filter is refused because it gives 0; over the image one filter still varies."""
    network = seeded(lambda: UNet(1, 1, base=1, num_scales=2, norm="instance"))
    assert float(network(images(1, 1, 8, 8)).detach().std()) > 0


def test_unet_is_the_one_described() -> None:
    """Two scales written out: (conv, softplus, norm) twice, max-pool, transposed conv, mirrored features first."""
    network = seeded(lambda: UNet(1, 1, base=3, num_scales=2, norm="channel"))
    weights = network.state_dict()

    def block(name: str, features: Tensor) -> Tensor:
        for part in ("1", "2"):
            kernel, bias = weights[f"{name}.conv{part}.weight"], weights[f"{name}.conv{part}.bias"]
            features = F.softplus(F.conv2d(features, kernel, bias, padding=1))
            scale, shift = weights[f"{name}.norm{part}.weight"], weights[f"{name}.norm{part}.bias"]
            features = F.layer_norm(features.movedim(1, -1), scale.shape, scale, shift).movedim(-1, 1)
        return features

    image = images(1, 1, 8, 8)
    fine = block("down.0", image)
    coarse = block("down.1", F.max_pool2d(fine, 2))
    lifted = F.conv_transpose2d(coarse, weights["lift.0.weight"], weights["lift.0.bias"], stride=2)
    features = block("up.0", torch.cat([fine, lifted], dim=1))
    expected = F.conv2d(features, weights["head.weight"], weights["head.bias"])
    torch.testing.assert_close(network(image), expected, rtol=1e-5, atol=1e-5)


def test_sr3_is_the_one_described() -> None:
    """Two scales written out: strided convolution down, attention at the coarse one, nearest neighbours up."""
    network = seeded(lambda: SR3UNet(1, 1, base=24, multipliers=(1, 2), num_blocks=1))
    weights = network.state_dict()

    def layer(name: str, features: Tensor, stride: int = 1) -> Tensor:
        kernel = weights[f"{name}.weight"]
        return F.conv2d(features, kernel, weights[f"{name}.bias"], stride=stride, padding=kernel.shape[-1] // 2)

    def norm(name: str, features: Tensor) -> Tensor:  # 32 groups, or as many of them as divide the channels
        groups = {24: 8, 48: 16, 72: 8, 96: 32}[features.shape[1]]
        return F.group_norm(features, groups, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def residual(name: str, features: Tensor) -> Tensor:
        hidden = layer(f"{name}.body.2", F.silu(norm(f"{name}.body.0", features)))
        hidden = layer(f"{name}.body.6", F.silu(norm(f"{name}.body.3", hidden)))
        return hidden + (layer(f"{name}.skip", features) if f"{name}.skip.weight" in weights else features)

    def attention(name: str, features: Tensor) -> Tensor:
        pixels = norm(f"{name}.norm", features).flatten(2).transpose(1, 2)
        q, k, v = F.linear(pixels, weights[f"{name}.qkv.weight"], weights[f"{name}.qkv.bias"]).chunk(3, dim=-1)
        mixed = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1) @ v
        out = F.linear(mixed, weights[f"{name}.out.weight"], weights[f"{name}.out.bias"])
        return features + out.transpose(1, 2).reshape(features.shape)

    image = images(2, 1, 8, 12)
    skips = [layer("stem", image)]
    skips.append(residual("down.0.0", skips[-1]))
    skips.append(layer("down.1", skips[-1], stride=2))
    skips.append(attention("down.2.1", residual("down.2.0", skips[-1])))
    features = residual("middle.2", attention("middle.1", residual("middle.0", skips[-1])))
    features = attention("up.0.1", residual("up.0.0", torch.cat([features, skips.pop()], dim=1)))
    features = attention("up.1.1", residual("up.1.0", torch.cat([features, skips.pop()], dim=1)))
    features = layer("up.1.3", features.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3))
    features = residual("up.2.0", torch.cat([features, skips.pop()], dim=1))
    features = residual("up.3.0", torch.cat([features, skips.pop()], dim=1))
    expected = layer("head.2", F.silu(norm("head.0", features)))
    torch.testing.assert_close(network(image), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("attention_scales", "number"), [(0, 0), (1, 4), (2, 7), (3, 10)])
def test_sr3_attends_where_told(attention_scales: int, number: int) -> None:
    """One block down, two up per attending scale, and the middle, which stands at the coarsest one."""
    network = SR3UNet(1, 1, base=8, multipliers=(1, 2, 2), num_blocks=1, attention_scales=attention_scales)
    assert sum(name.endswith(".qkv") for name, _ in network.named_modules()) == number
    assert network(images(1, 1, 8, 8)).shape == (1, 1, 8, 8)


def test_sr3_drops_features_in_training_only() -> None:
    network = seeded(lambda: SR3UNet(1, 1, base=8, multipliers=(1, 2), num_blocks=1, dropout=0.3))
    image = images(1, 1, 8, 8)
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Dropout)]
    assert {layer.p for layer in layers} == {0.3}
    assert len(layers) == sum(name.endswith(".body") for name, _ in network.named_modules())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(network.train()(image), network(image))
    assert torch.equal(network.eval()(image), network(image))
