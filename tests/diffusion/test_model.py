"""CVDM: its options agree with each other, with the formulas, with torch.compile and with lower precision."""

import itertools
import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from networks import seeded
from sfumato import CVDM, LearnedSchedule
from sfumato.diffusion import losses
from sfumato.diffusion.gaussian import amplitudes, diffuse, velocity
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.model import Form, Objective, Predicts, Smoothness
from sfumato.diffusion.schedule import CosineSchedule, GlobalSchedule, LinearSchedule, PaperSchedule, Schedule
from sfumato.diffusion.warp import LinearWarp
from sfumato.nn import UNet

T = torch.tensor([0.2, 0.5, 0.9])


def batch(channels_in: int, channels_out: int, *spatial: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    condition = torch.randn(3, channels_in, *spatial, generator=generator)
    target, eps = torch.randn(2, 3, channels_out, *spatial, generator=generator)
    return condition, target, T, eps


def build(channels_in: int = 1, channels_out: int = 1, ndim: int = 2, num_scales: int = 3, **options: Any) -> CVDM:
    seen = channels_in + 2 * channels_out + (channels_out if options.get("mean_network") else 0)
    rate = seeded(
        lambda: UNet(channels_in, channels_out, base=4, num_scales=num_scales, ndim=ndim, norm="channel"), seed=1
    )
    network = seeded(lambda: UNet(seen, channels_out, base=4, num_scales=num_scales, ndim=ndim, norm="channel"), seed=2)
    return CVDM(LearnedSchedule(rate), network, target_channels=channels_out, **options)


CASES = [
    pytest.param(channels_in, channels_out, spatial, id=f"{channels_in}to{channels_out}-{'x'.join(map(str, spatial))}")
    for (channels_in, channels_out), spatial in itertools.product(
        [(1, 1), (4, 2), (2, 4), (3, 3)], [(16, 16), (13, 22), (5, 9, 11)]
    )
]


@pytest.mark.parametrize(("channels_in", "channels_out", "spatial"), CASES)
def test_loss_of_a_batch_is_the_mean_over_its_images(
    channels_in: int, channels_out: int, spatial: tuple[int, ...]
) -> None:
    """2-D and 3-D, odd sizes, 1 to 4 channels: catches anything that looks at the first image only."""
    model = build(channels_in, channels_out, len(spatial))
    inputs = batch(channels_in, channels_out, *spatial)
    together = model.loss(*inputs)
    alone = [model.loss(*(part[i : i + 1] for part in inputs)) for i in range(3)]
    for name, value in together._asdict().items():
        mean = torch.stack([getattr(losses, name) for losses in alone]).mean()
        torch.testing.assert_close(value, mean, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("channels_in", "channels_out", "spatial"), CASES)
def test_predictions_of_a_batch_are_those_of_its_images(
    channels_in: int, channels_out: int, spatial: tuple[int, ...]
) -> None:
    model = build(channels_in, channels_out, len(spatial))
    condition, noisy, t, _ = batch(channels_in, channels_out, *spatial)
    log_gamma = model.schedule(condition).log_gamma(t)
    together = model.predict(noisy, log_gamma, model.read(condition).seen)
    alone = model.predict(noisy[1:2], log_gamma[1:2], model.read(condition[1:2]).seen)
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("predicts", ["velocity", "noise"])
def test_clean_noise_and_velocity_agree(predicts: Predicts) -> None:
    model = build(predicts=predicts).double()
    condition, noisy, t, _ = (part.double() for part in batch(1, 1, 16, 16))
    log_gamma = model.schedule(condition).log_gamma(t)
    clean, noise, v = (
        model.predict(noisy, log_gamma, model.read(condition).seen, form=form) for form in get_args(Form)
    )
    torch.testing.assert_close(diffuse(clean, noise, log_gamma), noisy)
    torch.testing.assert_close(velocity(clean, noise, log_gamma), v)


class _CountingRoots(TorchDispatchMode):
    """Counts square roots, of which each conversion between two forms takes one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.sqrt.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("predicts", "conversions"),
    [("velocity", {"clean": 1, "noise": 1, "velocity": 0}), ("noise", {"clean": 1, "noise": 0, "velocity": 2})],
)
def test_predict_computes_what_is_asked_for_and_nothing_else(predicts: Predicts, conversions: dict[Form, int]) -> None:
    output, noisy = torch.ones(1, 1, 4, 4), torch.full((1, 1, 4, 4), 0.5)
    model = CVDM(CosineSchedule(), lambda seen: output, predicts=predicts)
    for form, number in conversions.items():
        with _CountingRoots() as counter:
            given = model.predict(noisy, torch.tensor(-0.5), model.read(noisy).seen, form=form)
        assert counter.count == number, form
        assert (given is output) == (number == 0), form


def test_objectives_are_weights_of_one_error() -> None:
    """|eps - eps_hat|^2 = a^2 |v - v_hat|^2; the bound weights the former by -SNR'/SNR."""
    inputs = batch(1, 1, 16, 16)
    condition, target, _, eps = inputs
    schedule = build().schedule(condition)
    objectives: list[tuple[Objective, Tensor]] = [
        *(("min_snr", T), ("min_snr", T / 10), ("velocity", T), ("noise", T)),
        ("elbo", 0.1 + 0.9 * T),
    ]
    for objective, t in objectives:
        log_gamma = schedule.log_gamma(t)
        a, _ = amplitudes(log_gamma)
        exact = build()
        v_hat = exact.predict(diffuse(target, eps, log_gamma), log_gamma, exact.read(condition).seen, form="velocity")
        error = velocity(target, eps, log_gamma) - v_hat
        weight = torch.ones(()) if objective in ("min_snr", "velocity") else a.square()
        if objective == "min_snr":
            weight = torch.where(schedule.snr(t) > 20, 20 * (1 - a.square()) / a.square(), weight)
        weight = -0.9 * weight * schedule.log_snr(t, 1) if objective == "elbo" else weight
        given = T if objective == "elbo" else t
        loss = build(objective=objective, t_min=0.1).loss(condition, target, given, eps)
        torch.testing.assert_close(loss.diffusion, (weight * error.square()).mean() / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("t_min", [1e-3, 0.1])
def test_elbo_is_the_integral_from_t_min(t_min: float) -> None:
    """An error of 1 everywhere leaves the weight: half the fall of log SNR from t_min to 1, which diverges at 0."""
    number = 20_000
    model = CVDM(
        LinearSchedule.named("qpi"),
        lambda images: torch.zeros_like(images[:, :1]),
        predicts="noise",
        objective="elbo",
        t_min=t_min,
    )
    t = (torch.arange(number, dtype=torch.float64) + 0.5) / number
    images = torch.zeros(number, 1, 1, 1, dtype=torch.float64)
    schedule = model.schedule(images[:1])
    ends = [schedule.log_snr(torch.tensor(end, dtype=torch.float64)).item() for end in (t_min, 1.0)]
    got = model.loss(images, images, t, torch.ones_like(images)).diffusion
    assert got.item() == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-3)


@pytest.mark.parametrize("std", [0.3, 0.5, 1.0])
def test_elbo_of_an_exact_denoiser_is_the_entropy_whatever_the_rate(std: float) -> None:
    """For a Gaussian target the bound is tight; without its third term it would fall as rates rise."""
    number = 5000
    t = (torch.arange(number, dtype=torch.float64).repeat(2) + 0.5) / number
    # The error is linear in target and noise, so two signs have the same mean square as all normal numbers.
    eps = torch.ones(2 * number, 1, 1, 1, dtype=torch.float64)
    target = std * eps * torch.cat([eps[:number], -eps[:number]])

    def bound(rate: float) -> Losses:
        schedule = Schedule(torch.full_like(eps[:1], rate), LinearWarp(0.01, 1.99), rate)
        model = CVDM(lambda _: schedule, _exact_noise(std), predicts="noise", objective="elbo", t_min=1e-3)
        return model.loss(torch.zeros_like(target), target, t, eps)

    totals = [bound(rate) for rate in (8.0, 40.0)]
    entropy = math.log(2 * math.pi * math.e * std**2) / 2
    for terms in totals:
        assert (terms.diffusion + terms.prior + terms.reconstruction).item() == pytest.approx(entropy, abs=0.01)
    assert (totals[0].diffusion + totals[0].prior - totals[1].diffusion - totals[1].prior).item() > 0.5


def _exact_noise(std: float) -> Callable[[Tensor], Tensor]:
    """The expected noise in a diffused Gaussian of mean 0."""

    def network(seen: Tensor) -> Tensor:
        gamma, noisy = seen[:, 1:2], seen[:, 2:3]
        return (1 - gamma).sqrt() / (gamma * std**2 + 1 - gamma) * noisy

    return network


def test_default_objective_follows_the_prediction() -> None:
    assert build().objective == "min_snr"
    assert build(predicts="noise").objective == "noise"


def test_schedule_learns_through_the_noisy_image() -> None:
    """The rate gets gradient from the diffusion term alone."""
    model = build(smoothness_weight=0.0)
    model.loss(*batch(1, 1, 16, 16)).diffusion.backward()
    for name, parameter in model.named_parameters():
        if name.startswith("schedule"):
            assert parameter.grad is not None, name
            assert float(parameter.grad.abs().max()) > 0, name


def test_residual_target_diffuses_the_difference() -> None:
    model, plain = build(residual=True, scale=0.5), build()
    condition, target, t, eps = batch(1, 1, 16, 16)
    expected = plain.loss(condition, (target - condition) / 0.5, t, eps)
    torch.testing.assert_close(model.loss(condition, target, t, eps).total, expected.total)
    with pytest.raises(ValueError, match="bring the condition to the target's channels"):
        build(2, 1, residual=True).center(torch.zeros(1, 2, 8, 8))
    shown, unshown = build(3, 1, residual="last", scale=0.5), build(3, 1)
    condition, target, t, eps = batch(3, 1, 16, 16)
    expected = unshown.loss(condition, (target - condition[:, 2:]) / 0.5, t, eps)
    torch.testing.assert_close(shown.loss(condition, target, t, eps).total, expected.total)


def test_zero_mean_diffusion_trains_its_mean_by_square_error_alone() -> None:
    mean_network = seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel"), seed=7)
    model = build(mean_network=mean_network)
    condition, target, t, eps = batch(1, 1, 16, 16)
    losses = model.loss(condition, target, t, eps)
    torch.testing.assert_close(losses.mean, (target - mean_network(condition)).square().mean())
    (losses.diffusion + losses.prior + losses.consistency + losses.smoothness).backward()
    assert all(parameter.grad is None for parameter in mean_network.parameters())
    losses.mean.backward()
    assert all(parameter.grad is not None for parameter in mean_network.parameters())


SCHEDULES: dict[str, Callable[[], nn.Module]] = {
    "learned": lambda: LearnedSchedule(seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel"))),
    "paper": lambda: PaperSchedule(seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel")), num_units=16),
    "global": lambda: GlobalSchedule(),
    "linear": lambda: LinearSchedule.named("qpi"),
    "cosine": lambda: CosineSchedule(),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_trains_and_predicts(name: str) -> None:
    network = seeded(lambda: UNet(3, 1, base=4, num_scales=2, norm="channel"))
    model = CVDM(SCHEDULES[name](), network)
    losses = model.loss(*batch(1, 1, 16, 16))
    losses.total.backward()
    assert bool(torch.stack([*losses]).isfinite().all())
    assert all(parameter.grad is not None and bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


def test_the_papers_schedule_learns_on_where_its_gamma_exceeds_one() -> None:
    """Nothing but the loss keeps rho positive; a first training at full length ended in NaN."""
    schedule = PaperSchedule(torch.zeros_like, num_units=16)
    with torch.no_grad():
        schedule.warp.rho_network.bias.fill_(-0.1)
    times = torch.linspace(0.01, 1, 100)
    assert schedule.warp(times).rho.min() < -1e-3
    model = CVDM(schedule, seeded(lambda: UNet(3, 1, base=4, num_scales=2, norm="channel")))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    condition, target, _, eps = batch(1, 1, 16, 16)
    for seed in range(60):
        t = torch.rand(len(condition), generator=torch.Generator().manual_seed(seed)) * 0.2
        optimizer.zero_grad()
        losses = model.loss(condition, target, t, eps)
        losses.total.backward()
        assert all(bool(values.grad.isfinite().all()) for values in model.parameters() if values.grad is not None)
        optimizer.step()
    assert schedule.warp(times).rho.min() > 0


OPTIONS = [
    {},
    {"predicts": "noise"},
    {"objective": "elbo"},
    {"residual": True},
    {"mean_network": nn.Conv2d(1, 1, 3, padding=1)},
    {"smoothness": "snr"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_compiles_without_a_graph_break(options: dict[str, Any]) -> None:
    # All of the network and the gradient's graph once: they take many times as long, and options change neither.
    model = build(num_scales=1, **options) if options else build(num_scales=2)
    inputs, backend = batch(1, 1, 16, 16), "eager" if options else "aot_eager"
    compiled = torch.compile(model.loss, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(*inputs).total, model.loss(*inputs).total, rtol=1e-5, atol=1e-6)
    condition, noisy, t, _ = inputs
    with torch.no_grad():
        known = model.read(condition)
        log_gamma, seen = known.schedule.log_gamma(t), known.seen
    predict = torch.compile(model.predict, fullgraph=True, backend=backend)
    expected = model.predict(noisy, log_gamma, seen)
    torch.testing.assert_close(predict(noisy, log_gamma, seen), expected, rtol=1e-5, atol=1e-5)
    torch.compiler.reset()


@pytest.mark.slow
def test_compiles_to_machine_code() -> None:
    """The default backend, which needs a C++ compiler: same loss, same gradient."""
    model, inputs = build(), batch(1, 1, 16, 16)
    compiled = torch.compile(model.loss, fullgraph=True)
    gradients = []
    for loss in (model.loss, compiled):
        model.zero_grad()
        losses = loss(*inputs)
        losses.total.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for plain, fused in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["paper", "global", "linear", "cosine"])
def test_every_schedule_compiles(name: str) -> None:
    model, inputs = (
        CVDM(SCHEDULES[name](), seeded(lambda: UNet(3, 1, base=4, num_scales=2, norm="channel"))),
        batch(1, 1, 16, 16),
    )
    compiled = torch.compile(model.loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs).total, model.loss(*inputs).total, rtol=1e-5, atol=1e-6)
    torch.compiler.reset()


def test_bfloat16_autocast_stays_close() -> None:
    model = CVDM(
        LearnedSchedule(seeded(lambda: UNet(1, 1, base=8, norm="channel"))),
        seeded(lambda: UNet(3, 1, base=16, norm="channel")),
    )
    inputs = batch(1, 1, 64, 64)
    single = model.loss(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model.loss(*inputs)
    for name, value in single._asdict().items():
        lowered = getattr(half, name)
        assert lowered.dtype == torch.float32, name
        torch.testing.assert_close(lowered, value, rtol=0.02, atol=1e-6, msg=name)
    half.total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_forward_is_the_loss_for_distributed_training() -> None:
    model, inputs = build(), batch(1, 1, 16, 16)
    assert isinstance(model(*inputs), Losses)
    assert torch.equal(model(*inputs).total, model.loss(*inputs).total)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": torch.zeros(3, 1, 8, 8)}, "equal batch and image sizes"),
        ({"target": torch.zeros(3, 2, 16, 16)}, "expected 1 target channels"),
        ({"eps": torch.zeros(3, 1, 16, 15)}, "as the target"),
        ({"t": torch.zeros(2)}, "one time per image"),
    ],
)
def test_wrong_batches_say_what_was_expected(change: dict[str, Tensor], words: str) -> None:
    names = ("condition", "target", "t", "eps")
    inputs = {**dict(zip(names, batch(1, 1, 16, 16), strict=True)), **change}
    with pytest.raises(ValueError, match=words):
        build().loss(**inputs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"predicts": "score"}, "velocity, noise"),
        ({"objective": "huber"}, "min_snr, velocity, noise, elbo"),
        ({"smoothness": "beta"}, "gamma, snr"),
        ({"residual": True, "mean_network": nn.Identity()}, "one of them"),
        ({"scale": 0.0}, "positive"),
        ({"objective": "elbo", "t_min": 0.0}, "t_min is 0.0; .* between 0 and 1"),
    ],
)
def test_wrong_settings_say_what_to_give(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(**options)


@pytest.mark.parametrize("objective", ["noise", "elbo"])
def test_gradient_of_the_rate_is_complete(objective: Objective) -> None:
    """Against a finite difference (float64): through noisy image, the network's gamma, weight and prediction."""
    schedule = GlobalSchedule()
    model = CVDM(
        schedule, seeded(lambda: UNet(3, 1, base=4, num_scales=2, norm="channel")), objective=objective
    ).double()
    inputs = [part.double() for part in batch(1, 1, 16, 16)]
    raw = schedule.get_parameter("network.raw")
    model.loss(*inputs).diffusion.backward()
    values = []
    with torch.no_grad():
        for shift in (1e-5, -2e-5):
            raw.add_(shift)
            values.append(float(model.loss(*inputs).diffusion))
    assert raw.grad is not None
    assert float(raw.grad) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5)


def _random_unet(in_channels: int, std: float) -> nn.Module:
    """With a last layer that is not 0."""
    network = seeded(lambda: UNet(in_channels, 1, base=4, num_scales=2, norm="channel"))
    nn.init.normal_(network.get_parameter("head.weight"), std=std, generator=torch.Generator().manual_seed(0))
    return network


def _gradient(module: object) -> Tensor:
    assert isinstance(module, nn.Module)
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@pytest.mark.parametrize("objective", ["min_snr", "velocity"])
@pytest.mark.parametrize(("kind", "most"), [("global", 1e-9), ("learned", 0.1)])
def test_schedule_learns_from_the_error_of_the_noise(objective: Objective, kind: str, most: float) -> None:
    """Whatever trains the network, its gradient is that of the paper's objective; exactly, if pixels have one rate."""
    condition, target, _, eps = (part.double() for part in batch(1, 1, 16, 16))
    t, found = torch.tensor([0.02, 0.1, 0.5], dtype=torch.float64), []
    kinds: tuple[Objective, ...] = (objective, "noise")
    for trained_by in kinds:
        schedule = GlobalSchedule() if kind == "global" else LearnedSchedule(_random_unet(1, 0.1))
        model = CVDM(schedule, _random_unet(3, 1.0), objective=trained_by).double()
        model.loss(condition, target, t, eps).diffusion.backward()
        found.append(_gradient(schedule))
    assert float((found[0] - found[1]).norm() / found[1].norm()) < most


@pytest.mark.parametrize("objective", ["min_snr", "velocity"])
def test_network_learns_from_the_velocity_alone(objective: Objective) -> None:
    """Its gradient is that of the velocity's square error, times min(1, 20 / SNR), whatever the schedule learns."""
    condition, target, _, eps = (part.double() for part in batch(1, 1, 16, 16))
    t = torch.tensor([0.02, 0.1, 0.5], dtype=torch.float64)  # with SNR above and below 20
    model = CVDM(GlobalSchedule(), _random_unet(3, 1.0), objective=objective).double()
    diffusion = model.loss(condition, target, t, eps).diffusion
    diffusion.backward()
    got = _gradient(model.network)
    model.zero_grad()
    with torch.no_grad():
        log_gamma = model.schedule(condition).log_gamma(t)
        snr = model.schedule(condition).snr(t)
        assert float(snr.min()) < 20 < float(snr.max())
        weight = (20 / snr).clamp(max=1) if objective == "min_snr" else 1.0
        seen = torch.cat([condition, log_gamma.exp().expand_as(target), diffuse(target, eps, log_gamma)], dim=1)
    expected = (weight * (velocity(target, eps, log_gamma) - model.network(seen)).square()).mean() / 2
    assert diffusion.item() == pytest.approx(expected.item(), rel=1e-12)
    expected.backward()
    torch.testing.assert_close(got, _gradient(model.network), rtol=1e-9, atol=1e-15)


@torch.no_grad()
def test_terms_enter_with_their_weights() -> None:
    inputs = batch(1, 1, 16, 16)
    condition, _, t, _ = inputs
    schedule = build().schedule(condition)
    gamma, snr = (float(term(schedule, t)) for term in (losses.smoothness, losses.snr_smoothness))
    assert float(build().loss(*inputs).smoothness) == pytest.approx(3e-4 * gamma, rel=1e-5)
    assert float(build(smoothness_weight=0.5).loss(*inputs).smoothness) == pytest.approx(0.5 * gamma, rel=1e-5)
    assert float(build(smoothness="snr").loss(*inputs).smoothness) == pytest.approx(6e-8 * snr, rel=1e-5)


def test_either_smoothness_starts_with_the_same_force() -> None:
    """The mean square of SNR'' is 5e3 times that of gamma''; what enters the loss is of one size."""
    t = (torch.arange(200) + 0.5) / 200
    images = torch.zeros(200, 1, 1, 1)
    terms = [
        CVDM(LearnedSchedule(torch.zeros_like), lambda seen: seen[:, :1], smoothness=kind)
        .loss(images, images, t, images)
        .smoothness.item()
        for kind in get_args(Smoothness)
    ]
    assert terms[1] == pytest.approx(terms[0], rel=0.2)


def test_networks_see_condition_mean_gamma_and_noisy_in_this_order() -> None:
    seen: list[Tensor] = []

    def network(images: Tensor) -> Tensor:
        seen.append(images)
        return images[:, :1]

    model = CVDM(LinearSchedule.named("qpi"), network, mean_network=lambda condition: condition + 10)
    condition, noisy = torch.zeros(1, 1, 4, 4), torch.full((1, 1, 4, 4), 3.0)
    model.predict(noisy, torch.tensor(-0.5), model.read(condition).seen)
    expected = [0.0, 10.0, float(torch.tensor(-0.5).exp()), 3.0]
    assert seen[0][0, :, 0, 0].tolist() == pytest.approx(expected)


def test_mean_is_trained_in_the_targets_units() -> None:
    mean_network = seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel"), seed=7)
    condition, target, t, eps = batch(1, 1, 16, 16)
    losses = build(mean_network=mean_network, scale=0.1).loss(condition, target, t, eps)
    torch.testing.assert_close(losses.mean, (target - mean_network(condition)).square().mean())


def test_networks_may_be_lowered_but_not_what_is_made_of_their_output() -> None:
    """Under autocast the rate, the centre and the prediction leave their networks as float32 again."""
    mean_network = seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel"))
    model = build(mean_network=mean_network)
    condition, noisy, t, _ = batch(1, 1, 16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        known = model.read(condition)
        forms = [model.predict(noisy, known.schedule.log_gamma(t), known.seen, form=form) for form in get_args(Form)]
    assert known.center is not None
    assert {known.schedule.rate.dtype, known.center.dtype, *(form.dtype for form in forms)} == {torch.float32}


@pytest.mark.parametrize("objective", get_args(Objective))
def test_a_time_of_zero_leaves_gradients_finite(objective: Objective) -> None:
    """Uniform float32 draws hit 0 now and then; the root of the noise variance has an infinite slope there."""
    model = build(objective=objective)
    condition, target, _, eps = batch(1, 1, 16, 16)
    model.loss(condition, target, torch.tensor([0.0, 0.5, 1.0]), eps).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
