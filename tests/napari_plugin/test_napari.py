"""Output images in napari: which reader shows them with their pixel size."""

from pathlib import Path

import numpy as np
import pytest

from sfumato.data.images.image import PixelSize
from sfumato.data.images.output import OutputImage

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("plugin", ["napari", "napari-ome-zarr"])
def test_napari_opens_an_output_image(version: str, plugin: str, tmp_path: Path) -> None:
    """The plugin napari-ome-zarr reads sizes and units; napari's own reader shows all pixels as 1 x 1."""
    pytest.importorskip("napari", reason="napari is not installed")
    pytest.importorskip("napari_ome_zarr", reason="the plugin napari-ome-zarr is not installed")
    from napari.components import ViewerModel
    from npe2 import PluginManager

    PluginManager.instance().discover()
    sizes = {"Z": PixelSize(1, "micrometer"), "Y": PixelSize(0.25, "micrometer"), "X": PixelSize(0.25, "micrometer")}
    output = OutputImage.create(
        tmp_path / "out.zarr",
        shape=(4, 32, 40),
        dtype="float32",
        axes="ZYX",
        pixel_size=sizes,
        num_levels=3,
        version="0.5" if version == "0.5" else "0.4",
    )
    pixels = np.random.default_rng(0).random((4, 32, 40), np.float32)
    output.write(0, (0, 0, 0), pixels)
    (layer,) = ViewerModel().open(str(tmp_path / "out.zarr"), plugin=plugin)
    assert layer.multiscale
    assert [tuple(data.shape) for data in layer.data] == [level.shape for level in output.levels]
    np.testing.assert_array_equal(np.asarray(layer.data[0]), pixels)
    if plugin == "napari-ome-zarr":
        np.testing.assert_allclose(layer.scale, [1, 0.25, 0.25])
        assert [str(unit) for unit in layer.units] == ["micrometer"] * 3
    else:
        np.testing.assert_allclose(layer.scale, [1, 1, 1])
