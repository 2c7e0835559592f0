"""Draw the simulated structures beside real images of structured illumination (SIM).

python docs/problems/draw_beside_real.py SIM_IMAGES

SIM_IMAGES is a folder with `tsim_er` (er1_raw.tif, er1_sim.tif), `tsim_actin_hr_only` (actin1_sim.tif) and `dlsim_mt`
(mt1_he_raw15.tif, mt1_he_sim.tif), as in the repositories of T-SIM and DL-SIM.
"""

import argparse
from pathlib import Path

import numpy as np
from draw_problems import FIGURES, Picture, grey, sheet
from PIL import Image, ImageDraw, ImageFont

from sfumato.data.images.view import View
from sfumato.problems.microscopy_simulation import image_field

__all__ = ["draw_beside_real"]

SIDE = 224


def words(text: str) -> Picture:
    """A white tile that says why there is no picture."""
    tile = Image.new("L", (SIDE, SIDE), 255)
    ImageDraw.Draw(tile).multiline_text((8, SIDE // 2 - 20), text, fill=90, font=ImageFont.load_default(size=15))
    return np.asarray(tile)


def real(view: View, top: int, left: int, side: int) -> Picture:
    """A square of a real image."""
    pixels = view.open().read()
    return grey(pixels[top : top + side, left : left + side])


def draw_beside_real(folder: Path) -> None:
    """Each structure as simulated, at low and at high light with its target, then as it is in real images."""
    er, actin, mt = folder / "tsim_er", folder / "tsim_actin_hr_only", folder / "dlsim_mt"
    missing, frames = words("no public image\nfound"), {"T": 2}
    pictures = {
        "coated_pits": ("coated\npits", [missing, missing]),
        "endoplasmic_reticulum": (
            "endoplasmic\nreticulum\n\nreal: T-SIM ER",
            [
                real(View(er / "er1_raw.tif", axes="TZYX", pick=frames, average="Z"), 0, 200, 112),
                real(View(er / "er1_sim.tif", axes="YX"), 0, 400, 224),
            ],
        ),
        "microtubules": (
            "microtubules\n\nreal: DL-SIM\nmicrotubules",
            [
                real(View(mt / "mt1_he_raw15.tif", axes="ZYX", average="Z"), 0, 0, 224),
                real(View(mt / "mt1_he_sim.tif", axes="YX"), 0, 0, 224),
            ],
        ),
        "f_actin": (
            "F-actin\n\nreal: T-SIM\nactin",
            [words("no raw frames\nfound"), real(View(actin / "actin1_sim.tif", axes="YX"), 100, 400, 224)],
        ),
    }
    rows, names = [], []
    for name, (title, found) in pictures.items():
        field = image_field(name, side=SIDE // 2, seed=11, cell=1, levels=[15, 600])
        rows.append([*(grey(raw.mean(0)) for raw in field.raw), grey(field.target), *found])
        names.append(title)
    titles = (
        "simulated, 15 photons",
        "simulated, 600 photons",
        "simulated target",
        "real, mean of raw frames",
        "real, SIM",
    )
    sheet(FIGURES / "simulated_beside_real.png", rows, titles, names, SIDE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="SIM_IMAGES")
    draw_beside_real(parser.parse_args().folder)
