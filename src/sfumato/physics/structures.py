r"""Draw synthetic specimens with known truth: the four structures of the BioSR data set.

Each function draws one field from a seed, as points in micrometres (:class:`sfumato.physics.rendering.Emitters`), which
can be rendered at any size and resolution. Sizes follow the literature: coated pits are shells 100 to 230 nm across;
the endoplasmic reticulum is a net of tubules with three-way junctions, 1 to 2 um apart; microtubules are long and
smoothly bent; F-actin is a dense mesh of gently bent filaments, some in bundles.

BioSR is described in Qiao et al., "Evaluation and development of deep neural networks for image super-resolution in
optical microscopy", Nature Methods 18, 194 (2021).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.physics.rendering import MARGIN_UM, Emitters

__all__ = ["STRUCTURES", "coated_pits", "endoplasmic_reticulum", "f_actin", "microtubules"]

_SPACING_UM = 0.008
"""Distance between points along a filament: far below the resolution of these microscopes."""

_NUM_NEIGHBOURS = 48
"""Number of nearest sites searched for a Voronoi cell's neighbours: several times the number of its sides."""


def coated_pits(field_um: tuple[float, float], *, seed: int, per_um2: float = 1.5) -> Emitters:
    """Draw clathrin-coated pits: round shells seen from below, so that the larger ones look like rings.

    Args:
        field_um: Height and width.
        seed: Decides everything.
        per_um2: Mean number of pits per square micrometre, over crowded and bare regions; a tiny field may have none.
    """
    draw = _Draw(seed, field_um)
    centres = draw.thinned(draw.places(per_um2 * 2), scale_um=2.0)
    # Pits repel: of two that overlap, the later one is removed.
    near = torch.cdist(centres, centres) < 0.22
    centres = centres[~near.tril(-1).any(1)]
    num_pits, num_points = len(centres), 240
    radius = 0.05 + 0.065 * draw.uniform(num_pits, 1)
    # Points on the lower part of a sphere; the further a pit has closed, the more of the sphere there is.
    closed = 0.35 + 0.6 * draw.uniform(num_pits, 1)
    height = 1 - 2 * closed * draw.uniform(num_pits, num_points)
    angle = 2 * math.pi * draw.uniform(num_pits, num_points)
    outward = radius * (1 - height.square()).clamp_min(0).sqrt()
    squeeze = 1 + 0.1 * draw.normal(num_pits, 1)
    offset = torch.stack([outward * angle.sin() * squeeze, outward * angle.cos() / squeeze], -1)
    strength = radius.square() * (0.35 * draw.normal(num_pits, 1)).exp() * 100
    # Clathrin comes in triskelia: a coat is not evenly labelled around its rim.
    lobes = 1 + 0.35 * draw.uniform(num_pits, 1) * (angle + 6 * draw.uniform(num_pits, 1)).cos()
    return _emitters(centres[:, None] + offset, strength * lobes / num_points)


def microtubules(field_um: tuple[float, float], *, seed: int, um_per_um2: float = 1.7) -> Emitters:
    """Draw microtubules: long, of nearly even brightness, with slow bends and small swings.

    Args:
        field_um: Height and width.
        seed: Decides everything.
        um_per_um2: Mean length per area.
    """
    draw = _Draw(seed, field_um)
    length_um = 2 * max(draw.sides.tolist())
    # Filaments are longer than the field, so that few end within it; about half of each lies outside.
    number = max(3, round(um_per_um2 * draw.area / (0.5 * length_um)))
    centres = draw.sides * draw.uniform(number, 2) - MARGIN_UM
    # Most run from the same side of the cell.
    heading = math.pi * draw.uniform(1) + 0.7 * draw.normal(number)
    # Motors push them about: they swing within a micrometre as well as bend over several.
    paths = draw.filaments(centres, heading, length_um, bend=0.45, over_um=1.0, swing=0.25)
    strength = (0.15 * draw.normal(number, 1)).exp()
    return _emitters(paths, strength * draw.labels(paths, patch_um=0.06, spread=0.35))


