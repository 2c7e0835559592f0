"""The dock widget that draws the learned schedule at the pixel under the cursor."""

import functools
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QVBoxLayout, QWidget

from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.curves import COLOURS, Curve, CurvePlot
from sfumato.napari_plugin.layers import Source
from sfumato.napari_plugin.panel import boxed, wrapped
from sfumato.napari_plugin.pickers import LayerPicker, ModelPicker, load_model
from sfumato.system.errors import SfumatoError

if TYPE_CHECKING:
    from napari.viewer import Viewer

__all__ = ["ScheduleWidget"]

_SIDE = {2: 128, 3: 32}
"""Side of the regions whose rates are computed at once and kept; the next pixel is usually in the same region."""
_MOST_REGIONS = 64
_WAIT_MS = 30
_HINT = "pick a model and a layer, then move the cursor over the image"


class _Pixel(NamedTuple):
    """A pixel of the restored grid, and the region around it whose rates are computed together."""

    region: tuple[Any, ...]
    """What the rates depend on: model, layer, its pixels, channel axis, frame and corner."""
    size: tuple[int, ...]
    inside: tuple[int, ...]
    """Position of the pixel in the region."""
    place: tuple[int, ...]
    """Position of the pixel in the frame."""


class ScheduleWidget(QWidget):
    """Shows beta and gamma against time, for the pixel under the cursor and the region around it.

    Args:
        napari_viewer: Provided by napari.
    """

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        self._viewer = napari_viewer
        self.model, self.layer = ModelPicker(is_small=True), LayerPicker(napari_viewer, follows=True)
        self.beta, self.gamma = CurvePlot("β(t): how fast noise enters"), CurvePlot("γ(t): signal that is left")  # noqa: RUF001
        self.text = wrapped(_HINT)
        self._known: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._running: Background | None = None
        self._failed: tuple[Any, ...] | None = None
        column = QVBoxLayout(self)
        for title, content in (("Model", self.model), ("Image", self.layer)):
            column.addWidget(boxed(title, content))
        column.addWidget(self.text)
        column.addWidget(self.beta, 1)
        column.addWidget(self.gamma, 1)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(_WAIT_MS)
        self._wait.timeout.connect(self._follow)
        napari_viewer.cursor.events.position.connect(self._moved)
        self.model.changed.connect(self._moved)
        self.layer.changed.connect(self._moved)

    def _moved(self, event: Any = None) -> None:
        """Follow the cursor, skipping positions it only passes."""
        if not self._wait.isActive():
            self._wait.start()

    def _follow(self) -> None:
        found = self._pixel()
        if found is None:
            return
        pixel, source, path = found
        schedule = self._known.get(pixel.region)
        if schedule is not None:
            self._known.move_to_end(pixel.region)
            self._draw(pixel, schedule)
        elif self._running is None and self._failed != pixel.region:
            work = functools.partial(_schedule, pixel=pixel, source=source, path=path)
            self._failed = pixel.region  # until it is computed
            self._running = Background(
                work, returned=functools.partial(self._keep, pixel.region), finished=self._finish
            )

    def _pixel(self) -> tuple[_Pixel, Source, Path] | None:
        """The pixel under the cursor, its image and the model file; None if there is nothing to show."""
        layer, info, path = self.layer.layer, self.model.info, self.model.path
        if layer is None or info is None or path is None:
            self.text.setText(_HINT)
            return None
        ndim = info.recipe.model.ndim
        try:
            source = Source.of(layer, self.layer.channel_axis, ndim)
        except SfumatoError as error:
            self.text.setText(str(error))
            return None
        here = source.place_of(layer, self._viewer.cursor.position)
        place, corner, size = [], [], []
        for axis, finer in zip(source.spatial, info.factor or (1,) * ndim, strict=True):
            length, side = source.image.shape[axis] * finer, _SIDE[ndim]
            place.append(here[axis] * finer + finer // 2)
            if not 0 <= place[-1] < length:
                return None  # the cursor is outside
            corner.append(place[-1] // side * side)
            size.append(min(side, length - corner[-1]))
        region = (path, id(layer), id(layer.data), self.layer.channel_axis, source.frame_of(here), tuple(corner))
        inside = tuple(p - c for p, c in zip(place, corner, strict=True))
        return _Pixel(region, tuple(size), inside, tuple(place)), source, path

    def _keep(self, region: tuple[Any, ...], schedule: Any) -> None:
        self._known[region] = schedule
        self._failed = None
        while len(self._known) > _MOST_REGIONS:
            self._known.popitem(last=False)

    def _finish(self) -> None:
        self._running = None
        self._moved()  # the cursor may have moved meanwhile

    def _draw(self, pixel: _Pixel, schedule: Any) -> None:
        from sfumato.restoration.schedule_map import curves_at

        times, beta, gamma = curves_at(schedule, pixel.inside)
        _, mean_beta, mean_gamma = curves_at(schedule, None)
        rates = schedule.rate[(0, slice(None), *pixel.inside)].tolist()
        several = len(rates) > 1
        for plot, here, mean in ((self.beta, beta, mean_beta), (self.gamma, gamma, mean_gamma)):
            around = Curve("mean rate around", times, mean.mean(1), None, dashed=True)
            of_channels = [
                Curve(f"channel {i}" if several else "this pixel", times, here[:, i], COLOURS[i])
                for i in range(min(len(rates), len(COLOURS)))
            ]
            plot.show_curves([*of_channels, around])
        at = ", ".join(map(str, pixel.place))
        self.text.setText(f"restored pixel ({at}): rate λ = {', '.join(f'{rate:.3g}' for rate in rates)}")


def _schedule(work: Background, *, pixel: _Pixel, source: Source, path: Path) -> Any:
    """In the thread: compute the schedule of the region, on the CPU."""
    from sfumato.restoration.conditions import Measured
    from sfumato.restoration.schedule_map import schedule_of

    model = load_model(path, "cpu", "schedule")
    *_, frame, corner = pixel.region
    return schedule_of(Measured(source.image, model), model, frame, corner, pixel.size)
