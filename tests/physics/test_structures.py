"""Specimens: drawn the same at any pixel size, as dense as they say, with the geometry of what they stand for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import Voronoi
from torch import Tensor

from sfumato.physics import camera, optics, rendering, structures
from sfumato.physics.rendering import Emitters

FIELD_UM = (6.0, 8.0)
WIDEFIELD = optics.cutoff_frequency(1.35, 0.525)
SIM = optics.cutoff_frequency(1.35, 0.525, extension=optics.SIM_EXTENSION)
NAMES = list(structures.STRUCTURES)


def inside(emitters: Emitters, field_um: tuple[float, float] = FIELD_UM) -> Emitters:
    here = ((emitters.positions_um >= 0) & (emitters.positions_um < torch.tensor(field_um))).all(-1)
    return Emitters(emitters.positions_um[here], emitters.brightness[here])


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    pixel_um=st.floats(0.02, 1.0),
    margin=st.integers(0, 4),
)
@settings(deadline=None, max_examples=40)
def test_density_keeps_brightness_and_its_centre(shape: tuple[int, int], pixel_um: float, margin: int) -> None:
    generator = torch.Generator().manual_seed(0)
    sides = torch.tensor(shape, dtype=torch.float64) * pixel_um
    # Half a pixel from the edge and further in, all of a point's light falls on the image.
    places = pixel_um / 2 + (sides - pixel_um) * torch.rand(30, 2, generator=generator, dtype=torch.float64)
    brightness = torch.rand(30, generator=generator, dtype=torch.float64)
    image = rendering.density(Emitters(places, brightness), shape, pixel_um=pixel_um, margin=margin)
    assert image.shape == (shape[0] + 2 * margin, shape[1] + 2 * margin)
    torch.testing.assert_close(image.sum(), brightness.sum())
    rows = (torch.arange(image.shape[0], dtype=torch.float64) - margin + 0.5) * pixel_um
    torch.testing.assert_close((image.sum(1) * rows).sum(), (brightness * places[:, 0]).sum())


@pytest.mark.parametrize(("pixel_um", "cutoff"), [(0.0313, SIM), (0.0626, WIDEFIELD), (0.11, WIDEFIELD)])
def test_a_point_renders_as_the_airy_pattern_over_pixels(pixel_um: float, cutoff: float) -> None:
    """Against the PSF on pixels 15 times as fine, summed over each pixel."""
    place = torch.tensor([[15.5 * pixel_um, 17.5 * pixel_um]], dtype=torch.float64)
    image = rendering.render(
        Emitters(place, torch.ones(1, dtype=torch.float64)), (31, 35), pixel_um=pixel_um, cutoff=cutoff
    )
    fine = optics.psf(torch.zeros(61 * 15, 61 * 15, dtype=torch.float64), cutoff=cutoff, pixel_um=pixel_um / 15)
    expected = camera.bin_pixels(fine, 15)[15:46, 13:48]
    assert float((image - expected).abs().max()) < 0.01 * float(expected.max())


@pytest.mark.parametrize("name", NAMES)
def test_one_specimen_at_two_pixel_sizes(name: str) -> None:
    """Pixels twice as large hold the light of four."""
    emitters = structures.STRUCTURES[name](FIELD_UM, seed=0)
    fine = rendering.render(emitters, (192, 256), pixel_um=0.03125, cutoff=WIDEFIELD, oversampling=2)
    coarse = rendering.render(emitters, (96, 128), pixel_um=0.0625, cutoff=WIDEFIELD, oversampling=4)
    torch.testing.assert_close(camera.bin_pixels(fine, 2), coarse, rtol=0, atol=1e-4 * float(coarse.max()))
    assert float(fine.min()) > -1e-6 * float(fine.max())


@pytest.mark.parametrize("name", NAMES)
def test_renderings_end_at_the_cutoff(name: str) -> None:
    """Under a smooth window the spectrum beyond the cut-off is a millionth of that below it; the truth's is not."""
    emitters = structures.STRUCTURES[name](FIELD_UM, seed=1)
    image = rendering.render(emitters, (192, 256), pixel_um=0.03125, cutoff=WIDEFIELD)
    truth = rendering.density(emitters, (192, 256), pixel_um=0.03125)

    def share_beyond(picture: Tensor) -> float:
        window = [torch.hann_window(size, dtype=torch.float64) for size in picture.shape]
        power = torch.fft.rfft2(picture * window[0][:, None] * window[1]).abs().square()
        rows = torch.fft.fftfreq(192, 0.03125)[:, None]
        radius = (rows.square() + torch.fft.rfftfreq(256, 0.03125).square()).sqrt()
        power[0, 0] = 0
        return float(power[radius > 1.1 * WIDEFIELD].sum() / power.sum())

    assert share_beyond(image) < 1e-6
    assert share_beyond(truth) > 0.05


