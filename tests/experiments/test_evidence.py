"""The pages say what is stored, and verdicts follow their rules."""

import math
import shutil
from pathlib import Path

import pytest

import evidence_pages
from evidence import archive, findings, found, verdicts
from evidence.found import Found
from yardstick import comparison
from yardstick.comparison import mean_and_half_width, values_of
from yardstick.stored import Figure

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("ends", "is_ratio", "wanted"),
    [
        ((0.6, 0.9), True, "yes"),
        ((1.01, 1.3), True, "no"),
        ((0.9, 1.1), True, "open"),
        ((0.96, 1.04), True, "equal"),
        ((0.96, 0.99), True, "equal"),  # better, but by less than the margin
        ((0.94, 0.99), True, "yes"),
        ((0.96, 0.99), False, "yes"),
        ((0.96, 1.04), False, "open"),
    ],
)
def test_a_verdict_follows_from_the_interval(ends: tuple[float, float], is_ratio: bool, wanted: str) -> None:
    given = Found(sum(ends) / 2, *ends, "1", "today", is_ratio)
    assert verdicts.verdict(given, -math.inf, 1.0) == wanted


def test_what_is_not_measured_is_open() -> None:
    assert verdicts.verdict(None, 0.0, 1.0) == "open"


def test_a_range_has_two_ends() -> None:
    shares = [
        Found(value, value - 0.01, value + 0.01, "1", "today", is_ratio=False) for value in (0.8, 0.88, 0.92, 0.95)
    ]
    assert [verdicts.verdict(each, 0.85, 0.92) for each in shares] == ["no", "yes", "open", "no"]


def test_claims_are_few_and_most_are_decided() -> None:
    words = [line.split("**")[1] for line in verdicts.claim_table() if "**" in line]
    assert len(words) == len(verdicts.CLAIMS) <= 12
    assert sum(word != "open" for word in words) >= 8
    assert len(Path(verdicts.__file__).read_text(encoding="utf-8").splitlines()) <= 150


def test_an_interval_of_a_mean_has_the_spread_of_images_and_of_trainings() -> None:
    """Student's for one training; with a second that lies elsewhere, it is wider than that of their mean's images."""
    one = values_of([Figure("a", 1.0, 0, "test", str(n), "x", float(n)) for n in range(5)], "a", 1.0, "x")
    middle, half = mean_and_half_width(one)
    assert middle == 2.0
    assert half == pytest.approx(2.7764451 * math.sqrt(2.5 / 5))
    two = values_of(
        [Figure("a", 1.0, s, "test", str(n), "x", n + 4.0 * s) for s in (0, 1) for n in range(5)], "a", 1.0, "x"
    )
    assert mean_and_half_width(two)[1] > 2 * half


def test_a_claim_takes_the_longest_repeated_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its interval includes trainings; what nobody trains, such as a formula, needs no second one."""

    def stored(rivals: list[tuple[str, float, int]], error: float) -> list[Figure]:
        own = [(found.NEW, 4.0, 0), (found.NEW, 4.0, 1), (found.NEW, 30.0, 0)]
        return [
            Figure(*cell, "test", image, "MAE", 1.0 if cell[0] == found.NEW else error)
            for cell in (*own, *rivals)
            for image in "xy"
        ]

    def claimed(*rivals: tuple[str, float, int]) -> tuple[str, str]:
        monkeypatch.setattr(found, "figures", lambda problem: stored(list(rivals), 2.0))
        result = found.against("any", "rival")
        assert result is not None
        return result.seeds, result.source

    repeated = ("rival", 4.0, 0), ("rival", 4.0, 1)
    assert claimed(*repeated, ("rival", 30.0, 0)) == ("2 and 2", "today, 4 min; 0.5 after 30")
    assert claimed(*repeated) == ("2 and 2", "today, 4 min")
    assert claimed(("rival", 4.0, 0), ("rival", 30.0, 0)) == ("1 and 1", "today, 30 min")
    assert claimed(("rival", 0.0, 0)) == ("2 and 1", "today, 4 min; 0.5 after 30")


@pytest.mark.parametrize(
    ("ratio", "words"), [(1.14, "14% more"), (0.968, "3% less"), (1.004, "as much as ours"), (0.996, "as much as ours")]
)
def test_a_ratio_is_said_in_words(ratio: float, words: str) -> None:
    assert findings.more(ratio) == words


def test_a_range_of_ratios_begins_next_to_one() -> None:
    assert findings._range({"far": 0.64, "between": 0.7, "near": 0.81}) == "19% (near) to 36% (far) less"
    assert findings._range({"far": 1.07, "between": 1.05, "near": 1.03}) == "3% (near) to 7% (far) more"
    assert findings._range({"far": 1.07, "between": 1.05, "near": 0.98}) == "2% less (near) to 7% more (far)"


def test_the_archive_is_compared_like_figures_of_today(tmp_path: Path) -> None:
    lines = ["problem,method,seed,set,image,metric,value"]
    lines += [f"qpi,{name},0,test,{image},MAE,{value}" for name, value in (("a", 2), ("b", 4)) for image in "xyz"]
    (tmp_path / "qpi.csv").write_text("\n".join([*lines, "other,a,0,test,x,MAE,7", "qpi,a,0,test,w,MAE,"]) + "\n")
    figures = archive.archived("qpi", tmp_path, of="qpi")
    both = comparison.ratio(*(values_of(figures, name, archive.MINUTES, "MAE") for name in "ab"))
    assert both is not None
    assert both.value == pytest.approx(0.5)
    assert both.images == 3


def test_the_pages_say_what_is_stored() -> None:
    """If this fails: python experiments/evidence_pages.py --write"""
    assert evidence_pages.differing(ROOT / "docs") == []


def test_a_changed_number_is_found_and_written_anew(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.ipynb", "assets"))
    shutil.copy(ROOT / "README.md", tmp_path)
    page = tmp_path / "docs" / "results.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("**yes**", "**no**", 1), encoding="utf-8")
    assert evidence_pages.differing(tmp_path / "docs") == ["results.md, claims"]
    (tmp_path / "docs" / evidence_pages.FOREST).unlink()
    evidence_pages.write(tmp_path / "docs")
    assert page.read_text(encoding="utf-8") == text
    assert "best linear filter" in (tmp_path / "docs" / evidence_pages.FOREST).read_text(encoding="utf-8")
