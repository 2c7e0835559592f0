"""Models of a user's own networks: stored, loaded, measured, tiled, and refused where they cannot work."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sfumato
from networks import seeded
from sfumato import CVDM, LearnedSchedule
from sfumato.data.normalize import Normalization
from sfumato.diffusion.schedule import CosineSchedule
from sfumato.models.measure_network import measure_network
from sfumato.models.model_file import LoadedModel, inspect_model
from sfumato.models.model_updates import set_sampling
from sfumato.models.own_model import own_model
from sfumato.models.recipe import SampleRecipe
from sfumato.nn import UNet
from sfumato.system.errors import ModelFileError


class Dilated(nn.Sequential):
    def __init__(self, channels_in: int, channels_out: int, width: int = 4) -> None:
        wide = nn.Conv2d(width, width, 3, padding=4, dilation=4)
        super().__init__(
            nn.Conv2d(channels_in, width, 3, padding=1), nn.SiLU(), wide, nn.Conv2d(width, channels_out, 1)
        )


class Other(Dilated):
    pass


def model(**options: Any) -> CVDM:
    """A condition of two channels."""
    return seeded(lambda: CVDM(LearnedSchedule(Dilated(2, 1)), Dilated(4, 1), **options))


def image(side: int = 40) -> Any:
    return np.random.default_rng(0).standard_normal((2, side, side)).astype(np.float32)


def restored(of: LoadedModel | CVDM, **options: Any) -> Any:
    return sfumato.restore(image(options.pop("side", 40)), of, num_samples=2, num_steps=2, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.safetensors"


def test_a_stored_model_restores_the_same(path: Path) -> None:
    condition, target = Normalization((1.0, 0.0), (2.0, 1.0)), Normalization((5.0,), (3.0,))
    sample = SampleRecipe(steps=3, eta=0.5)
    own = own_model(model(scale=0.25), condition=condition, target=target, sample=sample, name="holes")
    sfumato.save(path, own)
    loaded = sfumato.load(path, network=Dilated)
    assert loaded.info == own.info
    assert (loaded.info.recipe.name, loaded.info.recipe.sample) == ("holes", sample)
    assert loaded.info.target == target
    np.testing.assert_array_equal(restored(loaded).mean, restored(own).mean)
    np.testing.assert_array_equal(restored(loaded).std, restored(own).std)


def test_the_settings_of_model_and_schedule_are_kept(path: Path) -> None:
    schedule = seeded(lambda: LearnedSchedule(Dilated(2, 1), rate_min=3.0, rate_max=30.0, rate_init=11.0))
    mean = seeded(lambda: Dilated(2, 1))
    made = CVDM(schedule, seeded(lambda: Dilated(5, 1)), mean_network=mean, predicts="noise")
    sfumato.save(path, made)
    loaded = sfumato.load(path, network=Dilated)
    np.testing.assert_array_equal(restored(loaded).mean, restored(made).mean)
    assert loaded.model.predicts == "noise"


def test_a_bare_model_takes_images_as_its_networks_do() -> None:
    same = own_model(model(), condition=Normalization((0.0, 0.0), (1.0, 1.0)))
    np.testing.assert_array_equal(restored(model()).mean, restored(same).mean)
    with pytest.raises(ModelFileError, match="a bare CVDM"):
        restored(same.model)  # its units would be lost


class Noisier(nn.Module):
    """A schedule of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.slope, self.inner = 2.0, CosineSchedule()

    def forward(self, condition: Tensor) -> Any:
        return self.inner(condition)


@pytest.mark.parametrize(
    "build",
    [
        lambda: CVDM(Noisier(), Dilated(4, 1)),
        lambda: CVDM(LearnedSchedule(UNet(2, 1, base=4, num_scales=2, norm="channel")), Dilated(4, 1)),
        lambda: CVDM(CosineSchedule(), Dilated(5, 1), mean_network=Other(2, 1)),
    ],
    ids=["schedule", "U-Net beside", "two classes"],
)
def test_several_classes_are_given_as_the_model(build: Any, path: Path) -> None:
    made = seeded(build)
    sfumato.save(path, made)
    with pytest.raises(ModelFileError, match=r"build the CVDM as it was.*network=model"):
        sfumato.load(path, network=Dilated)
    again: Any = build()
    loaded = sfumato.load(path, network=again)
    np.testing.assert_array_equal(restored(loaded).mean, restored(made).mean)
    stored: Any = loaded.model.network
    assert not torch.equal(again.network[0].weight, stored[0].weight), "what was given stays as it was"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, r"class Dilated.*no code.*sfumato\.load\(path, network=Dilated\)"),
        (Other, "network is Other, and in the file Dilated"),
        (
            functools.partial(Dilated, width=8),
            r"network.0.weight' is \[4, 2, 3, 3\] float32 instead of \[8, 2",
        ),
        (nn.Identity(), r"cannot be called with \(2, 1\), the channels in and out"),
        (CVDM(LearnedSchedule(Dilated(2, 1), rate_min=4.0), Dilated(4, 1)), "rate_min is 4.0, and in the file 8.0"),
        (model(predicts="noise"), "predicts is noise, and in the file velocity"),
    ],
    ids=["nothing", "another class", "other options", "no class", "another schedule", "another use"],
)
def test_another_network_is_refused(given: Any, said: str, path: Path) -> None:
    sfumato.save(path, model())
    with pytest.raises(ModelFileError, match=said):
        sfumato.load(path, network=given)


def test_a_network_given_for_a_recipe_is_refused(tmp_path: Path) -> None:
    from untrained_models import write_model

    with pytest.raises(ModelFileError, match="recipe that describes its networks"):
        sfumato.load(write_model(tmp_path / "model.safetensors"), network=Dilated)


