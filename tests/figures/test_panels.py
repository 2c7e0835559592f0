"""Quick pictures: their uncertainty can be seen, however small it is."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.figures.panels import draw_panel


@pytest.mark.parametrize("size", [0.01, 3.0])
def test_the_largest_uncertainty_is_bright_and_the_least_dark(size: float, tmp_path: Path) -> None:
    ramp = np.linspace(0, 1, 200 * 200).reshape(1, 200, 200)
    draw_panel(tmp_path / "panel.png", ramp, ramp, size * ramp, ramp)
    picture = np.asarray(Image.open(tmp_path / "panel.png").convert("L"))
    spread = picture[14:, 2 * 204 : 2 * 204 + 200]
    assert spread[-1, -1] > 200
    assert spread[0, 0] == 0


def test_a_few_hot_pixels_and_the_border_do_not_decide_the_scale(tmp_path: Path) -> None:
    ramp = np.linspace(0, 1, 200 * 200).reshape(1, 200, 200)
    spoilt = ramp.copy()
    spoilt[:, :8], spoilt[:, 100, 100] = 1000, -1000
    for name, image in (("clean", ramp), ("spoilt", spoilt)):
        draw_panel(tmp_path / f"{name}.png", image, image, 0.1 * np.abs(image), image)
    drawn = {name: Image.open(tmp_path / f"{name}.png").convert("L") for name in ("clean", "spoilt")}
    rows = {name: np.asarray(picture, float)[30:110] for name, picture in drawn.items()}
    np.testing.assert_allclose(rows["clean"], rows["spoilt"], atol=2)
