"""The napari plugin, driven in a real viewer as a person would drive it."""

import dataclasses
import time
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato
from sfumato.models.intervals import NO_SAMPLES, Correction, Sampled
from sfumato.models.model_file import save_model
from sfumato.models.model_updates import set_calibration

napari = pytest.importorskip("napari", reason="napari is not installed", exc_type=ImportError)
pytest.importorskip("qtpy", reason="no Qt binding is installed", exc_type=ImportError)

from qtpy.QtCore import Qt, QTimer  # noqa: E402

from real_viewer import needs_display, opened, process, wait  # noqa: E402
from sfumato.napari_plugin.layers import Source  # noqa: E402
from untrained_models import noise, write_reading_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


def restored(widget: Any, *, whole: bool) -> None:
    widget.start(whole=whole)
    assert widget.is_running
    wait(lambda: not widget.is_running)


class Delays:
    """How much later than asked a timer of the event loop fires, in milliseconds."""

    interval = 10

    def __init__(self) -> None:
        self.values: list[float] = []
        self._last = time.perf_counter()
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(self.interval)
        self._timer.timeout.connect(self._fired)

    def _fired(self) -> None:
        now = time.perf_counter()
        self.values.append(1000 * (now - self._last) - self.interval)
        self._last = now

    def start(self) -> None:
        self._last = time.perf_counter()
        self._timer.start()

    def stop(self, event: Any = None) -> None:
        self._timer.stop()


def test_the_manifest_is_valid_and_found_by_its_entry_point() -> None:
    from npe2 import PluginManifest

    (entry,) = distribution("sfumato").entry_points.select(group="napari.manifest")
    assert (entry.name, entry.value) == ("sfumato", "sfumato:napari.yaml")
    manifest = PluginManifest.from_file(Path(sfumato.__file__).parent / "napari.yaml")
    manifest.validate_imports()
    assert {widget.display_name for widget in manifest.contributions.widgets or ()} == {
        "sfumato",
        "Restore",
        "Schedule",
    }
    assert len(manifest.contributions.sample_data or ()) == 4


@needs_display
def test_a_person_tries_it(viewer: Any, model_file: Path) -> None:
    """Open the sample, preview, restore, cancel half-way, restore again; the event loop stays quick all the while."""
    widefield = next(layer for layer in viewer.open_sample("sfumato", "microtubules") if layer.name == "widefield")
    widget = opened(viewer, "Restore", model_file)
    assert "2 x 2 restored per measured one" in widget.model.card_text
    assert (widget.samples.value(), widget.steps.value()) == (16, 8)
    assert widget.layer.layer is widefield
    widget.samples.setValue(2)
    widget.steps.setValue(3)

    viewer.camera.center, viewer.camera.zoom = (0, 4.0, 3.0), 300
    process()
    viewer.screenshot(flash=False)
    restored(widget, whole=False)
    preview = viewer.layers["preview: widefield mean"]
    assert preview.metadata["sfumato"] == "preview"
    assert preview.data.shape[0] < 256
    np.testing.assert_allclose(preview.extent.world.mean(0), (4.0, 3.0), atol=0.1)

    widget.keep_samples.setChecked(True)
    restored(widget, whole=True)
    names = [layer.name for layer in viewer.layers if isinstance(layer, napari.layers.Image)]
    assert names == ["truth", "widefield", "widefield samples", "widefield mean", "widefield uncertainty"]
    alone = sfumato.restore(widefield.data, sfumato.load(model_file), num_samples=2, num_steps=3)
    mean, samples = viewer.layers["widefield mean"], viewer.layers["widefield samples"]
    np.testing.assert_allclose(mean.data, alone.mean, atol=1e-2)  # grey levels of some hundreds
    assert alone.std is not None
    np.testing.assert_allclose(viewer.layers["widefield uncertainty"].data, alone.std, atol=1e-2)
    np.testing.assert_allclose(mean.scale, widefield.scale / 2)
    np.testing.assert_allclose(samples.scale, [1, *widefield.scale / 2])
    assert [str(unit) for unit in samples.units] == ["pixel", "micrometer", "micrometer"]
    assert samples.axis_labels == ("sample", "y", "x")
    for end in range(2):  # edges of the images lie on each other
        fine, coarse = (layer.extent.world[end] + (end - 0.5) * np.asarray(layer.scale) for layer in (mean, widefield))
        np.testing.assert_allclose(fine, coarse, atol=1e-6)
    seen = mean.world_to_data(preview.data_to_world((0, 0))).round().astype(int)
    inside = tuple(slice(start, start + size) for start, size in zip(seen, preview.data.shape, strict=True))
    np.testing.assert_allclose(preview.data, mean.data[inside], atol=0.5)
    assert viewer.dims.nsteps[0] == 2  # the slider

    before = sum(isinstance(layer, napari.layers.Image) for layer in viewer.layers)
    widget.steps.setValue(500)
    delays = Delays()
    widget.start(whole=True)
    delays.start()
    enough = time.monotonic() + 5
    wait(lambda: 0 < widget._running.total < 2 * widget._running.done or time.monotonic() > enough)
    assert widget.progress.value() > 0
    stopped = time.monotonic()
    widget.cancel_button.click()
    wait(lambda: not widget.is_running, 10)
    assert time.monotonic() - stopped < 5
    assert widget.status.text() == "stopped; no layer was added"
    assert sum(isinstance(layer, napari.layers.Image) for layer in viewer.layers) == before

    widget.steps.setValue(25)
    for attempt in range(3):  # other work on the machine can only make it later
        viewer.layers.events.inserting.connect(delays.stop)
        restored(widget, whole=True)
        images = [layer for layer in viewer.layers if isinstance(layer, napari.layers.Image)]
        assert len(images) == before + 3 * (attempt + 1)
        late = np.quantile(delays.values, 0.95), max(delays.values)
        print(f"event loop late by {late[0]:.1f} ms (95%), {late[1]:.1f} ms (most) of {len(delays.values)} turns")
        if late[0] < 100 and late[1] < 300:
            return
        delays = Delays()
        delays.start()
    pytest.fail(f"the event loop was late by {late[0]:.1f} ms (95%) and {late[1]:.1f} ms (most), three times")


