"""`sfumato simulate`."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from sfumato.cli.messages import counting, say

__all__ = ["microscopy"]


def microscopy(
    out: Annotated[Path, Option(help="Folder to create.")],
    seed: Annotated[int, Option(help="The same seed gives the same images.")] = 0,
    layout: Annotated[
        Literal["pairs", "biosr"], Option(help="TIFF pairs with a manifest, or MRC files as in BioSR.")
    ] = ("pairs"),
    side: Annotated[int, Option(help="Side of the widefield images in pixels; the targets' is twice that.")] = 128,
    train: Annotated[int, Option(help="Training fields per structure, at most 30.")] = 6,
    validation: Annotated[int, Option(help="Validation fields per structure, at most 5.")] = 2,
    test: Annotated[int, Option(help="Test fields per structure, at most 15.")] = 2,
) -> None:
    """Simulate widefield and SIM images of coated pits, reticulum, microtubules and F-actin at nine light levels."""
    from sfumato.problems.microscopy_simulation import simulate

    cells = {"train": train, "validation": validation, "test": test}
    with counting("simulating", "fields") as progress:
        made = simulate(out, seed=seed, cells=cells, side=side, layout=layout, progress=progress)
    option = "--manifest" if layout == "pairs" else "--folder"
    say(f"simulated: {made}; train on it with {option} {made}")
