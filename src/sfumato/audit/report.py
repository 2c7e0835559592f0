"""Write the results of an audit: maps as one TIFF with named channels, and one self-contained page."""

import base64
import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.run import Audit
from sfumato.data.domain import ASPECTS, Judgement
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image
from sfumato.figures.panels import limits
from sfumato.figures.plotting import new_figure, save_figure
from sfumato.models.ownership import Written, image_with
from sfumato.system.atomic_files import replace_text
from sfumato.system.marks import GENERATOR, PAGE, PICTURE
from sfumato.system.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["audit_files", "domain_maps", "draw_audit", "maps", "write_audit"]

Floats = NDArray[np.float64]

_MARK, _LACK = "#D55E00", "#56B4E9"
_MOST_ROWS = 10


def write_audit(found: Audit, folder: str | Path, *, title: str = "image") -> Path:
    """Write `maps.tif`, `audit.png` and `report.html` into a folder; returns the page."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    layers = maps(found)
    sizes = {}
    if found.pixel_um is not None:
        sizes = {axis: PixelSize(found.pixel_um / found.factor, "micrometer") for axis in "YX"}
    pixels = np.stack(list(layers.values())).astype(np.float32)
    notes = {"channels": list(layers), "warnings": found.warnings, "unchecked": found.unchecked}
    write_image(folder / "maps.tif", pixels, axes="CYX", pixel_size=sizes, metadata=notes, overwrite=True)
    picture = folder / "audit.png"
    save_figure(draw_audit(found), picture, dpi=110)
    page = folder / "report.html"
    replace_text(page, _page(found, picture.read_bytes(), title), untouched="maps.tif and audit.png are written")
    return page


def audit_files(folder: Path) -> list[Written]:
    """Files that :func:`write_audit` writes to a folder."""
    layers = image_with("image of an audit's maps", lambda notes: notes.keys() >= {"channels", "warnings", "unchecked"})
    kinds = {"maps.tif": layers, "audit.png": PICTURE, "report.html": PAGE}
    return [Written(folder / name, kind) for name, kind in kinds.items()]


def maps(found: Audit) -> dict[str, Floats]:
    """All maps by name, on the grid of the restored image, shape (F H, F W)."""

    def fine(image: NDArray[Any]) -> Floats:
        return np.asarray(np.kron(np.asarray(image, np.float64), np.ones((found.factor, found.factor))))

    def named(word: str, images: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
        for number, image in enumerate(images, start=1):
            yield (word if len(images) == 1 else f"{word} {number}"), image

    layers = {name: fine(image) for name, image in named("measured", found.measured)}
    layers |= {name: np.asarray(image, np.float64) for name, image in named("restored", found.restored)}
    if found.consistency is not None:
        for word in ("projected", "error", "correlation"):
            layers |= {name: fine(image) for name, image in named(word, getattr(found.consistency, word))}
        layers |= {"excess_sd": fine(found.consistency.excess), "marks": fine(found.consistency.marks)}
    if found.domain is not None:
        layers |= {f"domain_{aspect}": image for aspect, image in domain_maps(found, found.domain).items()}
    if found.disagreement is not None:
        layers |= {"relative_std": found.disagreement.relative_std, "lacking_share": found.disagreement.lacking}
    return layers


def domain_maps(found: Audit, domain: Judgement) -> dict[str, Floats]:
    """Distance of the patch that covers a pixel, relative to what one in a hundred training patches exceeds.

    Args:
        found: The audit.
        domain: Its comparison with the training images.

    Returns:
        A map by aspect, shape (F H, F W).
    """
    height, width = domain.sides
    images = {aspect: np.zeros(found.restored.shape[1:]) for aspect in ASPECTS}
    for image, distances in zip(images.values(), domain.distances, strict=True):
        for (row, column), distance in zip(domain.corners.tolist(), distances, strict=True):
            part = image[row : row + height, column : column + width]
            np.maximum(part, distance, out=part)
    return images


def draw_audit(found: Audit) -> "Figure":
    """The maps side by side; checks that could not be made are left blank."""
    figure = new_figure(13, 7.2)
    places = list(figure.subplots(2, 4).ravel())
    for place in places:
        place.set(xticks=[], yticks=[])
    layers = maps(found)
    first = {name.removesuffix(" 1"): image for name, image in layers.items()}
    grey: dict[str, Any] = {"colours": "gray", "unit": "measured units"}
    _show(places[0], first["measured"], "measured", **grey)
    _show(places[1], first["restored"], "restored", colours="gray", unit="restored units")
    if found.consistency is None:
        for place in places[2:6]:
            _blank(place, "contradicts the measurement" if found.contradiction else "not measured again")
    else:
        _show(places[2], first["projected"], "restored, measured again", **grey)
        _show(places[4], first["error"], "resolution-scaled error", colours="magma", unit="measured units", low=0)
        _show(places[5], first["correlation"], "local correlation", colours="cividis", unit="-1 to 1", low=-1, high=1)
        top = max(float(np.abs(found.consistency.excess).max()), found.consistency.threshold)
        top = min(top, 50.0) if np.isfinite(top) else 5.0
        title = f"light in excess: {len(found.consistency.unsupported)} unsupported (orange)"
        if found.consistency.missing:
            title += f",\n{len(found.consistency.missing)} missing (blue)"
        _show(places[3], first["excess_sd"], title, colours="gray", unit="standard deviations", low=-top, high=top)
        _outline(places[3], first["marks"] > 0, _MARK)
        _outline(places[1], first["marks"] > 0, _MARK)
        _outline(places[3], first["marks"] < 0, _LACK)
    _draw_domain(places[6], found)
    _draw_disagreement(places[7], found)
    return figure


def _draw_domain(place: Any, found: Audit) -> None:
    if found.domain is None:
        _blank(place, "training images unknown")
        return
    worst = np.max(list(domain_maps(found, found.domain).values()), axis=0)
    word = "unlike" if found.domain.is_unlike else "like"
    _show(
        place, worst, f"{word} training images; the worst aspect\nof each patch", colours="viridis", low=0,
        high=max(2.0, float(worst.max())), unit="1: rarest 1% of training patches",
    )  # fmt: skip
    for (row, column), distances in zip(found.domain.corners.tolist(), found.domain.distances.T, strict=True):
        if distances.max() > 1:
            y, x = (start + side / 2 - 0.5 for start, side in zip((row, column), found.domain.sides, strict=True))
            letter = ASPECTS[int(distances.argmax())][0].upper()
            place.text(x, y, letter, color="white", ha="center", va="center", fontsize=8, fontweight="bold")


def _draw_disagreement(place: Any, found: Audit) -> None:
    if found.disagreement is None:
        _blank(place, "no samples to compare")
        return
    spread = found.disagreement.relative_std
    number = len(found.disagreement.uncertain)
    title = f"spread of {found.disagreement.num_samples} samples; {number} uncertain structures"
    _show(place, spread, title, colours="magma", unit="relative to local contrast", low=0)
    for structure in found.disagreement.uncertain:
        place.plot(structure.column, structure.row, "o", mfc="none", mec=_LACK, ms=9)


def _show(
    place: Any,
    image: Floats,
    title: str,
    *,
    colours: str,
    unit: str,
    low: float | None = None,
    high: float | None = None,
) -> None:
    bottom, top = limits(image)
    bottom, top = bottom if low is None else low, top if high is None else high
    drawn = place.imshow(image, cmap=colours, vmin=bottom, vmax=max(top, bottom + 1e-12), interpolation="nearest")
    place.set_title(title, fontsize=9)
    bar = place.figure.colorbar(drawn, ax=place, orientation="horizontal", shrink=0.8, pad=0.02, aspect=28)
    bar.ax.tick_params(labelsize=7)
    bar.ax.locator_params(axis="x", nbins=5)
    bar.set_label(unit, fontsize=8)


def _blank(place: Any, words: str) -> None:
    place.text(0.5, 0.5, words, ha="center", va="center", color="#777777", transform=place.transAxes)


def _outline(place: Any, mask: NDArray[np.bool_], colour: str) -> None:
    if mask.any():
        place.contour(mask.astype(float), [0.5], colors=[colour], linewidths=1.2)


def _page(found: Audit, picture: bytes, title: str) -> str:
    name = html.escape(title)
    sentences = {"class=warning": found.warnings, "": found.verdicts, "class=unknown": found.unchecked}
    items = [f"<li {kind}>{html.escape(text)}</li>" for kind, texts in sentences.items() for text in texts]
    data = base64.b64encode(picture).decode()
    number = len(found.warnings)
    head = "no warnings" if not number else "1 warning" if number == 1 else f"{number} warnings"
    parts = [
        f"<h1>Audit of {name}: {head}</h1>",
        f"<ul>{''.join(items)}</ul>",
        f"<img alt='maps of the audit' src='data:image/png;base64,{data}'>",
        *_tables(found),
        "<p class=note>Rows and columns count pixels of the measurement from 0, downwards and to the right. Letters on "
        "the map of training images say by what a patch is unlike them: I intensity, N noise, S spectrum. The audit "
        "sees what contradicts the measurement; detail finer than the instrument resolves leaves no trace in it, and "
        f"only the spread of samples tells of that. sfumato {__version__}.</p>",
    ]
    meta = f"<meta charset=utf-8>{GENERATOR}<meta name=viewport content='width=device-width'>"
    meta += f"<title>Audit of {name}</title>"
    return f"<!doctype html><html lang=en><head>{meta}{_STYLE}</head><body>{''.join(parts)}</body></html>\n"


def _tables(found: Audit) -> Iterator[str]:
    if found.consistency is not None and found.consistency.unsupported:
        marked = [(s.row, s.column, s.area_px, f"{s.strength:.1f}") for s in found.consistency.unsupported]
        heads = ("mark", "row", "column", "area (pixels)", "excess (sd)")
        yield _table("Structures that the measurement does not support", heads, marked)
    if found.disagreement is not None and found.disagreement.uncertain:
        uncertain = [
            (s.row // found.factor, s.column // found.factor, f"{s.share:.0%}", f"{s.contrast:.2f}")
            for s in found.disagreement.uncertain
        ]
        heads = ("number", "row", "column", "in samples", "contrast (1: median)")
        yield _table("The least certain structures", heads, uncertain)


def _table(title: str, heads: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """The first rows, numbered from 1."""
    head = "".join(f"<th>{word}</th>" for word in heads)
    numbered = [(number, *row) for number, row in enumerate(rows[:_MOST_ROWS], start=1)]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in numbered)
    return f"<h2>{title}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_STYLE = """<style>
body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:76rem;padding:0 1rem;color:#222}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem}
img{width:100%}
li{margin:.2rem 0}
.warning{font-weight:600}.warning::marker{content:"⚠ "}
.unknown{color:#666}.unknown::marker{content:"? "}
.note{color:#555;max-width:60rem}
table{border-collapse:collapse}
th,td{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}
</style>"""
