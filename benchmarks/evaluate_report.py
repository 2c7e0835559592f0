"""What an evaluation costs beyond the sampling, and whether its page can be read without a network.

    python benchmarks/evaluate_report.py --check

Twenty simulated fields of four structures, widefield against SIM at twice the sampling, 192 x 192 pixels; two models
trained for a few steps, bicubic interpolation and a Wiener filter. The time inside the methods is taken off the whole:
what is left is reading, metrics, resolution, statistics, pictures and the page. Chromium, if there is one, opens the
page with all names of the network unresolvable, at the width of a desk and of a phone; `--keep FOLDER` keeps page and
screenshots.
"""

import argparse
import dataclasses
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bars import Bars
from sfumato.evaluation.compared_methods import Deconvolution, Method, classical_method, model_method, open_model
from sfumato.evaluation.evaluate import evaluate, summarise
from sfumato.evaluation.report_page import write_report
from sfumato.models.recipe import Recipe, parse
from sfumato.problems import microscopy_simulation as simulation
from sfumato.training.preparation import open_test_set
from sfumato.training.train import train

MOST_SECONDS = 120
FIELDS, SIDE, PHOTONS = 5, 96, 100
OPTICS = simulation.Microscope()
WIDTHS = (1280, 390)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROBE = """<script>addEventListener('load', () => parent.postMessage(JSON.stringify({
    broken: [...document.images].filter(image => !image.naturalWidth).length, images: document.images.length,
    over: document.documentElement.scrollWidth - innerWidth, width: innerWidth,
    height: document.documentElement.scrollHeight}), '*'))</script>"""
"""Tells the frame around it what the browser made of the page; put into a copy of it only."""
FRAME = """<!doctype html><body style='margin:0'><script>addEventListener('message', told => {
    document.title = told.data})</script>
    <iframe style='border:0;width:{width}px;height:{height}px' src='{page}'></iframe>"""
"""A window of a phone's width: browsers make none of their own narrower than 500 pixels."""


def recipe(manifest: Path, method: str, steps: int) -> Recipe:
    """Small networks, trained a few steps: the report does not depend on how good they are."""
    values = {
        "name": {"cvdm": "CVDM", "regression": "U-Net"}[method],
        "data": {"manifest": str(manifest), "upsample": True, "patch": 32},
        "model": {"method": method, "base": 8, "rate_base": 4, "num_scales": 2},
        "train": {"steps": steps, "batch_size": 4, "learning_rate": 2e-3, "warmup": 5},
        "sample": {"steps": 4, "samples": 2},
    }
    return parse(json.dumps(values))


class Stopwatch:
    """Adds up the time that methods take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, method: Method) -> Method:
        """The same method, watched."""

        def run(measured: NDArray[np.generic], image: int) -> NDArray[np.float32]:
            start = time.perf_counter()
            try:
                return method.run(measured, image)
            finally:
                self.seconds += time.perf_counter() - start

        return dataclasses.replace(method, run=run)


def report_time(bars: Bars, folder: Path, steps: int) -> Path:
    """Simulate, train, evaluate; returns the page."""
    cells = {"train": 1, "test": FIELDS}
    manifest = simulation.simulate(folder / "images", seed=0, cells=cells, side=SIDE, levels=[PHOTONS])
    recipes = [recipe(manifest, method, steps) for method in ("cvdm", "regression")]
    trained = [train(each, folder / each.name, quiet=True).model_file for each in recipes]
    pixel_um = OPTICS.pixel_um / 2
    microscope = Deconvolution(
        pixel_um, OPTICS.numerical_aperture, OPTICS.wavelength_um, noise_to_signal=0.03, offset=OPTICS.camera.offset
    )
    watch, start = Stopwatch(), time.perf_counter()
    opened = [open_model(str(path)) for path in trained]
    methods = [classical_method(name, microscope) for name in ("bicubic", "wiener")]
    methods += [model_method(name, model, num_samples=2) for name, model in opened]
    found = evaluate(
        [watch.timed(method) for method in methods], open_test_set(recipes[0]), affine=True, pixel_um=pixel_um
    )
    page = write_report(found, summarise(found), folder / "evaluation")
    seconds = time.perf_counter() - start - watch.seconds
    bars.report("images", len(found.images), low=20)
    bars.report("methods", len(found.methods), low=3)
    bars.report("seconds inside the methods", watch.seconds)
    bars.report("seconds of the evaluation beyond them", seconds, high=MOST_SECONDS)
    bars.report("size of the page, MB", page.stat().st_size / 1e6)
    return page


def browse(browser: str, page: Path, width: int, height: int, *options: str) -> str:
    """Open a page without a network; what the browser prints."""
    with tempfile.TemporaryDirectory() as profile:
        command: Sequence[str] = (
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
            f"--window-size={width},{height}", *options, page.resolve().as_uri(),
        )  # fmt: skip
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout


def report_page(bars: Bars, page: Path) -> None:
    """Open the page at each width: pictures must load, and nothing may stand out at the side."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"skipped: the page in a browser, since none of {', '.join(BROWSERS)} is installed")
        return
    probe, frame = page.with_name("probe.html"), page.with_name("frame.html")
    probe.write_text(page.read_text(encoding="utf-8") + PROBE, encoding="utf-8")

    def framed(width: int, height: int) -> Path:
        values = {"{width}": str(width), "{height}": str(height), "{page}": probe.name}
        frame.write_text(re.sub("{[a-z]+}", lambda found: values[found[0]], FRAME), encoding="utf-8")
        return frame

    for width in WIDTHS:
        answer = browse(browser, framed(width, 900), width, 900, "--dump-dom", "--virtual-time-budget=5000")
        shown = re.search(r"<title>({.*?})</title>", answer)
        if shown is None:
            bars.report(f"{width} px: the page was shown", 0, low=1)
            continue
        facts = json.loads(shown[1])
        picture = page.with_name(f"screenshot_{width}.png")
        high = int(facts["height"])
        browse(browser, framed(width, high), width, high, f"--screenshot={picture}", "--virtual-time-budget=5000")
        bars.report(f"{width} px: width of the window", facts["width"])
        bars.report(f"{width} px: pictures", facts["images"], low=1)
        bars.report(f"{width} px: pictures that are not shown", facts["broken"], high=0)
        bars.report(f"{width} px: pixels beyond the side", facts["over"], high=0)
        bars.report(f"{width} px: grey levels in the screenshot", len(set(Image.open(picture).convert("L").tobytes())))
        print(f"screenshot: {picture}")
    probe.unlink()
    frame.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--steps", type=int, default=60, help="training steps of each model")
    parser.add_argument("--keep", type=Path, help="new folder for models, page and screenshots")
    arguments = parser.parse_args()
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        report_page(bars, report_time(bars, arguments.keep or Path(name), arguments.steps))
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