@needs_display
def test_frames_channels_and_scales_of_a_lazy_layer(viewer: Any, model_file: Path) -> None:
    """A pyramid of Dask arrays with three times, of which the axis of channels has length 1."""
    dask = pytest.importorskip("dask.array")
    pixels = np.random.default_rng(0).uniform(100, 300, (3, 1, 24, 32)).astype(np.float32)
    levels = [dask.from_array(pixels, chunks=(1, 1, 24, 32)), dask.from_array(pixels[..., ::2, ::2])]
    layer = viewer.add_image(levels, scale=(5, 1, 0.2, 0.2), units=("second", "pixel", "micrometer", "micrometer"))
    widget = opened(viewer, "Restore", model_file)
    widget.layer.choose(layer, 1)
    widget.samples.setValue(2)
    widget.steps.setValue(1)
    restored(widget, whole=True)
    mean = viewer.layers[f"{layer.name} mean"]
    assert mean.data.shape == (3, 1, 48, 64)
    np.testing.assert_allclose(mean.scale, (5, 1, 0.1, 0.1))
    assert [str(unit) for unit in mean.units] == ["second", "pixel", "micrometer", "micrometer"]
    model = sfumato.load(model_file)
    for frame in range(3):
        alone = sfumato.restore(pixels[frame], model, num_samples=2, num_steps=1, image=frame)
        np.testing.assert_allclose(mean.data[frame], alone.mean, atol=1e-2)
    viewer.dims.set_current_step(0, 2)
    process()
    restored(widget, whole=False)
    preview = viewer.layers[f"preview: {layer.name} mean"]
    assert preview.data.shape == (1, 1, 48, 64)
    np.testing.assert_allclose(preview.data[0], mean.data[2], atol=1e-2)
    assert preview.translate[0] == 10  # the third frame stands at 10 s


@needs_display
def test_intervals_come_with_a_calibrated_model(viewer: Any, model_file: Path, tmp_path: Path) -> None:
    found = Correction("risk_control", 0.9, 2.0, 50, 50, 0.8, Sampled(4, 2, "2m", 0.0))
    calibrated = set_calibration(model_file, found, tmp_path / "calibrated.safetensors")
    viewer.add_image(np.random.default_rng(0).uniform(100, 300, (24, 32)).astype(np.float32), name="field")
    widget = opened(viewer, "Restore", calibrated)
    assert found.label in widget.model.card_text
    assert (widget.samples.value(), widget.steps.value()) == (4, 2)
    restored(widget, whole=True)
    low, mean, high = (viewer.layers[f"field {name}"].data for name in ("interval low", "mean", "interval high"))
    assert (low < mean).all()
    assert (mean < high).all()
    assert viewer.layers["field mean"].metadata["intervals"] == found.label
    widget.steps.setValue(3)
    assert "calibrated with 4 samples of 2 steps" in widget.note.text()
    assert not widget.note.isHidden()


