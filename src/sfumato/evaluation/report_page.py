"""Write tables and one self-contained HTML page from an evaluation; the page needs nothing from the network."""

import base64
import csv
import html
import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sfumato.evaluation.evaluate import METRICS, Evaluation, Example, MetricRow, too_few
from sfumato.figures.panels import coloured, grey, inner, limits
from sfumato.models.ownership import Written
from sfumato.system.atomic_files import replace_text
from sfumato.system.escaping import in_markdown, in_spreadsheet
from sfumato.system.marks import GENERATOR, PAGE, text_like
from sfumato.system.version import __version__

__all__ = ["markdown", "report_files", "web_page", "write_csv", "write_report"]

Picture = NDArray[np.uint8]

_LEGEND = (
    "Mean over images, with its 95% interval (bootstrap over images; of fewer than six, Student's, which may pass a "
    "metric's best value). **Bold**: significantly better than every other method. "
    "Underlined: second to a significant best, and significantly better than all further ones. Paired sign-flip tests "
    "of the mean difference, 5% level, Holm's correction over all pairs of methods, separately for each metric. "
    "PSNR, NRMSE and the similarities take the range of each truth; MAE is in the units of the targets."
)
_AFFINE = "Each estimate was first fitted to its truth by the scale and offset of least squares."
_RESOLUTION = "Resolution is measured on the estimate alone (decorrelation analysis); invented detail counts as detail."


def write_report(found: Evaluation, rows: list[MetricRow], folder: str | Path) -> Path:
    """Write `scores.csv`, `table.md` and `report.html` into a folder and return the last."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(found, folder / "scores.csv")
    replace_text(folder / "table.md", markdown(found, rows), untouched="scores.csv is written")
    page = folder / "report.html"
    replace_text(page, web_page(found, rows), untouched="scores.csv and table.md are written")
    return page


def report_files(folder: Path) -> list[Written]:
    """Files that :func:`write_report` writes to a folder."""
    scores = text_like("table of scores", lambda text: text.startswith(f"image,method,{METRICS[0].name}"))
    table = text_like("table of means", lambda text: text.startswith("| metric | ") and _LEGEND[:40] in text)
    return [
        Written(folder / "scores.csv", scores),
        Written(folder / "table.md", table),
        Written(folder / "report.html", PAGE),
    ]


def write_csv(found: Evaluation, path: Path, *, more: bool = False) -> None:
    """One line per image and method, one column per metric; ``more`` appends to existing lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if more else "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if not more:
            writer.writerow(["image", "method", *(metric.name for metric in found.metrics)])
        for place, image in enumerate(found.images):
            for row, method in enumerate(found.methods):
                names = (in_spreadsheet(image), in_spreadsheet(method.name))
                writer.writerow([*names, *map(repr, found.values[:, row, place].tolist())])


def markdown(found: Evaluation, rows: list[MetricRow]) -> str:
    """The table as in the paper: a row per metric, a column per method."""
    lines = [
        "| metric | " + " | ".join(in_markdown(method.name) for method in found.methods) + " |",
        "|---" * (len(found.methods) + 1) + "|",
    ]
    for row in rows:
        cells = [_marked(row, place, "**{}**", "<u>{}</u>") for place in range(len(found.methods))]
        lines.append(f"| {_direction(row)} | " + " | ".join(cells) + " |")
    methods = [f"- {in_markdown(method.name)}: {in_markdown(method.about)}" for method in found.methods]
    notes = [note if note == _LEGEND else in_markdown(note) for note in _notes(found, rows)]
    return "\n".join([*lines, "", *methods, "", *notes, ""])


def web_page(found: Evaluation, rows: list[MetricRow]) -> str:
    """The table, tests and pictures as one self-contained page."""
    parts = [
        "<h1>Evaluation</h1>",
        f"<p>{len(found.images)} images, {len(found.methods)} methods, sfumato {__version__}.</p>",
        _means(found, rows),
        *(f"<p class=note>{_rich(note)}</p>" for note in _notes(found, rows)),
        "<h2>Methods</h2><ul>",
        *(f"<li><b>{html.escape(m.name)}</b>: {html.escape(m.about)}</li>" for m in found.methods),
        "</ul>",
        _pairs(found, rows),
        "<h2>Images</h2>",
        "<p class=note>The middle of each image. Truth and estimates share one grey scale, the input has its own. "
        "Below each estimate is its absolute error, in the units of the targets, in the same colours for all methods "
        "of an image.</p>",
        *(_example(found, example) for example in found.examples),
    ]
    meta = f"<meta charset=utf-8>{GENERATOR}<meta name=viewport content='width=device-width'>"
    head = f"{meta}<title>Evaluation</title>{_STYLE}"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


_STYLE = """<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.35rem .9rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:#fff}
thead th{border-bottom:2px solid #444}
td small{display:block;color:#777;font-weight:400}
.note{color:#555;max-width:52rem;margin:.4rem 0}
.wide{overflow-x:auto}
.row{display:grid;gap:.6rem;margin:.5rem 0;grid-template-columns:repeat(auto-fit,minmax(min(9rem,45%),1fr))}
figure{margin:0}
figure img{width:100%;display:block;image-rendering:pixelated}
figcaption{font-size:13px;color:#444;min-height:1.4em;margin-bottom:.4rem;overflow-wrap:anywhere}
h3{overflow-wrap:anywhere}
h3 small{color:#777;font-weight:400}
.bar{display:flex;align-items:center;gap:.5rem;font-size:13px;color:#444}
.bar img{width:14rem;min-width:4rem;height:.8rem}
@media(max-width:40rem){body{margin:1rem auto}th,td{padding:.3rem .5rem}}
</style>"""


