"""Students against closed forms: where a lesson's long step lands, and what a taught student draws."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exact_problems import Gaussian, Heteroscedastic, log_uniform_rates, smooth_covariance
from sfumato import LearnedSchedule
from sfumato.diffusion.gaussian import amplitudes
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.sampling_grid import log_snr_grid
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.solvers import SOLVERS, NoiseLevel, Solver, Step, TaughtSolver, ended
from sfumato.diffusion.student import Student, Teacher
from sfumato.diffusion.warp import LinearWarp
from sfumato.system.errors import RecipeError
from training_on_exact import PixelNetwork, batch

CLOCK = LinearWarp(0.3, 1.7)
RATES = log_uniform_rates((1, 1, 2, 4))
LEVELS = log_snr_grid(12, 6.0)
SOLVERS_OF_TEACHERS: list[Solver] = ["2m", "first_order", "gaussian"]
SOLVERS_OF_STUDENTS: list[TaughtSolver] = ["first_order", "first_order_gaussian"]


def gaussian_problem() -> Gaussian:
    """Eight correlated pixels whose rates differ by a factor of ten."""
    mean = torch.linspace(-1, 1, 8, dtype=torch.float64)
    return Gaussian(lambda _: Schedule(RATES, CLOCK, reference_rate=6.0), mean, smooth_covariance(8, 0.3))


def no_noise() -> Tensor:
    raise AssertionError("noise was drawn")


@pytest.mark.parametrize("own", SOLVERS_OF_STUDENTS)
@pytest.mark.parametrize("solver", SOLVERS_OF_TEACHERS)
def test_one_long_step_lands_where_the_teachers_two_steps_do(solver: Solver, own: TaughtSolver) -> None:
    """From level to level, at every pixel, in float64: long steps by the lessons end in the teacher's own sample."""
    problem, condition = gaussian_problem(), torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    eps = torch.randn(5, 1, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lessons = Teacher(problem, LEVELS, solver).lessons(-RATES, condition, eps, own)
    assert len(lessons) == len(LEVELS) // 2
    levels, state = [NoiseLevel.at(-RATES * level) for level in LEVELS[::2]], eps
    for lesson, now, after in zip(lessons, levels, levels[1:], strict=False):
        torch.testing.assert_close(lesson.log_gamma, now.log_gamma, atol=0, rtol=1e-12)
        torch.testing.assert_close(lesson.noisy, state, atol=1e-10, rtol=0)
        state = SOLVERS[own](state, Step.between(now, after, lesson.clean, None), 0.0, no_noise)
    torch.testing.assert_close(lessons[-1].noisy, state, atol=1e-10, rtol=0)
    how: dict[str, Any] = {"num_steps": 12, "solver": solver, "seed": 0, "initial": eps[:, None]}
    drawn = sample(problem, condition, num_samples=5, **how)[:, 0]
    last = ended(own, state, levels[-1], lessons[-1].clean)
    torch.testing.assert_close(last, drawn, atol=1e-10, rtol=0)


def test_where_the_posterior_is_the_solvers_gaussian_a_student_has_nothing_to_change() -> None:
    """Mean 0, standard deviation 1/2: lessons are what the teacher predicts, and one call draws the exact sample."""
    schedule = Schedule(RATES, CLOCK, reference_rate=6.0)
    problem = Gaussian(lambda _: schedule, torch.zeros(8).double(), torch.eye(8).double() / 4)
    condition = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    eps = torch.randn(5, 1, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    teachers: list[tuple[list[float], Solver, float]] = [
        (LEVELS, "first_order_gaussian", 1e-9),
        ([LEVELS[0], LEVELS[6]], "first_order_gaussian", 1e-9),
    ]
    teachers += [(LEVELS, "gaussian", 1e-4)]  # which ends with the noise of its last level
    for levels, solver, tolerance in teachers:
        for lesson in Teacher(problem, levels, solver).lessons(-RATES, condition, eps, "first_order_gaussian"):
            found = problem.predict(lesson.noisy, lesson.log_gamma, condition)
            torch.testing.assert_close(lesson.clean, found, atol=tolerance, rtol=0)
    how: dict[str, Any] = {"num_steps": 1, "solver": "first_order_gaussian", "seed": 0, "initial": eps[:, None]}
    drawn = sample(problem, condition, num_samples=5, **how)[:, 0]
    a, s = amplitudes(-RATES)
    torch.testing.assert_close(drawn, eps / (a**2 / 4 + s**2).sqrt() / 2, atol=1e-10, rtol=0)


def test_a_teachers_states_are_those_of_its_samples_after_each_step() -> None:
    """Two steps of the formula, written out for one level: they lead from lesson to lesson."""
    problem = gaussian_problem()
    eps = torch.randn(1, 1, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    first, second, *_ = Teacher(problem, LEVELS, "first_order").lessons(-RATES, torch.zeros_like(eps), eps)
    state = eps
    for before, after in itertools.pairwise(LEVELS[:3]):
        a, s = amplitudes(-RATES * before)
        noise = (state - a * problem.predict(state, -RATES * before, state)) / s
        clean = (state - s * noise) / a
        a, s = amplitudes(-RATES * after)
        state = a * clean + s * noise
    torch.testing.assert_close(first.noisy, eps)
    torch.testing.assert_close(second.noisy, state, atol=1e-10, rtol=0)


RATE = torch.tensor([8.0, 12.0, 20.0, 30.0], dtype=torch.float64)
STD = torch.tensor([0.5, 0.3, 0.2, 0.1], dtype=torch.float64)


class FourKinds(Heteroscedastic):
    """Pixels of four kinds, whose number the condition tells: each has a mean, a width and a rate of its own."""

    def __init__(self) -> None:
        super().__init__(lambda condition: Schedule(RATE[condition.long()], CLOCK, reference_rate=8.0))

    def posterior_mean(self, condition: Tensor) -> Tensor:
        return condition / 2 - 0.7

    def posterior_std(self, condition: Tensor) -> Tensor:
        return STD[condition.long()]


class Table(nn.Module):
    """A velocity affine in the distance from the mean, by numbers for each kind of pixel and each level."""

    def __init__(self, levels: list[float]) -> None:
        super().__init__()
        self.levels = torch.tensor(levels, dtype=torch.float64)
        self.numbers = nn.Parameter(torch.zeros(2, 4, len(levels), dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        kind, gamma, noisy = images.split(1, dim=1)
        kind = kind.long()
        place = (-gamma.log() / RATE[kind])[..., None]
        nearest = (place.log() - self.levels.log()).abs().argmin(-1)
        slope, offset = self.numbers[:, kind, nearest]
        velocity: Tensor = slope * (noisy - gamma.sqrt() * (kind / 2 - 0.7)) + offset
        return velocity


def taught(teacher: Teacher, student: Student, num_steps: int) -> Student:
    """Teach by Adam, whose rate falls along a cosine."""
    student.teacher = teacher
    problem, generator = FourKinds(), torch.Generator().manual_seed(len(student.levels))
    optimizer = torch.optim.Adam(student.get_submodule("network").parameters(), lr=0.2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    t = (torch.arange(64, dtype=torch.float64) + 0.5) / 64
    for _ in range(num_steps):
        condition = torch.randint(4, (64, 1, 2, 4), generator=generator).double()
        unit, eps = torch.randn(2, *condition.shape, dtype=torch.float64, generator=generator)
        target = problem.posterior_mean(condition) + problem.posterior_std(condition) * unit
        optimizer.zero_grad()
        student.loss(condition, target, t, eps).total.backward()
        optimizer.step()
        decay.step()
    return student


@pytest.mark.parametrize(("solver", "own"), [("2m", "first_order"), ("gaussian", "first_order_gaussian")])
def test_a_student_of_four_calls_draws_its_exact_teachers_samples(solver: Solver, own: TaughtSolver) -> None:
    """32 calls of the exact denoiser become 16, 8 and 4, for widths and rates that differ; 4096 draws of each pixel."""
    problem, levels = FourKinds(), log_snr_grid(32, 8.0)
    teacher, table = Teacher(problem, levels, solver), Table(levels[::2])
    for _ in range(3):
        levels = levels[::2]
        student = taught(teacher, Student(problem.schedule, table, levels=levels, solver=own), 200)
        teacher, table = Teacher(student, levels, own), copy.deepcopy(table)
    condition = torch.arange(4, dtype=torch.float64).expand(1, 1, 64, 4)
    how: dict[str, Any] = {"num_samples": 64, "seed": 1}
    few = sample(student, condition, num_steps=4, solver=own, **how)[:, 0, 0].reshape(-1, 4)
    many = sample(problem, condition, num_steps=32, solver=solver, **how)[:, 0, 0].reshape(-1, 4)
    ratios = few.std(0) / many.std(0)
    assert float((ratios - 1).abs().max()) < 0.01, ratios
    assert float(((few - many) / STD).square().mean().sqrt()) < 0.01
    assert float((few.std(0) / STD - 1).abs().max()) < 0.05


@pytest.mark.parametrize("asked", [{"num_steps": 8}, {"solver": "2m"}, {"eta": 1.0}, {}])
def test_other_ways_to_sample_a_student_are_refused(asked: dict[str, Any]) -> None:
    student = Student(LearnedSchedule(torch.zeros_like), PixelNetwork(3, 4, 1), levels=[1.0, 0.1])
    settings = {"num_steps": 2, "solver": "first_order", **asked} if asked else {}
    with pytest.raises(RecipeError, match=r"a student: it was taught 2 calls of first_order with eta 0"):
        sample(student, torch.zeros(1, 1, 4, 4), num_samples=1, seed=0, **settings)
    assert (
        sample(student, torch.zeros(1, 1, 4, 4), num_samples=1, seed=0, num_steps=2, solver="first_order")
        .isfinite()
        .all()
    )


def test_only_the_denoising_network_learns() -> None:
    rate = PixelNetwork(1, 4, 1)
    student = Student(LearnedSchedule(rate), PixelNetwork(3, 4, 1), levels=[1.0, 0.1])
    student.teacher = Teacher(Heteroscedastic(LearnedSchedule(rate)), [1.0, 0.4, 0.1, 0.01], "2m")
    student.loss(*batch(torch.Generator().manual_seed(0), size=4)).total.backward()
    for name, parameter in student.named_parameters():
        assert (parameter.grad is not None) == name.startswith("network."), name


def test_a_student_without_a_teacher_has_no_loss() -> None:
    student = Student(LearnedSchedule(torch.zeros_like), PixelNetwork(3, 4, 1), levels=[1.0, 0.1])
    with pytest.raises(ValueError, match="no loss without its teacher"):
        student.loss(*batch(torch.Generator().manual_seed(0), size=4))
