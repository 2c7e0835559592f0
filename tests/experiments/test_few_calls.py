"""What is measured of few calls and of students, and the table of what is stored."""

from pathlib import Path

import pytest
import torch

import few_calls


def test_samples_are_compared_with_those_of_the_same_noise() -> None:
    """Samples 1.2 times as wide about the same mean: distance, ratio and coverage follow in closed form."""
    unit = torch.randn(16, 1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth = torch.randn(1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean = unit.mean(0)
    same, wider = few_calls.compared(unit, unit, truth), few_calls.compared(mean + 1.2 * (unit - mean), unit, truth)
    assert (same["RMSE"], same["ratio"]) == (0.0, 1.0)
    assert same["within"] == pytest.approx(15 / 17, abs=4 * (15 / 17 * 2 / 17) ** 0.5 / 64)
    assert same["CRPS"] == pytest.approx(torch.pi**-0.5, rel=0.05)
    assert wider["ratio"] == pytest.approx(1.2)
    assert wider["RMSE"] == pytest.approx(0.2 * (15 / 16) ** 0.5, rel=1e-6)
    assert wider["within"] > same["within"]


def test_one_read_is_compared_as_a_normal_distribution_of_each_pixel() -> None:
    """Its closed forms against very many samples of it."""
    seed = torch.Generator().manual_seed(2)
    mean, std = (torch.rand(1, 8, 8, dtype=torch.float64, generator=seed) for _ in range(2))
    truth = mean + 1.3 * std * torch.randn(1, 8, 8, dtype=torch.float64, generator=seed)
    drawn = mean + std * torch.randn(4000, 1, 8, 8, dtype=torch.float64, generator=seed)
    found, by_samples = few_calls.compared_read(mean, std, drawn, truth), few_calls.compared(drawn, drawn, truth)
    assert found["CRPS"] == pytest.approx(by_samples["CRPS"], rel=0.01)
    assert found["MAE"] == pytest.approx(by_samples["MAE"], rel=0.02)
    assert found["ratio"] == pytest.approx(1, abs=0.01)
    low, high = drawn.quantile(1 / 17, 0), drawn.quantile(16 / 17, 0)
    assert found["within"] == pytest.approx(float(((truth >= low) & (truth <= high)).double().mean()), abs=0.04)


def test_the_table_compares_a_student_with_its_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(few_calls, "RESULTS", tmp_path / "rows.csv")
    figures = {"RMSE": 0.1, "ratio": 0.99, "CRPS": 2.0, "within": 0.88, "MAE": 3.0}
    rows = [
        few_calls.Row(
            "w2s", "4", 0, kind, calls, f"image_{place}", metric, float(f"{value * factor * (1 + place):.5g}")
        )
        for kind, calls, factor in (("gaussian", 32, 1.0), ("2m", 4, 1.1), ("student", 4, 1.02))
        for place in range(2)
        for metric, value in figures.items()
    ]
    few_calls.store(rows)
    assert few_calls.stored() == sorted(rows)
    few_calls.print_table(check=False)
    said = capsys.readouterr().out
    assert "| w2s | 4 | student | 4 | 0.153 | 1.515 | 1.020 (1.020 to 1.020) | 1.020 (1.020 to 1.020) |" in said
    assert said.index("| 2m | 4 |") < said.index("| student | 4 |")
    assert "student of 4 calls: ratio of standard deviations" in said
    few_calls.draw(rows, tmp_path / "drawn.svg")
    assert "network calls of a sample" in (tmp_path / "drawn.svg").read_text(encoding="utf-8")
