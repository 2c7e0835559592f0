"""Export a model as a BioImage.IO package: the sampler with a fixed seed as one deterministic ONNX graph, no code.

The zip contains the graph, a test image with its outputs, the card, a cover and `rdf.yaml`. It contains no Python and
no pickle, so opening it runs nothing but the graph. bioimageio.core tests every package before it is kept.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.export.card import CITATION, Credits, model_card
from sfumato.export.cover import draw_cover
from sfumato.export.example import example_image
from sfumato.export.graph import onnx_library, save_graph
from sfumato.export.sampler import output_names, sampler_graph
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.conditions import enlargement
from sfumato.restoration.in_memory import restore
from sfumato.restoration.intervals import sampled_by
from sfumato.restoration.layout import stride
from sfumato.system.atomic_files import replace_bytes
from sfumato.system.errors import RunError
from sfumato.system.escaping import in_markdown

__all__ = ["export_bioimageio"]

_DOI = "10.48550/arXiv.2312.02246"
_TOLERANCE = 1e-4
_AXES = ("z", "y", "x")
_WORDS = {
    "mean": "restored image: mean of the samples",
    "std": "uncertainty: standard deviation of the samples",
    "low": "lower end of the calibrated interval",
    "high": "upper end of the calibrated interval",
}


def export_bioimageio(
    model: LoadedModel,
    path: str | Path,
    credits: Credits,
    *,
    example: Path | None = None,
    num_samples: int | None = None,
    num_steps: int | None = None,
    seed: int = 0,
    side: int | None = None,
) -> Path:
    """Write a package and test it with bioimageio.core.

    Args:
        model: A model on the CPU.
        path: Zip file to write.
        credits: Authors and licence.
        example: Image to test with; its middle goes into the package. By default an image is made up.
        num_samples: Samples that the graph draws; by default as in the calibration, or 16.
        num_steps: Network calls per sample; by default as in the calibration, or the recipe's.
        seed: Seed of the noise, fixed in the graph.
        side: Side of the test image in pixels; by default 64, or 16 for volumes, or twice the model's stride.

    Returns:
        The path.

    Raises:
        RunError: If the model cannot be written as ONNX, or the package fails the test.
        ImportError: If the extra `bioimageio` is not installed.
    """
    v0_5, save_package, test = _library()
    onnx_library()
    sampled = sampled_by(model, num_samples, num_steps)
    step, ndim = stride(model.model), model.info.recipe.model.ndim
    measured = example_image(model, example, side or max(64 if ndim == 2 else 16, 2 * step))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        graph = sampler_graph(model, sampled, seed=seed)
        save_graph(graph, folder / "sampler.onnx")
        opset = next(item.version for item in graph.opset_import if item.domain in ("", "ai.onnx"))
        restored = restore(
            measured, model, num_samples=sampled.num_samples, num_steps=sampled.num_steps, seed=seed, tile=None
        )
        outputs = {name: _array(getattr(restored, name)) for name in output_names(model, sampled)}
        for name, array in {"measured": measured, **outputs}.items():
            np.save(folder / f"{name}.npy", array[None])
        draw_cover(folder / "cover.png", _middle(measured), _middle(outputs["mean"]))
        usage = _usage(sampled.num_samples, sampled.num_steps, seed)
        (folder / "README.md").write_text(model_card(model, credits, usage=usage), encoding="utf-8")
        description = _describe(v0_5, model, credits, folder, list(outputs), opset)
        save_package(description, output_path=folder / "package.zip")
        summary = test(folder / "package.zip")
        if summary.status != "passed":
            raise RunError(
                f"bioimageio.core refuses the package: {_first_error(summary)}; expected its test to pass: "
                "use other versions of onnx and bioimageio.core, and report this"
            )
        # Copied, not moved: the temporary folder may be on another disk.
        replace_bytes(path, (folder / "package.zip").read_bytes(), untouched="No package was written")
    return path


def _library() -> tuple[Any, Any, Any]:
    try:
        from bioimageio.core import test_description
        from bioimageio.spec import save_bioimageio_package
        from bioimageio.spec.model import v0_5
    except ImportError as error:
        raise ImportError(
            f"BioImage.IO packages need the libraries of an extra ({error}): pip install 'sfumato[bioimageio]'"
        ) from error
    return v0_5, save_bioimageio_package, test_description


def _middle(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """First channel, and of a volume its middle plane, shape (H, W)."""
    plane: NDArray[np.float32] = image[(0, *(size // 2 for size in image.shape[1:-2]))]
    return plane


def _array(values: NDArray[np.float32] | None) -> NDArray[np.float32]:
    assert values is not None
    return values


def _describe(v0_5: Any, model: LoadedModel, credits: Credits, folder: Path, outputs: Sequence[str], opset: int) -> Any:
    """The description, with files taken from the folder."""
    info = model.info
    ndim, step, factor = info.recipe.model.ndim, stride(model.model), enlargement(model)
    axes, number = _AXES[len(_AXES) - ndim :], v0_5.IntervalOrRatioDataDescr
    # Not concatenable: tiles of a graph with a fixed seed would each be sampled separately.
    size = v0_5.ParameterizedSize(min=step, step=1)

    def names(word: str, count: int) -> list[str]:
        return [word] if count == 1 else [f"{word}{place}" for place in range(count)]

    def file(name: str) -> Any:
        return v0_5.FileDescr(source=folder / name)

    measured = v0_5.InputTensorDescr(
        id="measured",
        description="what was measured, in the units of the training inputs",
        axes=[
            v0_5.BatchAxis(size=1),
            v0_5.ChannelAxis(channel_names=names("measured", info.condition_channels)),
            *(v0_5.SpaceInputAxis(id=axis, size=size, scale=float(f)) for axis, f in zip(axes, factor, strict=True)),
        ],
        data=number(type="float32"),
        test_tensor=file("measured.npy"),
    )
    restored = [
        v0_5.OutputTensorDescr(
            id=name,
            description=_WORDS[name],
            axes=[
                v0_5.BatchAxis(size=1),
                v0_5.ChannelAxis(channel_names=names(name, info.target_channels)),
                *(
                    v0_5.SpaceOutputAxis(
                        id=axis, size=v0_5.SizeReference(tensor_id="measured", axis_id=axis), scale=1.0
                    )
                    for axis in axes
                ),
            ],
            data=number(type="float32"),
            test_tensor=file(f"{name}.npy"),
        )
        for name in outputs
    ]
    scale = float(max(info.target.scale))
    tolerance = v0_5.ReproducibilityTolerance(relative_tolerance=_TOLERANCE, absolute_tolerance=_TOLERANCE * scale)
    count = sum(parameter.numel() for parameter in model.model.parameters())
    authors = [v0_5.Author(name=name) for name in credits.authors]
    return v0_5.ModelDescr(
        name=_plain(f"sfumato {info.recipe.name}"),
        description="Image restoration by conditional variational diffusion; "
        f"problem: {in_markdown(info.recipe.problem)}",
        authors=authors,
        cite=[v0_5.CiteEntry(text=CITATION, doi=_DOI)],
        license=credits.licence,
        documentation=file("README.md"),
        covers=[file("cover.png")],
        tags=["restoration", "diffusion", "uncertainty", f"{ndim}d", "sfumato"],
        inputs=[measured],
        outputs=restored,
        weights=v0_5.WeightsDescr(
            onnx=v0_5.OnnxWeightsDescr(source=folder / "sampler.onnx", opset_version=opset, authors=authors)
        ),
        config=v0_5.Config(
            bioimageio=v0_5.BioimageioConfig(
                reproducibility_tolerance=[tolerance],
                architecture_type=info.recipe.model.network,
                task="restoration",
                model_parameter_count=count,
            ),
            sfumato={"sha256": model.sha256},
        ),
    )


def _usage(num_samples: int, num_steps: int, seed: int) -> str:
    return (
        f"One graph takes the measured image and gives the mean and the standard deviation of {num_samples} samples of "
        f"{num_steps} steps, drawn with the seed {seed}: the same input gives the same output. Any program that runs "
        "BioImage.IO models with ONNX weights can use it, without sfumato.\n\n"
        "Give whole images. A program that cuts them into tiles samples each tile separately, and the tiles do not "
        "match at the seams; `sfumato restore` with the model file samples large images jointly."
    )


def _plain(name: str) -> str:
    """A name with only the characters that BioImage.IO allows, 5 to 128 of them."""
    return "".join(char if char.isalnum() or char in "_+- ()" else " " for char in name)[:64]


def _first_error(summary: Any) -> str:
    found = [error for detail in summary.details for error in detail.errors]
    return f"{found[0].msg:.300}" if found else summary.status
