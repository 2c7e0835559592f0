"""The demo: simulate specimens, restore them as `sfumato restore` does, compare with the truth, draw one of them."""

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sfumato.data.frames import upsample
from sfumato.data.images.io import open_image
from sfumato.figures.panels import coloured, grey, save_picture
from sfumato.models.bundled import demo_model
from sfumato.models.model_file import LoadedModel, load
from sfumato.problems.demo_specimens import FIELDS, Specimen, simulate_specimens, write_specimens
from sfumato.restoration.conditions import as_restored, upsampling_factor
from sfumato.restoration.folder import restore_folder
from sfumato.restoration.in_memory import Restored
from sfumato.statistics.metrics import affine_fit, psnr
from sfumato.system.atomic_files import advice_on
from sfumato.system.errors import ModelFileError, RunError

__all__ = ["Demo", "Panel", "Score", "draw_row", "run_demo", "score"]

_SHOWN = "microtubules"

_SIDE, _GAP, _EDGE = 288, 14, 16
_TITLE, _HEAD, _FOOT, _BAR = 40, 50, 62, 12
_INK, _PALE = (20, 20, 20), (95, 95, 95)
_font = ImageFont.load_default


class Score(NamedTuple):
    """Scores of one specimen."""

    name: str
    psnr_measured: float
    """PSNR of the upsampled measured image, in dB."""
    psnr_restored: float
    """PSNR of the restored mean, in dB."""
    coverage: float
    """Share of the pixels whose truth lies inside the calibrated interval."""


@dataclass(frozen=True)
class Demo:
    """Result of a demo run.

    Attributes:
        folder: Folder that its files are in.
        model: Copy of the model file in that folder.
        picture: Picture of one specimen with its restoration.
        scores: Scores of every specimen.
        level: Level of the calibrated intervals.
        num_samples: Samples per specimen.
        seconds: Time from simulating to drawing.
    """

    folder: Path
    model: Path
    picture: Path
    scores: list[Score]
    level: float
    num_samples: int
    seconds: float

    @property
    def gain(self) -> float:
        """By how many dB the restored means are closer to the truth than the measured images, on average."""
        return float(np.mean([found.psnr_restored - found.psnr_measured for found in self.scores]))

    @property
    def coverage(self) -> float:
        """Share of all pixels inside their interval."""
        return float(np.mean([found.coverage for found in self.scores]))

    def lines(self) -> list[str]:
        """Say what was done, how well it worked, and what to try next."""
        wide = max(len(found.name) for found in self.scores)
        specimen = self.folder / "measured" / f"{_SHOWN}.tif"
        return [
            f"simulated {len(self.scores)} specimens that the model never saw and restored each from "
            f"{self.num_samples} samples, in {self.seconds:.0f} s in total",
            "",
            f"{'':{wide}}  closeness to the truth (PSNR)     inside the interval",
            f"{'':{wide}}  measured    restored              ({self.level:.0%} promised)",
            *(
                f"{found.name:{wide}}  {found.psnr_measured:5.1f} dB -> {found.psnr_restored:5.1f} dB  "
                f"{_signed(found.psnr_restored - found.psnr_measured)}   {found.coverage:6.0%}"
                for found in self.scores
            ),
            f"{'mean':{wide}}  {'':22}{_signed(self.gain)}   {self.coverage:6.0%}",
            "",
            f"look at     {self.picture}",
            f"open        {self.folder / 'restored'}: mean, *_std, and the interval's ends *_low, *_high (OME-TIFF)",
            f"compare     {self.folder / 'measured'} and {self.folder / 'truth'}",
            "",
            "try next: write every sample, each a possible original,",
            f"  sfumato restore {self.model} {specimen} restored.tif --keep-samples",
            "or train on your own images, in two folders with the same file names, low/ (inputs) and high/ (targets):",
            "  sfumato train --inputs low --targets high --out run --minutes 30",
            "  sfumato restore run/model.safetensors low/your_image.tif restored.tif --picture restored.png",
            "the demo's model was trained on simulated specimens only: do not use its restorations of real ones",
        ]


def _signed(gain: float) -> str:
    return f"{f'({gain:+.1f})':>7}"


