"""Export a model as a BioImage.IO package: the sampler with a fixed seed as one deterministic ONNX graph, no code.

The zip contains the graph, a test image with its outputs, the card, a cover and `rdf.yaml`. It contains no Python and
no pickle, so opening it runs nothing but the graph. bioimageio.core tests every package before it is kept.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from sfumato.diffusion.noise import NoiseField
from sfumato.export.card import CITATION, Credits, model_card
from sfumato.export.graph import onnx_library, save_graph
from sfumato.export.sampler import sampler_graph
from sfumato.figures.panels import grey, limits, save_picture
from sfumato.models.model_file import LoadedModel
from sfumato.models.reach import stride
from sfumato.restoration.conditions import Measured, condition_of, upsampling_factor
from sfumato.restoration.layout import middle
from sfumato.restoration.restorer import Restorer
from sfumato.system.atomic_files import replace_bytes
from sfumato.system.errors import RunError
from sfumato.system.escaping import in_markdown

__all__ = ["draw_cover", "example_image", "export_bioimageio"]

_DOI = "10.48550/arXiv.2312.02246"
_TOLERANCE = 1e-4
_AXES = ("z", "y", "x")
_COVER_SIDE = 384
_WORDS = {
    "mean": "restored image: posterior mean",
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
    restorer = Restorer.of(model, num_samples, num_steps)
    step, ndim = stride(model.model), model.info.recipe.model.ndim
    measured = example_image(model, example, side or max(64 if ndim == 2 else 16, 2 * step))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        graph = sampler_graph(model, restorer.sampled, seed=seed)
        save_graph(graph, folder / "sampler.onnx")
        opset = next(item.version for item in graph.opset_import if item.domain in ("", "ai.onnx"))
        outputs = _restored(restorer, measured, seed)
        for name, array in {"measured": measured, **outputs}.items():
            np.save(folder / f"{name}.npy", array[None])
        draw_cover(folder / "cover.png", _middle(measured), _middle(outputs["mean"]))
        usage = _usage(restorer.sampled.num_samples, restorer.sampled.num_steps, seed)
        (folder / "README.md").write_text(model_card(model, credits, usage=usage), encoding="utf-8")
        save_package(_describe(v0_5, model, credits, folder, list(outputs), opset), output_path=folder / "package.zip")
        summary = test(folder / "package.zip")
        if summary.status != "passed":
            raise RunError(
                f"bioimageio.core refuses the package: {_first_error(summary)}; expected its test to pass: "
                "use other versions of onnx and bioimageio.core, and report this"
            )
        # Copied, not moved: the temporary folder may be on another disk.
        replace_bytes(path, (folder / "package.zip").read_bytes(), untouched="No package was written")
    return path


def example_image(model: LoadedModel, source: Path | None, side: int) -> NDArray[np.float32]:
    """An image to test an exported model with, (K, *spatial), in the units of the model's inputs.

    Args:
        model: From :func:`sfumato.load`.
        source: Image whose middle is used; by default blurred noise is made up within the model's range.
        side: Largest size along each axis, in pixels.

    Raises:
        ImageError: If the image does not fit the model.
    """
    info, ndim = model.info, model.info.recipe.model.ndim
    if source is None:
        shape = torch.Size([1, 1, info.condition_channels, *[-(-side // 8) + 2] * ndim])
        coarse = NoiseField(0)(0, shape)[0]
        mode = "bicubic" if ndim == 2 else "trilinear"
        fine = F.interpolate(coarse, scale_factor=8, mode=mode)
        for axis in range(2, 2 + ndim):
            fine = fine.narrow(axis, 8, side)
        return info.condition.invert(0.4 * fine)[0].numpy()
    frames = Measured(str(source), model, axes=info.recipe.data.input_axes, on_target_grid=True)
    corner, size = middle(frames.spatial, [side] * ndim)
    return np.ascontiguousarray(frames.read(0, corner, size), dtype=np.float32) / np.float32(frames.full_scale)


def draw_cover(path: Path, measured: NDArray[np.floating], restored: NDArray[np.floating]) -> None:
    """Draw both images, each cropped to a square and stretched to its own range; twice as wide as high, for catalogues.

    Args:
        path: PNG to write.
        measured: Shape (H, W).
        restored: Shape (H, W), perhaps on a finer grid.
    """
    sheet = Image.new("RGB", (2 * _COVER_SIDE, _COVER_SIDE))
    for column, image in enumerate((measured, restored)):
        side = min(image.shape)
        top, left = ((size - side) // 2 for size in image.shape)
        square = image[top : top + side, left : left + side]
        picture = Image.fromarray(grey(square, *limits(square)))
        picture = picture.resize((_COVER_SIDE, _COVER_SIDE), Image.Resampling.NEAREST)
        sheet.paste(picture, (column * _COVER_SIDE, 0))
    save_picture(sheet, path, optimize=True)


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


def _restored(restorer: Restorer, measured: NDArray[np.float32], seed: int) -> dict[str, NDArray[np.float32]]:
    """What the graph must give for an image, by name."""
    frames, outputs = condition_of(measured, restorer.model), restorer.available("samples")
    images = restorer.summarise(frames.condition(), NoiseField(seed), outputs, full_scale=frames.full_scale)
    return dict(zip((output.content for output in outputs), images, strict=True))


def _tensor(
    kind: Any, v0_5: Any, folder: Path, name: str, description: str, channels: int, space: Sequence[Any]
) -> Any:
    """The description of an input or output with its test image from the folder."""
    names = [name] if channels == 1 else [f"{name}{place}" for place in range(channels)]
    return kind(
        id=name,
        description=description,
        axes=[v0_5.BatchAxis(size=1), v0_5.ChannelAxis(channel_names=names), *space],
        data=v0_5.IntervalOrRatioDataDescr(type="float32"),
        test_tensor=v0_5.FileDescr(source=folder / f"{name}.npy"),
    )


def _tensors(v0_5: Any, model: LoadedModel, folder: Path, outputs: Sequence[str]) -> Mapping[str, list[Any]]:
    """The inputs and outputs of the graph."""
    info, factor = model.info, upsampling_factor(model)
    axes = _AXES[len(_AXES) - len(factor) :]
    # Not concatenable: tiles of a graph with a fixed seed would each be sampled separately.
    size = v0_5.ParameterizedSize(min=stride(model.model), step=1)
    seen = [v0_5.SpaceInputAxis(id=axis, size=size, scale=float(f)) for axis, f in zip(axes, factor, strict=True)]
    same = {axis: v0_5.SizeReference(tensor_id="measured", axis_id=axis) for axis in axes}
    given = [v0_5.SpaceOutputAxis(id=axis, size=size, scale=1.0) for axis, size in same.items()]
    about = "what was measured, in the units of the training inputs"
    measured = _tensor(v0_5.InputTensorDescr, v0_5, folder, "measured", about, info.condition_channels, seen)
    restored = [
        _tensor(v0_5.OutputTensorDescr, v0_5, folder, name, _WORDS[name], info.target_channels, given)
        for name in outputs
    ]
    return {"inputs": [measured], "outputs": restored}


def _describe(v0_5: Any, model: LoadedModel, credits: Credits, folder: Path, outputs: Sequence[str], opset: int) -> Any:
    """The description, with files taken from the folder."""
    info, recipe = model.info, model.info.recipe
    largest = _TOLERANCE * float(max(info.target.scale))
    tolerance = v0_5.ReproducibilityTolerance(relative_tolerance=_TOLERANCE, absolute_tolerance=largest)
    authors = [v0_5.Author(name=name) for name in credits.authors]
    return v0_5.ModelDescr(
        name=_plain(f"sfumato {recipe.name}"),
        description=f"Image restoration by conditional variational diffusion; problem: {in_markdown(recipe.problem)}",
        authors=authors,
        cite=[v0_5.CiteEntry(text=CITATION, doi=_DOI)],
        license=credits.licence,
        documentation=v0_5.FileDescr(source=folder / "README.md"),
        covers=[v0_5.FileDescr(source=folder / "cover.png")],
        tags=["restoration", "diffusion", "uncertainty", f"{recipe.model.ndim}d", "sfumato"],
        **_tensors(v0_5, model, folder, outputs),
        weights=v0_5.WeightsDescr(
            onnx=v0_5.OnnxWeightsDescr(source=folder / "sampler.onnx", opset_version=opset, authors=authors)
        ),
        config=v0_5.Config(
            bioimageio=v0_5.BioimageioConfig(
                reproducibility_tolerance=[tolerance],
                architecture_type=recipe.model.network,
                task="restoration",
                model_parameter_count=sum(parameter.numel() for parameter in model.model.parameters()),
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
