"""Calibration measured against closed forms, and its p-values on posteriors that are exactly right or known wrong."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrated_draws import GaussianDraws
from sfumato.statistics.calibration_report import Estimate, by_images, measure, p_values, rank_pools
from sfumato.statistics.exchange_test import check, exchange_test, pool, pool_ranks
from sfumato.statistics.rank_histogram import (
    central_interval,
    coverage_scores,
    member_histograms,
    polynomials,
    rank_scores,
)
from sfumato.statistics.scores import crps, energy_score, reliability, spread_and_error
from sfumato.statistics.significance import interval, ratio_interval
from sfumato.statistics.tarp import PROJECTIONS, reference_ranks

TESTS = ("coverage", "ranks", "random", "local_means", "band_energies")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Estimates


def test_an_estimate_is_a_mean_or_ratio_with_its_interval() -> None:
    values = np.array([1.0, 2.0, 6.0])
    mean, ratio = Estimate.of_mean(values, seed=0), Estimate.of_ratio(values, 2 * values, seed=0)
    assert mean == (3.0, *interval(values))
    assert ratio == pytest.approx((0.5, 0.5, 0.5))
    assert mean.low < 0 < mean.high
    assert mean.root() == pytest.approx((math.sqrt(3.0), 0.0, math.sqrt(mean.high)))
    assert math.isnan(Estimate.of_ratio(values, 0 * values, seed=0).value)
    alone = Estimate.of_mean(values[:1], seed=0)
    assert math.isnan(alone.low)
    assert alone.with_ends() == (1.0, 1.0, 1.0)
    assert mean.with_ends() is mean
    assert f"{Estimate(0.123456, -0.1, 0.2)}" == "0.1235 [-0.1, 0.2]"
    assert f"{Estimate(0.5, 0.25, 1):+.1%}" == "+50.0% [+25.0%, +100.0%]"


# Scores


@pytest.mark.parametrize("num_samples", [2, 3, 8])
def test_crps_is_the_double_sum(num_samples: int) -> None:
    samples, truths = normal(num_samples, 5, 2, 3, 4), normal(5, 2, 3, 4, seed=1)
    pairs = (samples[:, None] - samples).abs().sum((0, 1)) / (2 * num_samples * (num_samples - 1))
    direct = ((samples - truths).abs().mean(0) - pairs).mean((1, 2, 3))
    assert torch.allclose(crps(samples, truths), direct, atol=1e-12)


def test_crps_against_properscoring() -> None:
    properscoring = pytest.importorskip("properscoring", reason="properscoring is not installed")
    samples, truths = normal(6, 5, 1, 4), normal(5, 1, 4, seed=1)
    biased = torch.from_numpy(properscoring.crps_ensemble(truths.numpy(), samples.movedim(0, -1).numpy()))
    # properscoring divides the double sum by N^2.
    pairs = (samples[:, None] - samples).abs().sum((0, 1)) * (1 / (2 * 36) - 1 / (2 * 30))
    assert torch.allclose(crps(samples, truths), (biased + pairs).flatten(1).mean(1), atol=1e-12)


@pytest.mark.parametrize("num_samples", [2, 4, 16])
def test_fair_crps_has_the_expectation_of_the_exact_one(num_samples: int) -> None:
    """For truth and draws from N(0, 1) it is 1/sqrt(pi), whatever the number of draws."""
    num_images = 40_000
    found = crps(normal(num_samples, num_images, 1, 1), normal(num_images, 1, 1, seed=1))
    assert abs(float(found.mean()) - 1 / math.sqrt(math.pi)) < 4 * float(found.std()) / math.sqrt(num_images)


@pytest.mark.parametrize("num_samples", [2, 5])
def test_energy_score_is_the_double_sum(num_samples: int) -> None:
    samples, truths = normal(num_samples, 3, 2, 4, 5), normal(3, 2, 4, 5, seed=1)
    for image, found in enumerate(energy_score(samples, truths)):
        x, y = samples[:, image].flatten(1), truths[image].flatten()
        pairs = sum((a - b).norm() for a in x for b in x) / (2 * num_samples * (num_samples - 1))
        direct = (sum((a - y).norm() for a in x) / num_samples - pairs) / math.sqrt(40)
        assert float(found) == pytest.approx(float(direct), abs=1e-12)


def test_energy_score_of_one_pixel_is_crps() -> None:
    samples, truths = normal(7, 9, 1, 1), normal(9, 1, 1, seed=1)
    assert torch.allclose(energy_score(samples, truths), crps(samples, truths), atol=1e-12)


@pytest.mark.parametrize("num_samples", [2, 8])
def test_spread_equals_error_for_exact_draws(num_samples: int) -> None:
    num_images = 4000
    spread, error = spread_and_error(normal(num_samples, num_images, 1, 8), normal(num_images, 1, 8, seed=1))
    difference = spread - error
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / math.sqrt(num_images)
    assert float(spread.mean()) == pytest.approx(1 + 1 / num_samples, rel=0.05)


# Ranks and coverage


def test_ranks_count_the_smaller_members() -> None:
    members = normal(6, 4, 1, 5, 5)
    direct = (members[:, None] > members).sum(1)
    assert torch.equal(pool_ranks(members, seeded()), direct)


def test_ties_are_broken_evenly() -> None:
    ranks = pool_ranks(torch.zeros(4, 10_000), seeded())
    assert torch.equal(ranks.sort(0).values, torch.arange(4)[:, None].expand(4, 10_000))
    counts = torch.bincount(ranks[0], minlength=4)
    assert (counts - 2500).abs().max() < 4 * math.sqrt(10_000 * 3 / 16)
    some = torch.tensor([1.0, 0.0, 1.0, 2.0])[:, None].expand(4, 1000)
    found = pool_ranks(some, seeded())
    assert (found[1] == 0).all()
    assert (found[3] == 3).all()
    assert set(found[0].tolist()) == {1, 2}


@pytest.mark.parametrize(("num_samples", "level"), [(2, 0.9), (9, 0.9), (19, 0.9), (32, 0.5), (64, 0.9), (16, 0.01)])
def test_coverage_has_exactly_its_expectation(num_samples: int, level: float) -> None:
    """Averaged over who is the truth, it is (j - i)/(N + 1) in every image, without any randomness."""
    i, j = central_interval(num_samples, level)
    assert 1 <= i < j <= num_samples
    members = normal(num_samples + 1, 3, 1, 4, 4)
    covered = coverage_scores(member_histograms(members, seeded()), (i, j))
    assert torch.allclose(covered.mean(0), torch.tensor((j - i) / (num_samples + 1), dtype=torch.float64))
    ordered = members[1:].sort(0).values
    direct = (ordered[i - 1] <= members[0]) & (members[0] <= ordered[j - 1])
    assert torch.allclose(covered[0, :, 0], direct.double().mean((1, 2, 3)))


def test_polynomials_are_orthonormal() -> None:
    table = polynomials(9, 4)
    assert torch.allclose(table.T @ table / 9, torch.eye(4, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(table.sum(0), torch.zeros(4, dtype=torch.float64), atol=1e-12)
    assert polynomials(3, 4).shape == (3, 2)


# Reliability


def test_reliability_of_exact_draws_whose_width_varies() -> None:
    """Even four draws look reliable, although standard deviations of two are very noisy."""
    width = torch.linspace(0.1, 2.0, 200, dtype=torch.float64)
    predicted, actual, pixels = reliability(width * normal(4, 2000, 1, 200), width * normal(2000, 1, 200, seed=1))
    assert torch.equal(pixels.sum(0), torch.full((10,), 40_000.0, dtype=torch.float64))
    error = (predicted - actual).sum(0) / (predicted - actual).square().sum(0).sqrt()
    assert error.abs().max() < 4
    means = predicted.sum(0) / pixels.sum(0)
    assert (means.diff() > 0).all()


# Projections


@pytest.mark.parametrize("shape", [(2, 20), (1, 8, 8), (2, 33, 17), (1, 5, 6, 7), (1, 1, 1)])
@pytest.mark.parametrize("name", list(PROJECTIONS))
def test_projections_take_any_shape(name: str, shape: tuple[int, ...]) -> None:
    members = normal(5, 3, *shape)
    features = PROJECTIONS[name](members, seeded())
    assert features.shape[:2] == (5, 3)
    assert features.isfinite().all()
    assert reference_ranks(features, seeded()).shape == (5, 3, 64)


def test_local_means_and_band_energies() -> None:
    members = normal(5, 3, 1, 16, 16)
    means = PROJECTIONS["local_means"](members, seeded())
    assert torch.allclose(means[2, 1, 9], members[2, 1, 0, 2:4, 2:4].mean())
    wave = torch.cos(2 * math.pi * 5 / 16 * torch.arange(16, dtype=torch.float64)).expand(16, 16)
    energies = PROJECTIONS["band_energies"](torch.stack([wave, -wave])[:, None, None], seeded())
    assert energies.shape == (2, 1, 8)
    assert int(energies[0, 0].argmax()) == 5


def test_reference_ranks_are_ranks_of_distances() -> None:
    features = normal(6, 4, 3)
    references = torch.randn(8, 3, generator=seeded(7)).double()
    z = (features - features.mean(0)) / features.std(0)
    distance = (z[:, :, None] - references).norm(dim=-1)
    direct = (distance[:, None] > distance).sum(1)
    assert torch.equal(reference_ranks(features, seeded(7), num_references=8), direct)


# The exact test


def test_p_value_of_one_image_is_the_place_of_its_score() -> None:
    """With one image all N + 1 outcomes are known: p is uniform over the share of the one observed."""
    scores = torch.tensor([3.0, 0.0, 1.0, -1.5])[:, None, None]
    p = [exchange_test(scores, seeded(seed)) for seed in range(50)]
    assert 0 < min(p) < max(p) < 0.25 + 5 * math.sqrt(0.25 * 0.75 / 999)


def test_a_score_that_is_always_the_same_gives_any_p_value() -> None:
    p = [exchange_test(torch.full((4, 5, 2), 0.1), seeded(seed)) for seed in range(200)]
    assert uniform(p) > 0.01


def uniform(values: list[float]) -> float:
    stats = pytest.importorskip("scipy.stats", reason="the Kolmogorov-Smirnov test needs scipy")
    return float(stats.kstest(values, "uniform").pvalue)


def naive_p(samples: Tensor, truths: Tensor) -> float:
    """Of the rank histogram, as if pixels were independent."""
    stats = pytest.importorskip("scipy.stats", reason="the chi-square test needs scipy")
    counts = member_histograms(pool(samples, truths), seeded())[0].sum(0) * truths[0].numel()
    return float(stats.chisquare(counts.numpy()).pvalue)


@pytest.mark.parametrize("blur", [0.0, 1.5], ids=["independent pixels", "correlated pixels"])
def test_p_values_are_uniform_on_exact_posteriors(blur: float) -> None:
    problem = GaussianDraws(8, blur=blur)
    found: dict[str, list[float]] = {name: [] for name in (*TESTS, "naive")}
    for seed in range(200):
        samples, truths = problem.draw(7, 12, seed)
        for name, p in p_values(rank_pools(samples, truths, seed=seed), seed=seed, num_permutations=199).items():
            found[name].append(p)
        found["naive"].append(naive_p(samples, truths))
    for name in TESTS:
        assert uniform(found[name]) > 0.01, name
    # A test that takes pixels for independent is right where they are, and fails where they are not.
    assert (uniform(found["naive"]) > 0.01) == (blur == 0)


def test_p_values_are_uniform_where_values_are_tied() -> None:
    """Images of few grey levels, as from an 8-bit camera with a dark background."""
    problem, found = GaussianDraws(8, blur=1.5), []
    for seed in range(200):
        samples, truths = (x.mul(2).round().clamp(min=0) for x in problem.draw(7, 12, seed))
        histograms = member_histograms(pool(samples, truths), seeded(seed))
        found.append(exchange_test(rank_scores(histograms), seeded(seed), num_permutations=199))
    assert uniform(found) > 0.01


@pytest.mark.parametrize("wrong", [{"scale": 0.9}, {"bias": 0.2}], ids=["too narrow", "biased"])
def test_wrong_posteriors_are_found(wrong: dict[str, float]) -> None:
    samples, truths = GaussianDraws(16, blur=0.0).draw(16, 100, 3, **wrong)
    p = p_values(rank_pools(samples, truths))
    assert p["ranks"] < 0.01
    assert p["local_means"] < 0.01
    assert ("bias" in wrong) or p["coverage"] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("blur", [0.0, 1.5], ids=["independent pixels", "correlated pixels"])
@pytest.mark.parametrize("wrong", [{"scale": 0.9}, {"bias": 0.2}], ids=["too narrow", "biased"])
def test_power_at_200_images(wrong: dict[str, float], blur: float) -> None:
    problem = GaussianDraws(32, blur=blur)
    rejected = {"coverage": 0, "ranks": 0}
    for seed in range(20):
        samples, truths = problem.draw(16, 200, seed, **wrong)
        p = p_values(rank_pools(samples, truths, seed=seed), seed=seed)
        for name in rejected:
            rejected[name] += p[name] < 0.05
    assert all(number >= 18 for number in rejected.values()), rejected


# The report


def test_report_of_exact_draws() -> None:
    samples, truths = GaussianDraws(8, blur=1.0).draw(9, 40, 5)
    report = measure(samples, truths, seed=1)
    assert (report.num_images, report.num_samples, report.coverage_expected) == (40, 9, 0.8)
    assert report.coverage.low < report.coverage_expected < report.coverage.high
    assert report.spread_over_error.low < 1 < report.spread_over_error.high
    assert report.spread_over_error.value == pytest.approx(report.spread / report.error)
    assert sum(bin.value for bin in report.ranks) == pytest.approx(1)
    assert len(report.ranks) == len(report.joint[0].curve) == 10
    assert report.joint[0].curve[-1] == pytest.approx(1)
    assert report.crps.value == pytest.approx(float(crps(samples, truths).mean()), rel=1e-6)
    assert len(report.reliability) == 10
    assert len(report.lines()) == 6 + 10 + 3
    assert measure(samples, truths, seed=1) == report
    assert measure(samples, truths, seed=2).ranks_p != report.ranks_p


def test_p_values_are_told_as_finely_as_exchanges_allow() -> None:
    """Digits below one over their number plus one are those of ties broken at random."""
    samples, truths = normal(8, 40, 1, 6, 6), 3 + normal(40, 1, 6, 6, seed=1)
    for num_permutations, least in ((999, "< 0.001"), (99, "< 0.01")):
        report = measure(samples, truths, num_permutations=num_permutations)
        assert 0 < report.coverage_p < report.least_p == 1 / (num_permutations + 1)
        assert report.told(report.coverage_p) == least
        told = [line for line in report.lines() if ", p " in line]
        assert len(told) == len(TESTS)
        assert sum(line.endswith(f"p {least}") for line in told) >= 2
    assert report.told(0.25) == "= 0.25"
    assert report.told(report.least_p) == "= 0.01"


def test_report_of_two_draws_of_one_image_in_whole_numbers() -> None:
    samples, truths = torch.tensor([[[[0, 4]]], [[[2, 4]]]]), torch.tensor([[[1, 4]]])
    report = measure(samples, truths)
    assert report.reliability == ()
    assert math.isnan(report.crps.low)
    assert report.coverage_expected == pytest.approx(1 / 3)
    assert all(report.lines())


def test_blocks_of_images_give_what_all_give(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, truths = GaussianDraws(8, blur=1.0).draw(5, 10, 0)
    whole = rank_pools(samples, truths)
    monkeypatch.setattr("sfumato.statistics.calibration_report._AT_ONCE", 3 * 5 * 64)
    blocks = rank_pools(samples, truths)
    assert torch.equal(whole.histograms, blocks.histograms)
    assert all(torch.equal(whole.joint[name], blocks.joint[name]) for name in whole.joint)
    assert torch.allclose(by_images(crps, samples, truths), crps(samples, truths))


def test_bad_input_is_explained() -> None:
    samples, truths = normal(4, 3, 1, 5), normal(3, 1, 5)
    with pytest.raises(ValueError, match=r"samples have shape \(4, 3, 1, 5\) and truths \(2, 1, 5\)"):
        check(samples, truths[:2])
    with pytest.raises(ValueError, match="got 1 samples per image"):
        measure(samples[:1], truths)
    with pytest.raises(ValueError, match="not finite"):
        measure(samples, truths / 0)
    with pytest.raises(ValueError, match="holds nothing"):
        measure(samples[:, :0], truths[:0])
    with pytest.raises(ValueError, match="level is 90"):
        measure(samples, truths, level=90)
    with pytest.raises(ValueError, match="at least 4"):
        reliability(samples[:3], truths)
    with pytest.raises(ValueError, match="num_bins is 0"):
        reliability(samples, truths, num_bins=0)


def test_ratio_interval_agrees_with_that_of_a_mean() -> None:
    pytest.importorskip("scipy", reason="bootstrap intervals need scipy")
    values = np.random.default_rng(0).normal(3, 1, 30)
    assert ratio_interval(values, np.ones(30)) == pytest.approx(interval(values))
    assert ratio_interval(2 * values, values) == pytest.approx((2, 2))
    assert math.isnan(ratio_interval(values[:1], values[:1])[0])