@needs_display
def test_a_doubtful_layer_is_warned_of(viewer: Any, model_file: Path) -> None:
    viewer.add_image(np.zeros((24, 32), np.float32), name="field")
    widget = opened(viewer, "Restore", model_file)
    restored(widget, whole=True)
    assert "Warning: The image is all zero: nothing was measured." in widget.status.text()
    assert "all zero" in viewer.layers["field mean"].metadata["likeness"]


@needs_display
def test_a_preview_draws_no_samples_where_the_model_needs_none(viewer: Any, tmp_path: Path) -> None:
    path = write_reading_model(tmp_path / "model.safetensors")
    set_calibration(path, Correction("risk_control", 0.9, 2.0, 50, 50, 0.8, NO_SAMPLES))
    pixels = noise(24, 32)
    viewer.add_image(pixels, name="field")
    widget = opened(viewer, "Restore", path)
    widget.keep_samples.setChecked(True)
    widget.steps.setValue(2)
    restored(widget, whole=False)
    assert "no samples were drawn" in widget.status.text()
    alone = sfumato.restore(pixels, sfumato.load(path), fast=True)
    assert alone.std is not None
    assert alone.high is not None
    for title, expected in (("mean", alone.mean), ("uncertainty", alone.std), ("interval high", alone.high)):
        layer = viewer.layers[f"preview: field {title}"]
        row, column = np.round(layer.translate).astype(int)  # what the canvas shows may be a part
        shown = expected[row : row + layer.data.shape[0], column : column + layer.data.shape[1]]
        np.testing.assert_allclose(layer.data, shown, atol=3e-5)
    assert viewer.layers["preview: field mean"].metadata["samples"] == 0
    restored(widget, whole=True)
    assert "no samples were drawn" not in widget.status.text()
    assert viewer.layers["field samples"].metadata["samples"] == widget.samples.value()


@needs_display
def test_errors_are_shown_whole_in_the_panel(viewer: Any, model_file: Path, tmp_path: Path) -> None:
    from napari.utils.notifications import notification_manager

    def told(do: Callable[[], Any], done: Callable[[], bool]) -> list[str]:
        notification_manager.records.clear()
        do()
        wait(done)
        return [record.message for record in notification_manager.records]

    _, widget = viewer.window.add_plugin_dock_widget("sfumato", "Restore")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no model at all")
    (message,) = told(lambda: widget.model.open(broken), lambda: widget.model.card_text == "")
    with pytest.raises(sfumato.system.errors.ModelFileError) as raised:
        sfumato.load(broken)
    assert message == str(raised.value)
    assert widget.model.error_text == f"error: {message}"
    (message,) = told(lambda: widget.start(whole=True), lambda: True)
    assert "pick a model file" in message
    assert widget.status.text() == f"error: {message}"

    widget.model.open(model_file)
    wait(lambda: widget.model.info is not None)
    assert not widget.model.error_text
    bad = np.ones((24, 32), np.float32)
    bad[3, 4] = np.nan
    layer = viewer.add_image(bad, name="bad", contrast_limits=(0, 1))
    widget.layer.choose(layer)
    (message,) = told(lambda: widget.start(whole=True), lambda: not widget.is_running)
    assert "has NaN or infinite pixels" in message
    assert widget.status.text() == f"error: {message}"
    assert widget.status.verticalScrollBar().maximum() == 0  # all of it is in view
    assert widget.status.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
    assert widget.restore_button.isEnabled()
    layer = viewer.add_image(np.ones((2, 24, 32), np.float32), name="two", contrast_limits=(0, 1))
    widget.layer.choose(layer, 0)
    (message,) = told(lambda: widget.start(whole=True), lambda: not widget.is_running)
    assert "two has 2 channels" in message


@needs_display
def test_the_schedule_follows_the_cursor(viewer: Any, model_file: Path) -> None:
    from sfumato.restoration.conditions import Measured

    (layer,) = viewer.open_sample("sfumato", "time_series")
    widget = opened(viewer, "Schedule", model_file)
    model = sfumato.load(model_file)
    viewer.dims.set_current_step(0, 1)
    seen = []
    for y, x in ((10, 20), (10, 21), (100, 120)):
        viewer.cursor.position = layer.data_to_world((1, y, x))
        place = f"({2 * y + 1}, {2 * x + 1})"
        wait(lambda place=place: place in widget.text.text())  # type: ignore[misc]
        measured = Measured(Source.of(layer, None, 2).image, model)
        schedule = model.model.schedule(measured.condition(1, (0, 0), (256, 256)))
        rate = schedule.rate[0, 0, 2 * y + 1, 2 * x + 1].item()
        for plot, function in ((widget.beta, schedule.beta), (widget.gamma, schedule.gamma)):
            curve = plot.curves[0]
            assert curve.name == "this pixel"
            middle = function(sfumato_time(0.5))[0, 0, 2 * y + 1, 2 * x + 1].item()
            assert curve.values[50] == pytest.approx(middle, rel=1e-3)
        assert f"{rate:.3g}" in widget.text.text()
        seen.append(rate)
    assert len(set(seen)) == 3
    viewer.cursor.position = (1, -50, -50)  # outside: what was drawn stays
    time.sleep(0.05)
    process()
    assert "(201, 241)" in widget.text.text()


