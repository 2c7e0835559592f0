"""Saved figures: the same figure gives the same file."""

from pathlib import Path

from sfumato.figures.plotting import new_figure, save_figure


def test_the_same_figure_gives_the_same_svg(tmp_path: Path) -> None:
    written = []
    for folder in ("first", "second"):
        figure = new_figure(2, 2)
        axes = figure.add_subplot()
        axes.plot([0, 1], [1, 0], "o", clip_on=True)
        save_figure(figure, tmp_path / folder / "line.svg")
        written.append((tmp_path / folder / "line.svg").read_text(encoding="utf-8"))
    assert written[0].startswith("<?xml")
    assert written[0] == written[1]
