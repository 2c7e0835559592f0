"""The images that a restoration produces, and the names of the files it writes beside its mean."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from sfumato.data.images.file_names import take_apart

__all__ = ["Output", "as_begun", "beside", "name_outputs"]


class Output(NamedTuple):
    """One image of a restoration."""

    content: str
    """``mean``, ``std``, ``low``, ``high`` (ends of calibrated intervals), ``schedule``, ``quantile`` or ``sample``."""
    place: str
    """Where it is written; empty if it is not written."""
    level: float = 0.0
    """Level of a quantile."""
    number: int = 0
    """Number of a sample."""


def name_outputs(
    mean: Output, *spreads: Output, quantiles: Sequence[float] = (), num_samples: int = 0
) -> list[tuple[Output, str]]:
    """The outputs without their places, each with its name suffix: empty for the mean, which comes first.

    Args:
        mean: The mean.
        spreads: What else is known of the posterior; nothing of a regression, which then has no other outputs either.
        quantiles: Levels whose images are written too.
        num_samples: Number of samples that are written too.
    """
    if not spreads:
        return [(mean, "")]
    levels = [(Output("quantile", "", level=level), _percent(level)) for level in quantiles]
    samples = [(Output("sample", "", number=i), f"sample{i:03}") for i in range(num_samples)]
    return [(mean, ""), *((output, output.content) for output in spreads), *levels, *samples]


def _percent(level: float) -> str:
    """`q05` for 0.05 and `q99.99` for 0.9999: all digits of a level, so that no two levels share a name."""
    whole, _, rest = f"{Decimal(repr(level)) * 100:f}".partition(".")
    return f"q{whole:0>2}.{rest.rstrip('0')}".rstrip(".")


def beside(place: str, name: str) -> str:
    """The path of an image beside the mean; what a PNG cannot hold goes into a TIFF.

    Example:
        >>> beside("restored/cell_0.5um.ome.tif", "std"), beside("cells.png", "std")
        ('restored/cell_0.5um_std.ome.tif', 'cells_std.tif')
    """
    if not name:
        return place
    folder, slash, last = place.rstrip("/").rpartition("/")
    stem, suffix = take_apart(last)
    if suffix.lower().endswith(".png") and name in ("std", "low", "high", "schedule"):
        suffix = ".tif"
    return f"{folder}{slash}{stem}_{name}{suffix}"


def as_begun(outputs: tuple[Output, ...], journal: Path) -> tuple[Output, ...]:
    """The same outputs at the paths of a job already started, since version 0.1 named some of them differently.

    Args:
        outputs: As they would be named now.
        journal: Folder of the job, which need not exist.
    """
    try:
        held = tuple(Output(*values) for values in json.loads((journal / "job.json").read_bytes())["outputs"])
        begun = {Path(output.place).parent for output in held}
    except (OSError, ValueError, KeyError, TypeError):
        return outputs  # there is none, or resuming reports what is wrong with it
    alike = [a._replace(place="") for a in held] == [b._replace(place="") for b in outputs]
    is_same = alike and held[0] == outputs[0] and begun == {Path(outputs[0].place).parent}
    return held if is_same else outputs