def sfumato_time(t: float) -> Any:
    import torch

    return torch.tensor(t)


@needs_display
def test_a_widget_may_be_closed_while_it_works(viewer: Any, model_file: Path) -> None:
    from napari.utils.notifications import notification_manager

    notification_manager.records.clear()
    viewer.add_image(np.full((64, 64), 200, np.float32), contrast_limits=(0, 300))
    dock, widget = viewer.window.add_plugin_dock_widget("sfumato", "Restore")
    widget.model.open(model_file)
    wait(lambda: widget.model.info is not None)
    widget.steps.setValue(500)
    widget.start(whole=True)
    work = widget._running
    wait(lambda: work.done > 0)
    dock.destroyOnClose()
    assert work.is_stopped
    wait(lambda: not widget.is_running, 10)
    viewer.add_image(np.zeros((8, 8)))
    process()
    assert len(viewer.layers) == 2
    assert not notification_manager.records


@needs_display
def test_a_viewer_may_be_closed_while_it_works(model_file: Path) -> None:
    from napari.utils.notifications import notification_manager

    notification_manager.records.clear()
    viewer = napari.Viewer(show=True)
    viewer.add_image(np.full((64, 64), 200, np.float32), contrast_limits=(0, 300))
    widget = opened(viewer, "Restore", model_file)
    widget.steps.setValue(20)
    widget.start(whole=True)
    work = widget._running
    wait(lambda: work.done > 0)
    viewer.close()
    del widget
    wait(lambda: work.is_stopped or work.done == work.total, 60)
    time.sleep(0.2)
    process()
    assert not notification_manager.records


@needs_display
def test_the_model_that_comes_with_the_package_is_offered(viewer: Any) -> None:
    _, widget = viewer.window.add_plugin_dock_widget("sfumato", "Restore")
    choices = widget.model._list
    place = choices.findText("microscopy (comes with sfumato)")
    assert place > 0
    choices.activated.emit(place)
    wait(lambda: widget.model.info is not None)
    assert "90% of pixels inside" in widget.model.card_text


@needs_display
def test_what_a_model_says_of_itself_is_shown_as_plain_text(viewer: Any, model_file: Path, tmp_path: Path) -> None:
    model = sfumato.load(model_file)
    recipe = model.info.recipe.model_copy(update={"name": "<img src='x'>"})
    path = tmp_path / "named.safetensors"
    save_model(path, model.model.state_dict(), dataclasses.replace(model.info, recipe=recipe))
    assert "&lt;img src" in opened(viewer, "Restore", path).model.card_text


@needs_display
def test_a_layer_out_of_view_has_no_preview(viewer: Any, model_file: Path) -> None:
    from napari.utils.notifications import notification_manager

    viewer.add_image(np.full((64, 64), 200, np.float32), contrast_limits=(0, 300), name="away")
    widget = opened(viewer, "Restore", model_file)
    viewer.camera.center = (0, 5000, 5000)
    process()
    viewer.screenshot(flash=False)
    notification_manager.records.clear()
    widget.start(whole=False)
    assert not widget.is_running
    assert "shows nothing of away" in notification_manager.records[-1].message


def test_a_preview_of_a_volume_is_around_the_plane_in_view() -> None:
    from napari.components import ViewerModel

    viewer = ViewerModel()
    layer = viewer.add_image(np.zeros((2, 100, 300, 200), np.uint8), scale=(1, 3, 1, 1))
    viewer.dims.set_point([0, 1], [1, 150])
    frame, corner, size = Source.of(layer, None, 3).visible(layer, viewer.dims, (1, 2, 2))
    assert (frame, size) == (1, (32, 128, 128))
    assert corner == (50 - 16, 2 * (150 - 32), 2 * (100 - 32))


def layer_of(pixels: Any, **settings: Any) -> Any:
    return napari.layers.Image(pixels, **settings)


