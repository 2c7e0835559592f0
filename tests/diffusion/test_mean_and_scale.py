"""Mean and scale first: samples of a Gaussian posterior have each pixel's own width; losses and their minima."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sfumato.diffusion import losses
from sfumato.diffusion.known import Known
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.regression import Regression
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.schedule import CosineSchedule, GlobalSchedule
from sfumato.diffusion.solvers import Solver
from sfumato.models.build import build_model
from sfumato.models.reach import reach_of_call
from sfumato.models.recipe import ModelRecipe
from sfumato.nn import UNet
from sfumato.nn.binomial import Binomial
from sfumato.nn.linear_filter import LinearFilter
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import RecipeError

WIDTHS = torch.logspace(-2, 0, 9, dtype=torch.float64).reshape(1, 1, 1, 9)


class _Exact:
    """A Gaussian posterior of independent pixels, whose mean and widths are known: half of unit size is left."""

    target_channels = 1

    def __init__(self, rate: float) -> None:
        self.rule = GlobalSchedule(rate_min=rate, rate_max=60.0, rate_init=rate + 1e-6).double()

    def read(self, condition: Tensor) -> Known:
        return Known(condition, 3 * condition, 2 * WIDTHS, self.rule(condition))

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
        gamma, noise = log_gamma.exp(), -torch.expm1(log_gamma)
        return (gamma.sqrt() / 4) / (gamma / 4 + noise) * noisy


@pytest.mark.parametrize("rate", [8.0, 20.0])
@pytest.mark.parametrize(("solver", "num_steps", "tolerance"), [("2m", 32, 0.02), ("gaussian", 8, 0.001)])
def test_samples_have_the_width_of_every_pixel(solver: Solver, num_steps: int, tolerance: float, rate: float) -> None:
    condition = torch.ones_like(WIDTHS)
    # The solver is linear here, so the state 1 ends at the mean and one standard deviation of the samples.
    initial = torch.ones(1, *WIDTHS.shape).double()
    found = sample(_Exact(rate), condition, num_samples=1, num_steps=num_steps, solver=solver, seed=0, initial=initial)[
        0
    ]
    torch.testing.assert_close((found - 3) / WIDTHS, torch.ones_like(WIDTHS), atol=tolerance, rtol=0)


def test_the_scale_is_learned_from_what_the_mean_leaves() -> None:
    left = 0.3 * torch.randn(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_sigma = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    for _ in range(200):
        (slope,) = torch.autograd.grad(losses.scale(left, log_sigma.expand_as(left)), log_sigma)
        log_sigma = (log_sigma - 0.2 * slope).detach().requires_grad_()
    assert float(log_sigma.detach().exp()) == pytest.approx(float(left.square().mean().sqrt()), rel=1e-6)


def build(*, with_start: bool = True) -> CVDM:
    torch.manual_seed(0)
    start = None
    if with_start:
        start = LinearFilter(1, 1, side=3)
        start.weight[0, 0, 1, 1] = 0.5
    return CVDM(
        CosineSchedule(),
        UNet(5, 1, base=4, num_scales=2, norm="channel"),
        mean_network=UNet(2 if with_start else 1, 1, base=4, num_scales=2, norm="channel"),
        start=start,
        scale_network=UNet(2, 1, base=4, num_scales=2, norm="channel"),
    )


def test_the_centre_is_the_start_and_its_correction() -> None:
    model, condition = build(), torch.randn(2, 1, 8, 8)
    known = model.read(condition)
    assert known.center is not None
    torch.testing.assert_close(known.center, 0.5 * condition)  # an untrained mean network corrects nothing
    assert isinstance(model.mean_network, UNet)
    assert model.mean_network.head.bias is not None
    nn.init.constant_(model.mean_network.head.get_parameter("bias"), 2.0)
    torch.testing.assert_close(model.center(condition), 0.5 * condition + 2)
    assert known.seen.shape == (2, 3, 8, 8)
    assert model.start is not None
    regression = Regression(UNet(2, 1, base=4, num_scales=2, norm="channel"), start=model.start)
    torch.testing.assert_close(regression.center(condition), 0.5 * condition)


def test_diffused_and_target_are_inverse() -> None:
    model, target = build(), torch.randn(2, 1, 8, 8)
    model.log_scale.fill_(-1.0)
    known = model.read(torch.randn(2, 1, 8, 8))
    torch.testing.assert_close(known.target(known.diffused(target)), target)
    assert isinstance(known.scale, Tensor)
    torch.testing.assert_close(known.scale, torch.full_like(target, torch.tensor(-1.0).exp().item()))


@pytest.mark.parametrize(
    ("learns", "changed"),
    [
        ("mean", {"mean_network"}),
        ("rest", {"network", "scale_network"}),
        ("all", {"network", "mean_network", "scale_network"}),
    ],
)
def test_a_stage_changes_its_networks_alone(learns: str, changed: set[str]) -> None:
    model = build()
    model.learns = learns  # type: ignore[assignment]
    condition, target, eps = torch.randn(3, 2, 1, 8, 8)
    terms = model.loss(condition, target, torch.tensor([0.3, 0.7]), eps)
    terms.total.backward()
    learned = {
        name
        for name, part in model.named_children()
        if isinstance(part, nn.Module) and any(p.grad is not None and bool(p.grad.any()) for p in part.parameters())
    }
    assert learned == changed
    expected = terms.mean if learns == "mean" else terms.diffusion + terms.prior
    assert torch.equal(model.validated(terms), expected)


def test_the_standard_deviation_is_where_the_scale_is_learned_best() -> None:
    """For y = mean + sigma eps the term of the scale has no slope if sigma is what is given without samples."""
    model, condition = build().double(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    eps = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    assert isinstance(model.scale_network, UNet)
    bias = model.scale_network.head.get_parameter("bias")
    for sigma, at_minimum in ((0.7, True), (1.4, False)):
        model.log_scale.fill_(float(torch.tensor(2 * sigma).log()))
        mean, std = model.mean_and_std(condition)
        torch.testing.assert_close(mean, 0.5 * condition)
        assert std is not None
        torch.testing.assert_close(std, torch.full_like(std, sigma))
        target = mean + 0.7 * eps / eps.square().mean().sqrt()
        terms = model.loss(condition, target, torch.tensor([0.3, 0.7]), torch.randn_like(target))
        (slope,) = torch.autograd.grad(terms.scale, bias)
        assert (abs(float(slope)) < 1e-6) == at_minimum


def test_mean_and_standard_deviation_are_those_of_the_diffused_image_and_need_no_other_network() -> None:
    model, condition = read_once(), torch.randn(1, 2, 16, 16)
    known = model.read(condition)
    for name in ("schedule", "network"):
        model.get_submodule(name).register_forward_hook(lambda *_: pytest.fail("it was run"))
    assert model.knows_std
    mean, std = model.mean_and_std(condition)
    assert known.center is not None
    assert std is not None
    assert torch.equal(mean, known.center)
    assert torch.equal(2 * std, torch.as_tensor(known.scale))


def test_a_model_without_a_scale_network_knows_no_standard_deviation() -> None:
    model, condition = read_once(scale_network=False), torch.randn(1, 2, 16, 16)
    mean, std = model.mean_and_std(condition)
    assert torch.equal(mean, torch.as_tensor(model.center(condition)))
    assert std is None
    assert not model.knows_std
    with pytest.raises(ValueError, match="no centre"):
        CVDM(CosineSchedule(), UNet(3, 1, base=4, norm="channel")).mean_and_std(torch.zeros(1, 1, 8, 8))


def test_the_scale_is_finished_except_while_it_learns_alone() -> None:
    """A network that learned through the smoothing would sharpen what it gives, and undo it."""
    model, condition = build(), torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(3))
    assert isinstance(model.scale_network, nn.Module)
    for weights in model.scale_network.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    plain = model.mean_and_std(condition)[1]
    model.scale_finish = Binomial()
    finished = model.mean_and_std(condition)[1]
    assert plain is not None
    assert finished is not None
    torch.testing.assert_close(finished.log(), Binomial()(plain.log()))
    assert (finished / plain - 1).abs().max() > 0.01
    model.learns = "scale"
    found = model.mean_and_std(condition)[1]
    assert found is not None
    assert torch.equal(found, plain)


def test_the_scale_cannot_spoil_the_mean() -> None:
    model = build()
    condition, target, eps = torch.randn(3, 2, 1, 8, 8)
    terms = model.loss(condition, target, torch.tensor([0.3, 0.7]), eps)
    assert isinstance(model.mean_network, UNet)
    weights = list(model.mean_network.parameters())
    found = torch.autograd.grad(terms.scale + terms.diffusion, weights, allow_unused=True)
    assert all(gradient is None for gradient in found)


def test_a_residual_has_no_other_centre() -> None:
    with pytest.raises(ValueError, match="one centre"):
        CVDM(CosineSchedule(), UNet(3, 1, base=4, norm="channel"), start=LinearFilter(1, 1), residual=True)


def read_once(**options: object) -> CVDM:
    settings = {"base": 4, "rate_base": 6, "num_scales": 3, "denoiser_base": 3, "denoiser_scales": 2}
    parts = {"linear_start": True, "mean_network": True, "read_once": True, "scale_network": True}
    model = build_model(ModelRecipe.model_validate({**settings, **parts, **options}), 2, 1, seed=0)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():  # last layers start at zero, and would hide what flows through them
        with torch.no_grad():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def test_a_condition_is_read_once_however_many_calls_a_sample_takes() -> None:
    model, condition = read_once(), torch.randn(1, 2, 16, 16)
    calls = dict.fromkeys(("reader", "mean_network", "scale_network", "schedule", "network"), 0)

    def count(name: str) -> Callable[..., None]:
        def add(*_: object) -> None:
            calls[name] += 1

        return add

    for name in calls:
        model.get_submodule(name).register_forward_hook(count(name))
    sample(model, condition, num_samples=2, num_steps=5, seed=0)
    assert calls == {"reader": 1, "mean_network": 1, "scale_network": 1, "schedule": 1, "network": 5}
    sizes = {name: sum(p.numel() for p in model.get_submodule(name).parameters()) for name in ("reader", "network")}
    assert sizes["network"] < sizes["reader"] / 4


@pytest.mark.parametrize("learns", ["mean", "rest", "all"])
def test_features_are_learned_with_the_mean_alone(learns: str) -> None:
    model = read_once()
    model.learns = learns  # type: ignore[assignment]
    condition, eps = torch.randn(2, 2, 16, 16), torch.randn(2, 1, 16, 16)
    model.loss(condition, torch.randn(2, 1, 16, 16), torch.tensor([0.3, 0.7]), eps).total.backward()
    slopes = {
        name: [p.grad for p in part.parameters() if p.grad is not None and bool(p.grad.any())]
        for name, part in model.named_children()
    }
    assert bool(slopes["reader"]) == bool(slopes["mean_network"]) == (learns != "rest")
    assert bool(slopes["schedule"]) == bool(slopes["scale_network"]) == bool(slopes["network"]) == (learns != "mean")
    if learns == "all":
        alone = read_once()
        alone.learns = "mean"
        alone.loss(condition, torch.zeros_like(eps), torch.tensor([0.3, 0.7]), eps).total.backward()
        model.zero_grad()
        model.loss(condition, torch.zeros_like(eps), torch.tensor([0.3, 0.7]), eps).total.backward()
        for found, expected in zip(model.reader.parameters(), alone.reader.parameters(), strict=True):  # type: ignore[union-attr]
            torch.testing.assert_close(found.grad, expected.grad)


def test_rates_and_scales_follow_features_and_reach_adds_up() -> None:
    model, condition = read_once().double().eval(), torch.randn(1, 2, 96, 96, dtype=torch.float64)
    other = condition.clone()
    other[..., 0, 0] += 10.0
    known, changed = model.read(condition), model.read(other)
    far = reach_of_call(model)
    assert far == 7 + 26 + 4 + 10  # filter, reader, head and its smoothing, denoising network
    for before, after in ((known.schedule.rate, changed.schedule.rate), (known.scale, changed.scale)):
        assert isinstance(before, Tensor)
        assert isinstance(after, Tensor)
        differs = (before != after)[0, 0]
        assert bool(differs[:20, :20].any())
        assert not bool(differs[7 + 26 + 2 + 1 :].any())


def test_one_read_reaches_as_far_as_its_networks_in_a_row() -> None:
    model, condition = read_once().double().eval(), torch.randn(1, 2, 96, 96, dtype=torch.float64)
    far = reach_of_call(model, reads_only=True)
    assert far == 7 + 26 + 4  # filter, reader, head and its smoothing; a 1x1 convolution looks at no neighbours
    other = condition.clone()
    other[..., 0, 0] += 10.0
    for before, after in zip(model.mean_and_std(condition), model.mean_and_std(other), strict=True):
        assert before is not None
        assert after is not None
        differs = (before != after)[0, 0]
        assert bool(differs[:20, :20].any())
        assert not bool(differs[far + 1 :].any())


def test_tiles_of_a_model_that_reads_once_equal_the_whole() -> None:
    model, condition = read_once(), torch.randn(1, 2, 100, 60)
    whole, parts = (sample(part, condition, num_samples=1, num_steps=3, seed=0) for part in (model, tiled(model, 32)))
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"mean_network": False}, {"network": "sr3"}])
def test_what_cannot_be_read_once_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="set mean_network to true and network to unet"):
        read_once(**options)