def test_the_command_line_names_the_class(path: Path, tmp_path: Path) -> None:
    sfumato.save(path, model())
    np.save(tmp_path / "image.npy", image())
    places = [str(path), str(tmp_path / "image.npy"), str(tmp_path / "out.npy")]
    command = [sys.executable, "-m", "sfumato", "restore", *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "Traceback" not in told
    assert "class Dilated" in told
    assert "sfumato.load(path, network=Dilated)" in told


def test_a_file_can_be_read_and_changed_without_the_class(path: Path) -> None:
    sfumato.save(path, own_model(model(), name="holes"))
    assert inspect_model(path).recipe.name == "holes"
    set_sampling(path, SampleRecipe(steps=5))
    assert sfumato.load(path, network=Dilated).info.recipe.sample.steps == 5


def test_what_a_file_says_of_networks_is_checked(path: Path) -> None:
    sfumato.save(path, model())
    text = path.read_bytes()
    for name, value, said in (("reach", 10**6, "reach is 1000000"), ("kind", "a\nb", "expected two names")):
        length = int.from_bytes(text[:8], "little")
        header = json.loads(text[8 : 8 + length])
        held = json.loads(header["__metadata__"]["sfumato"])
        held["own"]["parts"][1][name] = value
        header["__metadata__"]["sfumato"] = json.dumps(held)
        changed = json.dumps(header).encode()
        path.write_bytes(len(changed).to_bytes(8, "little") + changed + text[8 + length :])
        with pytest.raises(ModelFileError, match=said):
            inspect_model(path)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (nn.Conv2d(2, 1, 1), (0, 1)),
        (nn.Conv2d(2, 1, 5, padding=2), (2, 1)),
        (Dilated(2, 1), (5, 1)),
        (nn.Sequential(*[nn.Conv2d(2, 2, 3, padding=20, dilation=20) for _ in range(4)]), (80, 1)),
        (nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(2, 1, 1), nn.Upsample(scale_factor=4)), (6, 4)),
        (nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.GroupNorm(1, 2)), (None, 1)),
    ],
    ids=["pixel", "five", "dilated", "far", "pooling", "whole image"],
)
def test_reach_and_stride_are_measured(network: nn.Module, expected: tuple[int | None, int]) -> None:
    """Of pooling: a block of 4 pixels, of which a pixel at its end sees 3 others; 3 more for any place on the grid."""
    assert measure_network(network.eval(), 2, 2) == expected


def test_volumes_are_measured() -> None:
    assert measure_network(nn.Conv3d(1, 1, 5, padding=2), 1, 3) == (2, 1)
    own = own_model(CVDM(CosineSchedule(), nn.Conv3d(3, 1, 3, padding=1)))
    assert (own.info.recipe.model.ndim, own.info.condition_channels) == (3, 1)


class AtItsPlace(nn.Conv2d):
    """Convolutions of any number of channels know nothing of places; this one does."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + torch.arange(images.shape[-1]) / 10


def test_a_network_that_knows_places_is_not_tiled() -> None:
    assert measure_network(AtItsPlace(2, 1, 3, padding=1), 2, 2) == (None, 1)


def test_tiles_change_nothing() -> None:
    """And a reach that is too small would: what is tested can fail."""
    whole, tiles = restored(model(), side=150, tile=1024).mean, restored(model(), side=150, tile=32).mean
    np.testing.assert_allclose(tiles, whole, atol=1e-4)
    short: Any = model()
    for network in (short.network, short.schedule.network):
        network.reach = 1
    assert np.abs(restored(short, side=150, tile=32).mean - whole).max() > 1e-3


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (CVDM(LearnedSchedule(Dilated(2, 1)), Dilated(5, 1)), "rate network .Dilated. takes images of 2 .*given 3"),
        (CVDM(LearnedSchedule(Dilated(2, 1)), Dilated(4, 2)), "returns 2 channels and the target has 1"),
        (CVDM(CosineSchedule(), Dilated(5, 1), mean_network=Dilated(2, 3)), "mean network .Dilated. returns 3"),
        (CVDM(CosineSchedule(), Dilated(2, 1)), "takes 2 channels, of which gamma and the noisy image are 2"),
        (CVDM(CosineSchedule(), nn.Conv2d(4, 1, 3)), "of the same size"),
        (CVDM(CosineSchedule(), lambda images: images[:, :1]), "the model's network is a function"),
    ],
)
def test_what_does_not_fit_is_named(made: CVDM, said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        restored(made)


def test_an_image_of_other_channels_is_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 16, 16\); this model takes \(2, \*spatial\)"):
        sfumato.restore(np.zeros((3, 16, 16)), model())


def test_training_names_channels_that_do_not_fit() -> None:
    """Before torch speaks of the size of weights."""
    made = CVDM(LearnedSchedule(Dilated(2, 1)), Dilated(3, 1))
    condition, target = torch.zeros(2, 2, 16, 16), torch.zeros(2, 1, 16, 16)
    with pytest.raises(ValueError, match=r"takes images of 3 channels and is given 4: 2 known .*, 1 of gamma, 1 noisy"):
        made.loss(condition, target, torch.rand(2), torch.zeros_like(target))


class WithPlaces(nn.Module):
    """Its first layer has more channels than it is given, which is not a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Dilated(5, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(torch.cat([images, images[:, :1].square()], dim=1))  # type: ignore[no-any-return]


def test_a_network_may_add_channels_of_its_own() -> None:
    assert (
        own_model(CVDM(LearnedSchedule(Dilated(2, 1)), WithPlaces()), condition_channels=2).info.condition_channels == 2
    )