@pytest.mark.parametrize(
    ("shape", "channel_axis", "ndim", "channels", "expected"),
    [
        ((20, 24), None, 2, 1, (40, 48)),
        ((20, 24), None, 2, 3, (3, 40, 48)),
        ((2, 20, 24), 0, 2, 1, (40, 48)),
        ((2, 20, 24), 0, 2, 3, (3, 40, 48)),
        ((5, 2, 20, 24), 1, 2, 1, (5, 1, 40, 48)),
        ((5, 2, 20, 24), 1, 2, 3, (5, 3, 40, 48)),
        ((2, 5, 20, 24), 0, 2, 1, (5, 40, 48)),
        ((6, 20, 24), None, 3, 1, (12, 40, 48)),
        ((6, 2, 20, 24), 1, 3, 1, (12, 1, 40, 48)),
        ((4, 6, 20, 24), None, 3, 2, (2, 4, 12, 40, 48)),
    ],
)
def test_results_have_the_axes_of_their_layer(
    shape: tuple[int, ...], channel_axis: int | None, ndim: int, channels: int, expected: tuple[int, ...]
) -> None:
    layer = layer_of(np.zeros(shape), scale=range(2, 2 + len(shape)))
    source = Source.of(layer, channel_axis, ndim)
    spatial = [2 * shape[axis] for axis in source.spatial]
    frames = source.image.array.size // int(np.prod([shape[axis] for axis in source.spatial]))
    frames //= 1 if channel_axis is None else shape[channel_axis]
    images = {
        "mean": np.zeros((frames, channels, *spatial), np.float32),
        "samples": np.zeros((7, frames, channels, *spatial), np.float32),
    }
    made = source.layers(images, frames=range(frames), corner=[0] * ndim, factor=[2] * ndim)
    (samples, _), (mean, settings) = made
    assert (mean.shape, samples.shape) == (expected, (7, *expected))
    assert len(settings["scale"]) == mean.ndim
    np.testing.assert_allclose(settings["scale"][-2:], np.asarray(layer.scale)[-2:] / 2)
    for pixels, settings in made:
        layer_of(pixels, **settings)


def test_pixels_stay_where_they_are_in_the_world() -> None:
    """Also on a rotated, sheared and moved layer."""
    affine = np.array([[0.9, 0.1, 3], [-0.2, 1.1, 4], [0, 0, 1]])
    layer = layer_of(np.zeros((20, 24)), scale=(2, 3), translate=(7, -5), rotate=30, shear=[0.2], affine=affine)
    images = {"mean": np.zeros((1, 1, 8, 10), np.float32)}
    ((pixels, settings),) = Source.of(layer, None, 2).layers(images, frames=[0], corner=(6, 4), factor=(2, 2))
    made = layer_of(pixels, **settings)
    np.testing.assert_allclose(made.scale, (1, 1.5))
    for fine in ((0, 0), (3, 7)):
        coarse = [(c + f + 0.5) / 2 - 0.5 for c, f in zip((6, 4), fine, strict=True)]
        np.testing.assert_allclose(made.data_to_world(fine), layer.data_to_world(coarse))


def test_colours_are_channels() -> None:
    layer = layer_of(np.zeros((20, 24, 3), np.uint8), rgb=True)
    source = Source.of(layer, 2, 2)
    assert source.image.axes == "YXC"
    images = {"mean": np.zeros((1, 3, 20, 24), np.float32)}
    ((pixels, settings),) = source.layers(images, frames=[0], corner=(0, 0), factor=(1, 1))
    assert pixels.shape == (3, 20, 24)
    layer_of(pixels, **settings)


def test_too_many_axes_are_refused() -> None:
    layer = layer_of(np.zeros((1, 1, 1, 1, 8, 8)))
    with pytest.raises(sfumato.system.errors.ImageError, match="has 6 axes"):
        Source.of(layer, None, 2)


@pytest.mark.parametrize("top", [1e-3, 0.3, 1, 7.3, 19.9, 20, 21, 99, 100.1])
def test_ticks_are_few_and_reach_the_top(top: float) -> None:
    from sfumato.napari_plugin.curves import ticks

    marks = ticks(top)
    assert 3 <= len(marks) <= 6
    assert marks[-1] >= top * (1 - 1e-6)
    assert marks[-2] < top


@pytest.mark.parametrize(("low", "top"), [(-1.63, -1.2), (-0.4, 0.3), (-30, 2)])
def test_ticks_include_what_is_below_zero(low: float, top: float) -> None:
    from sfumato.napari_plugin.curves import ticks

    marks = ticks(max(top, 0.0), low)
    assert 3 <= len(marks) <= 7
    assert marks[0] <= low
    assert marks[-1] >= top
    assert 0.0 in marks
