"""What is measured of students beside their teacher, and the table of what is stored."""

from pathlib import Path

import pytest
import torch

import students


def test_samples_are_compared_with_those_of_the_same_noise() -> None:
    """Samples 1.2 times as wide about the same mean: distance, ratio and coverage follow in closed form."""
    unit = torch.randn(16, 1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth = torch.randn(1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean = unit.mean(0)
    same, wider = students.compared(unit, unit, truth), students.compared(mean + 1.2 * (unit - mean), unit, truth)
    assert (same["RMSE"], same["ratio"]) == (0.0, 1.0)
    assert same["within"] == pytest.approx(15 / 17, abs=4 * (15 / 17 * 2 / 17) ** 0.5 / 64)
    assert same["CRPS"] == pytest.approx(torch.pi**-0.5, rel=0.05)
    assert wider["ratio"] == pytest.approx(1.2)
    assert wider["RMSE"] == pytest.approx(0.2 * (15 / 16) ** 0.5, rel=1e-6)
    assert wider["within"] > same["within"]


def test_the_table_compares_a_student_with_its_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(students, "RESULTS", tmp_path / "rows.csv")
    figures = {"RMSE": 0.1, "ratio": 0.99, "CRPS": 2.0, "within": 0.88}
    rows = [
        students.Row("w2s", "4", 0, kind, calls, f"image_{place}", metric, float(f"{value * factor * (1 + place):.5g}"))
        for kind, calls, factor in (("teacher", 32, 1.0), ("student", 4, 1.02))
        for place in range(2)
        for metric, value in figures.items()
    ]
    students.store(rows)
    assert students.stored() == sorted(rows)
    students.print_table(check=False)
    said = capsys.readouterr().out
    assert "| w2s | 4 | student | 4 | 0.153 | 1.515 | 1.020 (1.020 to 1.020) |" in said
    assert "student of 4 calls: ratio of standard deviations" in said
