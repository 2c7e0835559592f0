"""Images outside the training distribution, real ones: does the audit warn, and only then?

    python experiments/audit_domain.py --model runs/per_minute/w2s/default/4/0/run/model.safetensors --check

The model was trained on W2S; images of the FMD data set (other microscopes, other exposures, other specimens) are out
of domain, the 15 test images of W2S are not, nor are the three of the field kept for validation. The limit comes from
the training images alone. The model is one of `experiments/per_minute.py`. The images are found through SFUMATO_DATA.

What was chosen while looking at FMD: that noise is measured in dark and in bright parts too, that the three aspects are
compared jointly rather than each by itself, and that patches are averaged by the mean. With a single number for the
noise, aspects apart and the median, 36 of 48 images were warned of and none of the 15. The other sets below had no say.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato import load
from sfumato.audit.run import judge_domain
from sfumato.data.domain import Judgement
from sfumato.data.images.io import open_image
from sfumato.models.model_file import LoadedModel
from yardstick.problems import W2S_VALIDATION, Places

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import Bars

OTHERS = {
    "STED (confocal side)": ("fluor_sted", "*.tif", 0),
    "widefield of STORM": ("fluor_wf_storm", "*_wf.tif", None),
    "photographs (Kodak)": ("natural_kodak", "*.png", 1),
}
"""Folder, files, and the channel that is taken."""


def noisy_images(images: Path, subset: str) -> list[Path]:
    """The 15 test images of W2S, or the three of the field kept for validation."""
    part, start = ("test", "") if subset == "test" else ("train", W2S_VALIDATION)
    return sorted((images / "fluor_denoise_w2s" / part / "noisy").glob(f"{start}*.tif"))


def grey(path: Path, channel: int | None) -> NDArray[np.generic]:
    """One channel of an image, shape (1, H, W)."""
    image = open_image(path)
    pixels = np.asarray(image.read({} if channel is None or "C" not in image.axes else {"C": channel}))
    return pixels.reshape(-1, *pixels.shape[-2:])[:1]


def judged(model: LoadedModel, paths: list[Path], channel: int | None = None) -> Iterator[Judgement]:
    for path in paths:
        found = judge_domain(grey(path, channel), model)
        assert found is not None
        yield found


def summary(found: list[Judgement]) -> str:
    reasons = [reason for judgement in found for reason in judgement.reasons]
    return ", ".join(f"{aspect} {reasons.count(aspect)}" for aspect in ("intensity", "noise", "spectrum"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="trained on W2S")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args()
    bars = Bars()
    model, images = load(options.model), Places.below(options.model.parent).data
    fmd = list(judged(model, sorted((images / "fluor_denoise_fmd" / "raw").glob("*.png"))))
    test, validation = (list(judged(model, noisy_images(images, subset))) for subset in ("test", "validation"))
    bars.report("stated rate of false alarms", fmd[0].false_alarms)
    bars.report("limit, in standard deviations of training images", fmd[0].limit)
    print(f"reasons on {len(fmd)} FMD images: {summary(fmd)}")
    bars.report("share of FMD images with a warning", float(np.mean([j.is_unlike for j in fmd])), low=0.8)
    bars.report(f"W2S test images with a warning, of {len(test)}", sum(j.is_unlike for j in test), high=1)
    bars.report(f"W2S validation images with a warning, of {len(validation)}", sum(j.is_unlike for j in validation))
    bars.report("largest deviation of a W2S test image", max(float(j.deviations.max()) for j in test))
    for name, (folder, pattern, channel) in OTHERS.items():
        other = list(judged(model, sorted((images / folder).rglob(pattern)), channel))
        bars.report(
            f"share of {len(other)} images with a warning, {name}", float(np.mean([j.is_unlike for j in other]))
        )
    bars.finish(check=options.check)


if __name__ == "__main__":
    main()