@pytest.mark.parametrize("name", NAMES)
def test_seeds_decide_and_global_state_does_not(name: str) -> None:
    structure = structures.STRUCTURES[name]
    first = structure(FIELD_UM, seed=3)
    torch.rand(5)
    again, other = structure(FIELD_UM, seed=3), structure(FIELD_UM, seed=4)
    assert torch.equal(first.positions_um, again.positions_um)
    assert torch.equal(first.brightness, again.brightness)
    assert not torch.equal(first.positions_um[:50], other.positions_um[:50])
    assert first.brightness.min() >= 0


@given(name=st.sampled_from(NAMES), height=st.floats(3, 9), width=st.floats(3, 9), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=25)
def test_any_field_is_filled_beyond_its_borders(name: str, height: float, width: float, seed: int) -> None:
    emitters = structures.STRUCTURES[name]((height, width), seed=seed)
    assert emitters.positions_um.isfinite().all()
    assert emitters.brightness.isfinite().all()
    assert inside(emitters, (height, width)).brightness.sum() > 0
    assert (emitters.positions_um < 0).any()


@pytest.mark.parametrize(("name", "per_um2"), [("microtubules", 1.7), ("f_actin", 16.0)])
def test_filaments_are_as_long_as_stated(name: str, per_um2: float) -> None:
    """Points are 8 nm apart, so their number is a length; its mean over seeds lies within a quarter."""
    lengths = [
        0.008 * len(inside(structures.STRUCTURES[name](FIELD_UM, seed=seed)).brightness) / (6 * 8) for seed in range(12)
    ]
    assert np.mean(lengths) == pytest.approx(per_um2, rel=0.25)


def test_pits_are_rings_that_sim_resolves_and_widefield_does_not() -> None:
    """The mean image of the larger pits, cut out around their centres: a dark middle in SIM, none in widefield."""
    emitters = structures.coated_pits((12.0, 12.0), seed=0)
    pits = emitters.positions_um.reshape(-1, 240, 2)
    centres, radii = pits.mean(1), (pits - pits.mean(1, keepdim=True)).norm(dim=-1).amax(1)
    assert 0.04 < float(radii.min()) < float(radii.max()) < 0.16
    distances = torch.cdist(centres, centres) + torch.eye(len(centres)) * 9
    assert float(distances.min()) > 0.15
    large = centres[radii > 0.1]
    shifted = [Emitters(emitters.positions_um - centre + 0.5, emitters.brightness) for centre in large]
    for cutoff, dark in ((SIM, True), (WIDEFIELD, False)):
        profile = torch.stack(
            [rendering.render(one, (31, 31), pixel_um=1 / 31, cutoff=cutoff) for one in shifted]
        ).mean(0)[15]
        assert bool(profile[15] < 0.95 * profile.max()) == dark


def test_voronoi_edges_against_scipy() -> None:
    sites = 10 * torch.rand(150, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = structures._voronoi_edges(sites, reach_um=4.0)
    diagram = Voronoi(sites.numpy())
    theirs = np.array([diagram.vertices[edge] for edge in diagram.ridge_vertices if min(edge) >= 0])
    for edges, others in ((ours.numpy(), theirs), (theirs, ours.numpy())):
        middles, lengths = edges.mean(1), np.linalg.norm(edges[:, 1] - edges[:, 0], axis=-1)
        # Away from the border of the sites, where edges are long or endless.
        here = (np.abs(middles - 5) < 3.5).all(-1)
        distance = np.linalg.norm(others.mean(1)[:, None] - middles[here], axis=-1)
        assert distance.min(0).max() < 1e-9
        found = np.linalg.norm(others[:, 1] - others[:, 0], axis=-1)[distance.argmin(0)]
        np.testing.assert_allclose(found, lengths[here], atol=1e-9)


def test_gradients_reach_brightness_and_places() -> None:
    generator = torch.Generator().manual_seed(0)
    places = (0.1 + 0.3 * torch.rand(3, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    brightness = torch.rand(3, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *parts: rendering.render(Emitters(*parts), (5, 6), pixel_um=0.1, cutoff=4.0), (places, brightness)
    )


def test_an_impossible_field_is_refused() -> None:
    with pytest.raises(ValueError, match="height and a width"):
        structures.f_actin((0, 4), seed=0)
