"""Every set in SFUMATO_DATA opens as its README describes it, pixel for pixel as other readers see it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image as PillowImage

from sfumato.data.images.image import Image, PixelSize
from sfumato.data.images.io import open_image

DATA = os.environ.get("SFUMATO_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="set SFUMATO_DATA to the folder of image sets")
SUFFIXES = {".tif", ".tiff", ".png", ".jpg", ".jpeg", ".mrc"}


class Kind(NamedTuple):
    """Files of one kind in a set: pattern, number, axes, shape (None where it varies), type and pixel size."""

    pattern: str
    number: int
    axes: str
    shape: tuple[int, ...] | None
    dtype: str
    pixel_size: Mapping[str, float] = {}
    """In micrometre."""


KINDS = [
    Kind("fluor_sim_pairs/tsim_er/er?_raw.tif", 3, "CZYX", (3, 9, 112, 512), "uint16"),
    Kind("fluor_sim_pairs/tsim_er/er?_sim.tif", 3, "YX", (224, 1024), "uint16"),
    Kind("fluor_sim_pairs/tsim_actin_hr_only/actin?_sim.tif", 3, "YX", (512, 1024), "uint16"),
    Kind("fluor_sim_pairs/dlsim_mt/mt1_?e_raw15.tif", 2, "ZYX", (15, 256, 256), "uint16"),
    # The README's 30 nm stood in the tag of the original; these files were saved anew without it.
    Kind("fluor_sim_pairs/dlsim_mt/mt1_?e_sim.tif", 2, "YX", (256, 256), "uint16"),
    Kind("fluor_wf_storm/*_wf.tif", 2, "YX", (640, 640), "uint8"),
    Kind("fluor_wf_storm/*_storm.tif", 2, "YX", (2560, 2560), "uint8"),
    # Three and four channels were stored as colours, two and six as pages: these need axes="CYX".
    Kind("fluor_sted/axonal_rings_*.tif", 3, "CYX", (3, 224, 224), "uint16"),
    Kind("fluor_sted/dendritic_factin_*.tif", 2, "CYX", (4, 224, 224), "uint16"),
    Kind("fluor_sted/live_factin_train.tif", 1, "ZYX", (2, 420, 846), "uint16"),
    Kind("fluor_sted/live_factin_valid.tif", 1, "ZYX", (2, 810, 381), "uint16"),
    Kind("fluor_sted/synaptic_*.tif", 2, "ZYX", (6, 512, 512), "uint16"),
    Kind("fluor_sted/saureus_train_*.tif", 2, "YX", (256, 256), "float32"),
    Kind("fluor_sted/saureus_valid_*.tif", 2, "YX", (128, 128), "float32"),
    Kind("fluor_mrc/MT.mrc", 1, "ZYX", (9, 256, 256), "uint16", {"X": 0.0626, "Y": 0.0626, "Z": 0.16}),
    Kind("fluor_mrc/*_OTF2d.mrc", 1, "YX", (1, 257), "complex64", {"X": 0.03120008, "Y": 0.03120008}),
    Kind("fluor_denoise_w2s/train/*/*.tif", 60, "YX", (512, 512), "uint8"),
    Kind("fluor_denoise_w2s/test/*/*.tif", 30, "YX", (512, 512), "uint8"),
    Kind("fluor_denoise_fmd/*/*.png", 96, "YX", (512, 512), "uint8"),
    # 72 dpi in the tags of these four is the size on a screen; the README has the pixel size from elsewhere.
    Kind("qpi_tie_pairs/hela_*.tif", 2, "YX", (1280, 1280), "uint8"),
    Kind("qpi_tie_pairs/microlens_*.tiff", 2, "YX", (960, 1280), "uint8"),
    Kind("qpi_stack_cheek/z*um.tif", 27, "YX", (544, 704), "uint16"),
    Kind("qpi_stack_cheek/[rw]*.tif", 2, "YX", (544, 704), "uint16"),
    Kind("qpi_stack_cheek/figure_*.png", 2, "YXC", None, "uint8"),
    Kind("qpi_phase_truth/skimage_cell.png", 1, "YX", (660, 550), "uint8"),
    Kind("natural_coco/*.jpg", 51, "YXC", None, "uint8"),
    Kind("natural_kodak/*.png", 24, "YXC", None, "uint8"),
    *(Kind(f"natural_skimage/{name}.png", 1, "YXC", None, "uint8") for name in ("astronaut", "chelsea", "coffee")),
    *(Kind(f"natural_skimage/{name}.png", 1, "YX", None, "uint8") for name in ("brick", "camera", "coins")),
    *(Kind(f"natural_skimage/{name}.png", 1, "YX", None, "uint8") for name in ("grass", "gravel")),
    Kind("natural_skimage/*.jpg", 3, "YXC", None, "uint8"),
    Kind("resolution/imdecorr_*.tif", 1, "YX", (510, 510), "uint8", {"X": 0.0153364116272, "Y": 0.0153364116272}),
    Kind("resolution/pyres_*.tif", 2, "YX", (256, 256), "uint8"),
]


def root() -> Path:
    assert DATA is not None
    return Path(DATA)


def by_others(path: Path) -> npt.NDArray[Any]:
    """Pixels as tifffile, Pillow and NumPy read them."""
    if path.suffix == ".mrc":
        header = np.fromfile(path, "<i4", 4)
        dtype = {4: "<c8", 6: "<u2"}[int(header[3])]
        pixels = np.fromfile(path, dtype, offset=1024).reshape(header[2::-1])
        return pixels[0] if len(pixels) == 1 else pixels
    if path.suffix.startswith(".tif"):
        return np.asarray(tifffile.imread(path))
    with PillowImage.open(path) as picture:
        return np.asarray(picture)


def assert_matches(image: Image, path: Path) -> None:
    pixels = by_others(path)
    np.testing.assert_array_equal(image.read(), pixels)
    half = {axis: slice(length // 2, length) for axis, length in zip(image.axes, image.shape, strict=True)}
    np.testing.assert_array_equal(image.read(half), pixels[tuple(half.values())])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.pattern)
def test_sets_are_as_described(kind: Kind) -> None:
    paths = sorted(root().glob(kind.pattern))
    assert len(paths) == kind.number
    for path in paths:
        image = open_image(path)
        assert image.axes == kind.axes
        assert kind.shape is None or image.shape == kind.shape
        assert image.dtype == kind.dtype
        sizes = {axis: size.to("micrometer") for axis, size in image.pixel_size.items()}
        assert sizes == pytest.approx(dict(kind.pixel_size), rel=1e-9)
        assert_matches(image, path)


def test_imagenet_has_pictures_of_every_sort() -> None:
    paths = sorted((root() / "natural_imagenet100").glob("*.JPEG"))
    assert len(paths) == 100
    axes = []
    for path in paths:
        image = open_image(path)
        axes.append(image.axes)
        assert_matches(image, path)
    assert (axes.count("YXC"), axes.count("YX")) == (99, 1)


def test_no_image_is_left_out() -> None:
    listed = {path for kind in KINDS for path in root().glob(kind.pattern)}
    listed |= set((root() / "natural_imagenet100").glob("*.JPEG"))
    there = {path for path in root().rglob("*") if path.suffix.lower() in SUFFIXES}
    assert listed == there


def test_the_mrc_file_with_odd_headers() -> None:
    image = open_image(root() / "fluor_mrc" / "MT.mrc")
    assert image.format == "MRC (DeltaVision)"
    assert image.pixel_size == {
        "X": PixelSize(0.0626, "micrometer"),
        "Y": PixelSize(0.0626, "micrometer"),
        "Z": PixelSize(0.16, "micrometer"),
    }
    assert open_image(image.path, axes="SYX").axes == "SYX"


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("hl60_field.npz/field", "complex64", (112, 112)),
        ("hl60_field.npz/phase", "float32", (112, 112)),
        ("qpretrieve_hologram_cell.npz/data", "uint8", (200, 210)),
        ("qpretrieve_hologram_cell.npz/bg_data", "uint8", (200, 210)),
        ("hologram_cell_phase.npz/phase", "float32", (200, 210)),
    ],
)
def test_phase_images_in_archives(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    archive, _, member = name.partition("/")
    image = open_image(root() / "qpi_phase_truth" / name)
    assert (image.axes, image.dtype, image.shape) == ("YX", np.dtype(dtype), shape)
    with np.load(root() / "qpi_phase_truth" / archive, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(image.read({"Y": slice(50, 60)}), arrays[member][50:60])


def test_axes_of_stacks_can_be_told() -> None:
    raw = open_image(root() / "fluor_sim_pairs" / "tsim_er" / "er1_raw.tif", axes="TSYX")
    frame = raw.read({"T": 2, "S": 4})
    np.testing.assert_array_equal(frame, tifffile.imread(raw.path)[2, 4])
    pair = open_image(root() / "fluor_sted" / "live_factin_train.tif", axes="CYX")
    np.testing.assert_array_equal(pair.read({"C": 1}), tifffile.imread(pair.path)[1])