def f_actin(field_um: tuple[float, float], *, seed: int, um_per_um2: float = 16.0) -> Emitters:
    """Draw F-actin: a dense mesh of thin, gently bent filaments of unequal brightness, with bundles.

    Args:
        field_um: Height and width.
        seed: Decides everything.
        um_per_um2: Mean length per area.
    """
    draw = _Draw(seed, field_um)
    length_um = 6.0
    number = max(8, round(um_per_um2 * draw.area / length_um))
    leading = math.pi * draw.uniform(1)
    # A bundle is a group of parallel filaments, side by side.
    num_bundles = max(1, number // 40)
    bundle = (draw.uniform(number) * 5 * num_bundles).long()
    bundled = bundle < num_bundles
    homes = draw.sides * draw.uniform(num_bundles, 2) - MARGIN_UM
    headings = leading + 0.5 * draw.normal(num_bundles)
    own = torch.where(draw.uniform(number) < 0.5, leading + 0.45 * draw.normal(number), math.pi * draw.uniform(number))
    member = bundle.clamp_max(num_bundles - 1)
    heading = torch.where(bundled, headings[member] + 0.06 * draw.normal(number), own)
    scattered = draw.sides * draw.uniform(number, 2) - MARGIN_UM
    centres = torch.where(bundled[:, None], homes[member] + 0.25 * draw.normal(number, 2), scattered)
    paths = draw.filaments(centres, heading, length_um, bend=0.45, over_um=0.9)
    strength = (0.55 * draw.normal(number, 1)).exp()
    fading = draw.smooth(paths, scale_um=2.0, spread=0.3)
    return _emitters(paths, strength * fading * draw.labels(paths, patch_um=0.05, spread=0.4))


def endoplasmic_reticulum(field_um: tuple[float, float], *, seed: int, mesh_um: float = 1.1) -> Emitters:
    """Draw endoplasmic reticulum: tubules between three-way junctions, some loose ends, and small sheets.

    Junctions and tubules are the vertices and bent edges of a Voronoi diagram.

    Args:
        field_um: Height and width.
        seed: Decides everything.
        mesh_um: Mean distance between neighbouring meshes.
    """
    draw = _Draw(seed, field_um, margin_um=MARGIN_UM + 2 * mesh_um)
    # Mesh sizes vary over the field.
    sites = draw.thinned(draw.places(2 / mesh_um**2), scale_um=1.2 * mesh_um)
    ends = _voronoi_edges(sites, reach_um=4 * mesh_um)
    ends = ends[draw.uniform(len(ends)) < 0.86]
    number, num_points = len(ends), max(2, round(3 * mesh_um / _SPACING_UM))
    along = torch.linspace(0, 1, num_points, dtype=torch.float64)
    chord = ends[:, 1] - ends[:, 0]
    span = chord.norm(dim=-1, keepdim=True)
    # Tubules sway between their junctions, which stay where they are.
    sway = sum(
        (0.08 / wave**1.5 * span * draw.normal(number, 1) * (math.pi * wave * along).sin() for wave in (1, 2, 3, 4)),
        start=torch.zeros(number, num_points, dtype=torch.float64),
    )
    across = torch.stack([-chord[:, 1], chord[:, 0]], -1) / span.clamp_min(1e-9)
    middle = ends[:, :1] + along[:, None] * chord[:, None] + sway[..., None] * across[:, None]
    # A tube about 50 nm wide at half its height, and wider at its junctions.
    flare = (-(torch.minimum(along, 1 - along) * span / 0.12)).exp()
    paths = middle + (0.022 + 0.03 * flare)[..., None] * draw.normal(number, num_points, 2)
    strength = span / num_points * (0.3 * draw.normal(number, 1)).exp() * (1 + 0.7 * flare)
    # Membrane proteins gather: tubules look beaded as well as unequally bright.
    uneven = draw.smooth(paths, scale_um=0.3, spread=0.35) * draw.smooth(middle, scale_um=0.05, spread=0.45)
    tubules = _emitters(paths, 60 * strength * uneven)
    sheets = _sheets(draw, sites, share=0.05, reach_um=1.3 * mesh_um)
    return Emitters(*(torch.cat(parts) for parts in zip(tubules, sheets, strict=True)))


STRUCTURES: dict[str, Callable[..., Emitters]] = {
    "coated_pits": coated_pits,
    "endoplasmic_reticulum": endoplasmic_reticulum,
    "microtubules": microtubules,
    "f_actin": f_actin,
}
"""The structures by name; each takes ``field_um`` and ``seed``."""


class _Draw:
    """Draws random numbers and shapes from one seed, over a field with a margin, in float64 on the CPU."""

    def __init__(self, seed: int, field_um: tuple[float, float], margin_um: float = MARGIN_UM) -> None:
        if min(field_um) <= 0:
            raise ValueError(f"field_um is {field_um}; give a height and a width in micrometres, above 0")
        self._generator = torch.Generator().manual_seed(seed)
        self.margin_um = margin_um
        self.sides = torch.tensor(field_um, dtype=torch.float64) + 2 * margin_um
        self.area = float(self.sides.prod())

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, dtype=torch.float64)

    def places(self, per_um2: float) -> Tensor:
        """Draw uniformly random positions, (N, 2), from -margin to field + margin."""
        return self.sides * self.uniform(max(4, round(per_um2 * self.area)), 2) - self.margin_um

    def thinned(self, places: Tensor, scale_um: float) -> Tensor:
        """Keep about half of the positions, more in some regions than in others."""
        crowding = self.smooth(places, scale_um=scale_um, spread=0.5)
        return places[self.uniform(len(places)) < 0.5 * crowding]

    def smooth(self, places: Tensor, *, scale_um: float, spread: float) -> Tensor:
        """A positive random function of position, mean about 1, that varies over ``scale_um``: (..., 2) to (...)."""
        waves = self.normal(12, 2) / scale_um
        phases = 2 * math.pi * self.uniform(12)
        field = (places @ waves.T + phases).cos().sum(-1) * math.sqrt(2 / 12)
        return (spread * field - spread**2 / 2).exp()

    def labels(self, paths: Tensor, *, patch_um: float, spread: float) -> Tensor:
        """Uneven labelling along filaments, (N, P, 2) to (N, P): patches with more or fewer dyes, mean 1."""
        number, num_points = paths.shape[:2]
        repeat = max(1, round(patch_um / _SPACING_UM))
        patches = 1 + spread * self.normal(number, -(-num_points // repeat))
        return patches.clamp_min(0).repeat_interleave(repeat, 1)[:, :num_points] * _SPACING_UM

    def filaments(
        self, centres: Tensor, heading: Tensor, length_um: float, *, bend: float, over_um: float, swing: float = 0.0
    ) -> Tensor:
        """Draw smooth paths through centres, (N, P, 2).

        Their curvature is noise of ``bend`` per um that varies over ``over_um``; in addition, their heading swings by
        ``swing`` rad over a third of that length.
        """
        num_points = max(2, round(length_um / _SPACING_UM))

        def noise(scale_um: float) -> Tensor:
            knots = self.normal(len(centres), 1, max(2, math.ceil(length_um / scale_um)) + 1)
            return torch.nn.functional.interpolate(knots, num_points, mode="linear", align_corners=True)[:, 0]

        turned = (bend * noise(over_um) * _SPACING_UM).cumsum(1)
        direction = heading[:, None] + turned - turned[:, num_points // 2, None]
        if swing > 0:
            direction = direction + swing * noise(over_um / 3)
        path = _SPACING_UM * torch.stack([direction.sin(), direction.cos()], -1).cumsum(1)
        return centres[:, None] + path - path[:, num_points // 2, None]


def _emitters(positions_um: Tensor, brightness: Tensor) -> Emitters:
    return Emitters(positions_um.reshape(-1, 2), brightness.expand(positions_um.shape[:-1]).reshape(-1))


def _sheets(draw: _Draw, sites: Tensor, *, share: float, reach_um: float) -> Emitters:
    """Draw points that fill the Voronoi cells of a share of the sites, up to ``reach_um`` from each."""
    filled = sites[draw.uniform(len(sites)) < share]
    nearest = sites[torch.cdist(filled, sites).topk(min(_NUM_NEIGHBOURS + 1, len(sites)), largest=False).indices]
    num_points = round(1500 * (2 * reach_um) ** 2)
    points = filled[:, None] + reach_um * (2 * draw.uniform(len(filled), num_points, 2) - 1)
    inside = points[torch.cdist(points, nearest).argmin(-1) == 0]
    return Emitters(inside, torch.full((len(inside),), 0.04, dtype=torch.float64))


def _voronoi_edges(sites: Tensor, reach_um: float) -> Tensor:
    """Find the edges of the Voronoi cells, as pairs of end points (E, 2, 2), none longer than 2 ``reach_um``.

    On the line halfway between two sites, the point at t is nearer to a third site k than to them where a linear
    function of t is negative; the edge is the part of the line that remains for all k.
    """
    neighbours = torch.cdist(sites, sites).topk(min(_NUM_NEIGHBOURS + 1, len(sites)), largest=False).indices[:, 1:]
    first = torch.arange(len(sites))[:, None].expand_as(neighbours)
    kept = first < neighbours
    i, j, others = first[kept], neighbours[kept], neighbours[first[kept]]
    middle, gap = (sites[i] + sites[j]) / 2, sites[j] - sites[i]
    along = torch.stack([-gap[:, 1], gap[:, 0]], -1) / gap.norm(dim=-1, keepdim=True)
    # |p - k|^2 >= |p - i|^2 with p = middle + t along is  slope t <= room.
    away = sites[others] - sites[i][:, None]
    slope = 2 * (away * along[:, None]).sum(-1)
    room = sites[others].square().sum(-1) - sites[i].square().sum(-1)[:, None] - 2 * (away * middle[:, None]).sum(-1)
    itself = others == j[:, None]
    limit = torch.where(itself, torch.inf, room / slope)
    upper = torch.where(slope > 0, limit, torch.inf).amin(1).clamp_max(reach_um)
    lower = torch.where((slope < 0) & ~itself, limit, -torch.inf).amax(1).clamp_min(-reach_um)
    ends = torch.stack([middle + lower[:, None] * along, middle + upper[:, None] * along], 1)
    return ends[upper > lower]