def run_demo(out: str | Path, *, model: Path | None = None, progress: Callable[[str], None] | None = None) -> Demo:
    """Simulate specimens, restore and score them, and draw one of them.

    Args:
        out: Folder to create; if it exists, it must be empty.
        model: Another calibrated model of the simulated microscope, instead of the one that comes with the package.
        progress: Called with a text that says what is being done.

    Raises:
        ModelFileError: If a model is given that has no calibration.
        RunError: If the folder is not empty or cannot be written.
        KeyboardInterrupt: After Ctrl-C; its message says what is left behind.
    """
    folder, started = Path(out), time.monotonic()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} exists and is not an empty folder; expected a new name; give one with --out")
    try:
        (folder / "restored").mkdir(parents=True)
        return _run(folder, model or demo_model(), started, progress or (lambda _: None))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {folder} is not complete: remove it, or choose another --out") from None
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}; {advice_on(error)}") from error


def _run(folder: Path, source: Path, started: float, progress: Callable[[str], None]) -> Demo:
    model_file = folder / source.name
    shutil.copyfile(source, model_file)
    model = load(model_file, device="cpu")
    found = model.info.calibration
    if found is None:
        raise ModelFileError(f"{source} has no calibration; expected one, for intervals: run `sfumato calibrate` on it")
    specimens = simulate_specimens(lambda name: progress(f"simulating {name}"))
    write_specimens(specimens, folder / "measured", folder / "truth")
    restore_folder(
        model_file,
        folder / "measured",
        folder / "restored",
        progress=lambda name, done, total: progress(f"restoring {name} ({done + 1} of {total})"),
    )
    restored = {specimen.name: _read(folder / "restored", specimen.name) for specimen in specimens}
    scores = [score(specimen, restored[specimen.name], model) for specimen in specimens]
    shown = next(specimen for specimen in specimens if specimen.name == _SHOWN)
    picture = folder / "demo.png"
    _draw(picture, shown, restored[_SHOWN], model, found.sampled.num_samples)
    seconds = time.monotonic() - started
    return Demo(folder, model_file, picture, scores, found.level, found.sampled.num_samples, seconds)


def _read(folder: Path, name: str) -> Restored:
    """Read the restored images of one specimen."""

    def image(part: str) -> NDArray[np.float32]:
        return np.asarray(open_image(folder / f"{name}{part}.tif").read(), np.float32)

    return Restored(image(""), image("_std"), image("_low"), image("_high"))


def _draw(path: Path, specimen: Specimen, restored: Restored, model: LoadedModel, num_samples: int) -> None:
    truth = _relative(as_restored(specimen.truth[None], model)[0])
    mean = _relative(restored.mean)
    assert restored.std is not None
    std, error = restored.std / 2, np.abs(mean - truth)
    dark, bright = np.quantile(specimen.measured, [0.001, 0.999])
    # One scale for both, so that they can be compared; rounded up to whole hundredths, so that it is easy to read.
    spread = math.ceil(100 * float(np.quantile(np.stack([std, error]), 0.999))) / 100
    unit = "relative brightness"
    photons = FIELDS[specimen.name].photons
    draw_row(
        path,
        f"A simulated specimen ({specimen.name.replace('_', ' ')}, {photons} photons per pixel), restored with the "
        "model that comes with sfumato",
        [
            Panel("measured", "widefield image", specimen.measured, float(dark), float(bright), "camera grey levels"),
            Panel("restored", "mean", mean, 0, 1, unit),
            Panel("truth", "what was simulated", truth, 0, 1, unit),
            Panel("uncertainty", f"standard deviation of {num_samples} samples", std, 0, spread, unit, is_spread=True),
            Panel("error", "|restored - truth|, on the same scale", error, 0, spread, unit, is_spread=True),
        ],
        width_um=len(truth) * specimen.pixel_um,
    )


def score(specimen: Specimen, restored: Restored, model: LoadedModel) -> Score:
    """Score a specimen on the scale of its truth, from its darkest to its brightest pixel.

    Fluorescence has no absolute scale, so brightness and offset of both images are first fitted to the truth. Intervals
    are used as they are.
    """
    truth = as_restored(specimen.truth[None], model)[0]
    measured = upsample(specimen.measured[None], upsampling_factor(model))[0]
    assert restored.low is not None
    assert restored.high is not None
    inside = (truth >= restored.low) & (truth <= restored.high)
    return Score(specimen.name, _psnr(measured, truth), _psnr(restored.mean, truth), float(inside.mean()))


