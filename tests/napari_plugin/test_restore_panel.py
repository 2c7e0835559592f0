"""The Restore panel: which layer it takes, which models it lists, what it marks and what it saves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato

napari = pytest.importorskip("napari", reason="napari is not installed", exc_type=ImportError)
pytest.importorskip("qtpy", reason="no Qt binding is installed", exc_type=ImportError)

from real_viewer import needs_display, opened, wait  # noqa: E402
from sfumato.data.images.image import PixelSize  # noqa: E402
from sfumato.data.images.io import open_image  # noqa: E402
from sfumato.data.images.sidecar import origin_of  # noqa: E402
from sfumato.models.bundled import bundled_models  # noqa: E402
from sfumato.napari_plugin.audit_marks import audited, marks_layer  # noqa: E402
from sfumato.napari_plugin.layers import Source  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


def fields(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(100, 300, shape).astype(np.float32)


@needs_display
def test_the_layer_follows_the_selection(viewer: Any, model_file: Path) -> None:
    first, second = (viewer.add_image(fields(24, 32), name=name) for name in ("first", "second"))
    widget = opened(viewer, "Restore", model_file)
    assert widget.layer.layer is second
    viewer.layers.selection.active = first
    assert widget.layer.layer is first
    viewer.add_points(np.zeros((1, 2)))
    assert widget.layer.layer is first
    third = viewer.add_image(fields(24, 32), name="third")
    assert widget.layer.layer is third


@needs_display
def test_the_model_of_the_package_is_listed_once(viewer: Any) -> None:
    (path,) = bundled_models()
    widget = opened(viewer, "Restore", path)
    widget.model.open(path.parent / ".." / "models" / path.name)  # the same file by another way
    wait(lambda: widget.model._reading.done == 0 and widget.model.info is not None)
    names = [widget.model._list.itemText(place) for place in range(widget.model._list.count())]
    assert names == ["choose a model file", "microscopy (comes with sfumato)"]
    assert widget.model._list.currentIndex() == 1


@needs_display
def test_the_bar_says_what_has_no_progress(viewer: Any, model_file: Path) -> None:
    viewer.add_image(fields(192, 192), name="field")
    widget = opened(viewer, "Restore", model_file)
    widget.samples.setValue(2)
    widget.steps.setValue(1)
    widget.restore_button.click()
    seen = []

    def is_done() -> bool:
        widget.show_progress()
        seen.append(widget.progress.format())
        return not widget.is_running

    wait(is_done)
    assert [text for text in dict.fromkeys(seen) if "%" not in text] == [
        "loading the model",
        "auditing the restored frame",
    ]


@needs_display
def test_what_is_restored_is_saved_with_pixel_size_and_origin(viewer: Any, model_file: Path, tmp_path: Path) -> None:
    pixels = fields(3, 24, 32)
    viewer.add_image(pixels, name="frames", scale=(2, 0.2, 0.2), units=("second", "micrometer", "micrometer"))
    widget = opened(viewer, "Restore", model_file)
    assert not widget.save_button.isEnabled()
    widget.samples.setValue(2)
    widget.steps.setValue(2)
    widget.restore_button.click()
    wait(lambda: not widget.is_running)
    assert viewer.layers["frames uncertainty"].visible
    assert widget.save_button.isEnabled()
    files = widget.save(tmp_path / "cells")
    assert [file.name for file in files] == ["cells.ome.tif", "cells_std.ome.tif"]
    for file, title in zip(files, ("mean", "uncertainty"), strict=True):
        image = open_image(file)
        assert image.format == "OME-TIFF"
        assert image.axes == "TYX"
        np.testing.assert_array_equal(image.read(), viewer.layers[f"frames {title}"].data)
        micrometres = PixelSize(0.1, "micrometer")
        assert image.pixel_size == {"T": PixelSize(2, "second"), "Y": micrometres, "X": micrometres}
    told = origin_of(files[1])
    assert told["model_sha256"] == sfumato.load(model_file).sha256
    assert (told["samples"], told["steps"], told["seed"]) == (2, 2, 0)
    assert (told["content"], told["sfumato"]) == ("standard deviation", sfumato.__version__)
    assert widget.save(tmp_path / "cells") == files  # its own may be replaced
    (tmp_path / "other.tif").write_bytes(b"not ours")
    assert widget.save(tmp_path / "other.tif") == []
    assert "was not replaced" in widget.status.text()


def test_what_the_measurement_lacks_is_marked_in_its_place(model_file: Path) -> None:
    """A bright spot is planted into a restored frame; its mark lies on it, in the layer of the mean."""
    pixels = fields(2, 48, 64)
    source = Source.of(napari.layers.Image(pixels, scale=(1, 0.2, 0.2)), None, 2)
    model = sfumato.load(model_file)
    mean = np.stack([sfumato.restore(frame, model, num_samples=2, num_steps=1).mean for frame in pixels])[:, None]
    mean[1, 0, 30:36, 80:86] += 2000
    marks = audited(source, model, 1, {"mean": mean})
    assert marks.kinds[0] == "not supported"
    assert any("not supported by the measurement" in line for line in marks.lines)
    ((_, settings),) = source.layers({"mean": mean}, frames=range(2), corner=(0, 0), factor=(2, 2))
    places, shown = marks_layer(source, marks, mean, settings)
    np.testing.assert_allclose(places[0], (1, 32.5, 82.5), atol=3)
    napari.layers.Points(places, **shown)