def _means(found: Evaluation, rows: list[MetricRow]) -> str:
    """The table of means: a line per metric, a column per method."""
    lines = []
    for row in rows:
        marks = ("<b>{}</b>", "<u>{}</u>", "<small>{}</small>")
        number = f"<small>{row.num_images} images</small>" if row.num_images < len(found.images) else ""
        cells = [_marked(row, place, *marks) for place in range(len(found.methods))]
        lines.append([f"{_direction(row)}{number}", *cells])
    return _table(["metric", *(html.escape(method.name) for method in found.methods)], lines)


def _pairs(found: Evaluation, rows: list[MetricRow]) -> str:
    """Every test that was made, so that nobody has to take the marks on trust."""
    if len(found.methods) < 2:
        return ""
    names = [html.escape(method.name) for method in found.methods]
    lines = []
    for first, second in rows[0].ranking.p_values:
        differences = [_number(row.means[first] - row.means[second]) for row in rows]
        p_values = [_probability(row.ranking.p_values[first, second]) for row in rows]
        cells = [f"{value}<small>p {p}</small>" for value, p in zip(differences, p_values, strict=True)]
        lines.append([f"{names[first]} minus {names[second]}", *cells])
    note = "Mean difference, first method minus second, and the adjusted p of each pair."
    return f"<h2>Tests</h2><p class=note>{note}</p>{_table(['pair', *map(_direction, rows)], lines)}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    """A table whose cells are HTML."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _example(found: Evaluation, example: Example) -> str:
    low, high = limits(example.truth)
    errors = [np.abs(estimate - example.truth).mean(0) for estimate in example.estimates]
    scale = max(float(np.quantile(inner(error), 0.995)) for error in errors)
    condition = example.condition[:1]
    pictures = [
        _figure("input", _shown(condition, *limits(condition))),
        _figure("truth", _shown(example.truth, low, high)),
    ]
    for method, estimate, error in zip(found.methods, example.estimates, errors, strict=True):
        under = _figure(f"mean absolute error {_number(float(error.mean()))}", coloured(error, scale))
        pictures.append(_figure(method.name, _shown(estimate, low, high)) + under)
    ramp = coloured(np.linspace(0, 1, 256)[None].repeat(8, 0), 1)
    height, width = example.truth.shape[1:]
    return (
        f"<h3>{html.escape(example.name)} <small>middle {height} x {width} pixels</small></h3>"
        f"<div class=row>{''.join(f'<div>{picture}</div>' for picture in pictures)}</div>"
        f"<div class=bar>absolute error 0 <img alt='colour scale' src='{_data(ramp)}'> {_number(scale)} and above</div>"
    )


def _figure(caption: str, picture: Picture) -> str:
    words = html.escape(caption)
    return f"<figure><img alt='{words}' src='{_data(picture)}'><figcaption>{words}</figcaption></figure>"


def _shown(image: NDArray[np.floating], low: float, high: float) -> Picture:
    """Three channels as colours; otherwise the first channel as grey."""
    if len(image) != 3:
        return grey(image[0], low, high)
    return np.stack([grey(channel, low, high)[..., 0] for channel in image], axis=-1)


def _data(picture: Picture) -> str:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _notes(found: Evaluation, rows: list[MetricRow]) -> list[str]:
    fewer = [
        f"{row.metric.name}: {len(found.images) - row.num_images} of {len(found.images)} images have no number for "
        f"every method and are left out ({_lacking(found, place)})."
        for place, row in enumerate(rows)
        if row.num_images < len(found.images)
    ]
    warning = too_few(found)
    resolution = [_RESOLUTION] if any(row.metric.name.startswith("Resolution") for row in rows) else []
    affine = [_AFFINE] if found.affine else []
    return [_LEGEND, *affine, *resolution, *found.notes, *fewer, *([warning] if warning else [])]


def _lacking(found: Evaluation, metric: int) -> str:
    """For how many images each method has no value."""
    missing = np.isnan(found.values[metric]).sum(1)
    return ", ".join(f"{m.name}: {n} without" for m, n in zip(found.methods, missing, strict=True) if n)


def _marked(row: MetricRow, place: int, bold: str, underline: str, aside: str = "{}") -> str:
    low, high = row.intervals[place]
    width = float(np.median([end - start for start, end in row.intervals]))
    text = _number(row.means[place], width)
    if place == row.ranking.best:
        text = bold.format(text)
    elif place == row.ranking.second:
        text = underline.format(text)
    if math.isnan(low):
        return text
    spread = f"{_number(low, width)} to {_number(high, width)}"
    return f"{text} {aside.format(spread if aside != '{}' else f'({spread})')}"


def _direction(row: MetricRow) -> str:
    return f"{row.metric.name} {'↑' if row.metric.higher_is_better else '↓'}"


def _number(value: float, spread: float = math.nan) -> str:
    """Enough digits to show two of a typical interval's width, or four digits."""
    if not math.isfinite(value):
        return "-"
    if math.isnan(spread) or spread <= 0:
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(spread)))
    return f"{value:.{digits}f}" if digits <= 6 else f"{value:.4g}"


def _probability(p: float) -> str:
    return "-" if math.isnan(p) else "&lt; 0.001" if p < 0.001 else f"{p:.3f}"


def _rich(text: str) -> str:
    """Escaped HTML, with Markdown's bold converted."""
    pieces = html.escape(text).split("**")
    return "".join(f"<b>{piece}</b>" if number % 2 else piece for number, piece in enumerate(pieces))