def _psnr(image: NDArray[np.generic], truth: NDArray[np.generic]) -> float:
    """PSNR of an image after its brightness and offset were fitted to the truth, in dB."""
    fitted, wanted = (torch.from_numpy(np.asarray(part, np.float64))[None, None] for part in (image, truth))
    return float(psnr(affine_fit(fitted, wanted), wanted))


def _relative(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert from the model's scale, -1 to 1, to relative brightness, 0 to 1."""
    return np.asarray((image + 1) / 2, np.float32)


@dataclass(frozen=True)
class Panel:
    """One image with its scale.

    Attributes:
        title: Name of the image.
        note: What the image shows, in a few words.
        image: Shape (H, W).
        low: Value drawn black.
        high: Value drawn white, or pale yellow.
        unit: Unit of the values.
        is_spread: Whether to draw it in colours from 0 instead of grey levels.
    """

    title: str
    note: str
    image: NDArray[np.floating]
    low: float
    high: float
    unit: str
    is_spread: bool = False

    def colours(self, values: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return values of shape (H, W) as colours of shape (H, W, 3)."""
        return coloured(values, self.high) if self.is_spread else grey(values, self.low, self.high)


def draw_row(path: Path, title: str, panels: list[Panel], *, width_um: float, bar_um: float = 1.0) -> None:
    """Draw images in a row, each with title, note and colour bar; the first also gets a scale bar.

    Args:
        path: PNG file to write.
        title: Title of the whole picture.
        panels: The images, square views of the same field; their pixel sizes may differ.
        width_um: Width of the field.
        bar_um: Length of the scale bar.
    """
    width = 2 * _EDGE + len(panels) * (_SIDE + _GAP) - _GAP
    sheet = Image.new("RGB", (width, _TITLE + _HEAD + _SIDE + _FOOT), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((_EDGE, 12), title, fill=_INK, font=_font(19))
    for place, panel in enumerate(panels):
        left, top = _EDGE + place * (_SIDE + _GAP), _TITLE + _HEAD
        pen.text((left, _TITLE + 3), panel.title, fill=_INK, font=_font(20))
        pen.text((left, _TITLE + 27), panel.note, fill=_PALE, font=_font(14))
        picture = Image.fromarray(panel.colours(panel.image))
        sheet.paste(picture.resize((_SIDE, _SIDE), Image.Resampling.NEAREST), (left, top))
        _draw_scale(sheet, pen, panel, left, top + _SIDE + 8)
    _draw_length(pen, bar_um, width_um, _EDGE, _TITLE + _HEAD + _SIDE)
    save_picture(sheet, path)


def _draw_scale(sheet: Image.Image, pen: ImageDraw.ImageDraw, panel: Panel, left: int, top: int) -> None:
    """A colour bar with its ends and unit."""
    ramp = np.linspace(panel.low, panel.high, _SIDE, dtype=np.float64)
    sheet.paste(Image.fromarray(panel.colours(np.tile(ramp, (_BAR, 1)))), (left, top))
    pen.rectangle((left, top, left + _SIDE - 1, top + _BAR - 1), outline=_PALE)
    for text, x, anchor in (
        (f"{panel.low:.3g}", left, "la"),
        (panel.unit, left + _SIDE // 2, "ma"),
        (f"{panel.high:.3g}", left + _SIDE, "ra"),
    ):
        pen.text((x, top + _BAR + 5), text, fill=_INK, font=_font(14), anchor=anchor)


def _draw_length(pen: ImageDraw.ImageDraw, bar_um: float, width_um: float, left: int, bottom: int) -> None:
    length = round(_SIDE * bar_um / width_um)
    pen.rectangle((left + 10, bottom - 16, left + 10 + length, bottom - 11), fill="white", outline="black")
    middle = (left + 10 + length / 2, bottom - 19)
    text = f"{bar_um:g} um"
    pen.text(middle, text, fill="white", font=_font(15), anchor="ms", stroke_width=2, stroke_fill="black")
