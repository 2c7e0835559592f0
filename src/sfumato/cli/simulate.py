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
        Literal["pairs", "biosr", "light"],
        Option(help="TIFF pairs with a manifest; MRC files as in BioSR; or light, to which training adds fresh noise."),
    ] = "pairs",
    side: Annotated[int, Option(help="Side of the widefield images in pixels; the targets' is twice that.")] = 128,
    train: Annotated[int, Option(help="Training fields per structure; at most 30 of pairs.")] = 6,
    validation: Annotated[int, Option(help="Validation fields per structure; at most 5 of pairs.")] = 2,
    test: Annotated[int, Option(help="Test fields per structure; at most 15 of pairs.")] = 2,
) -> None:
    """Simulate widefield and SIM images of coated pits, reticulum, microtubules and F-actin at nine light levels."""
    from sfumato.problems.microscopy_simulation import simulate
    from sfumato.problems.photons import simulate_light

    cells = {"train": train, "validation": validation, "test": test}
    with counting("simulating", "fields") as progress:
        if layout == "light":
            made = simulate_light(out, seed=seed, cells=cells, side=side, progress=progress)
        else:
            made = simulate(out, seed=seed, cells=cells, side=side, layout=layout, progress=progress)
    options = {"pairs": "--manifest", "biosr": "--folder", "light": "--set problem=photons --folder"}
    say(f"simulated: {made}; train on it with {options[layout]} {made}")
