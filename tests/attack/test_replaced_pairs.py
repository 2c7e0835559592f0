"""Images that change between two commands: a packing or a training that is resumed has the same ones, or refuses."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attack.attacking import Ran, image, refuses, run
from pair_folders import TINY
from warm_processes import start_command

NUMBER = 3


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Folders `low` and `high` of three pairs, each file of the same size in bytes."""
    for number in range(NUMBER):
        image(tmp_path / "low" / f"cell{number}.tif", seed=number)
        image(tmp_path / "high" / f"cell{number}.tif", seed=100 + number)
    return tmp_path


def pack(folder: Path, *more: object, inputs: str = "low", targets: str = "high") -> Ran:
    places = ["--inputs", folder / inputs, "--targets", folder / targets]
    return run("pack", *places, "--out", folder / "store.zarr", *more)


def words_of_training(*places: object, out: Path, steps: int = 1) -> list[object]:
    settings = [*TINY, f"train.steps={steps}", "train.save_every=1", "train.validate_every=1000"]
    return ["train", *places, "--out", out, *(word for setting in settings for word in ("--set", setting))]


def train(folder: Path, *places: object, steps: int = 1) -> Ran:
    given = places or ("--inputs", folder / "low", "--targets", folder / "high")
    return run(*words_of_training(*given, out=folder / "run", steps=steps))


def began(ran: Ran) -> None:
    assert ran.code == 0, ran.text


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "tensorboard" not in path.parts}


def exchange(one: Path, other: Path) -> None:
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


def stop_halfway(store: Path) -> None:
    """Leave a store as a kill before its last shard does."""
    document = json.loads((store / "zarr.json").read_text())
    document["attributes"]["sfumato_pairs"]["complete"] = False
    (store / "zarr.json").write_text(json.dumps(document))
    next(path for path in sorted((store / "validation/target/c").rglob("*")) if path.is_file()).unlink()


# Packing


def test_packing_the_same_files_again_says_that_it_was_done(pairs: Path) -> None:
    began(pack(pairs))
    before = files(pairs / "store.zarr")
    ran = pack(pairs)
    assert ran.code == 0
    assert "packed already" in ran.text
    assert files(pairs / "store.zarr") == before


def test_packing_with_inputs_and_targets_exchanged(pairs: Path) -> None:
    began(pack(pairs))
    before = files(pairs / "store.zarr")
    refuses(pack(pairs, inputs="high", targets="low"), "input cell", "target cell", "choose another --out")
    assert files(pairs / "store.zarr") == before


@pytest.mark.parametrize(("side", "role"), [("low", "input"), ("high", "target")])
def test_packing_a_replaced_image_into_a_finished_store(pairs: Path, side: str, role: str) -> None:
    began(pack(pairs))
    image(pairs / side / "cell1.tif", seed=9)
    refuses(pack(pairs), "replaced: ", f"{role} cell1", "put them back")


def test_packing_a_replaced_image_into_a_stopped_store(pairs: Path) -> None:
    began(pack(pairs))
    complete = files(pairs / "store.zarr")
    stop_halfway(pairs / "store.zarr")
    before = (pairs / "low/cell0.tif").read_bytes()
    image(pairs / "low/cell0.tif", seed=9)
    refuses(pack(pairs), "input cell0")
    (pairs / "low/cell0.tif").write_bytes(before)
    began(pack(pairs))
    assert files(pairs / "store.zarr") == complete


def test_packing_with_a_pair_more(pairs: Path) -> None:
    began(pack(pairs, "--set", "data.validation_fraction=0"))
    for side in ("low", "high"):
        image(pairs / side / "cell9.tif", seed=9)
    refuses(pack(pairs, "--set", "data.validation_fraction=0"), "added: train input cell9, train target cell9")


def test_packing_with_a_pair_less(pairs: Path) -> None:
    began(pack(pairs, "--set", "data.validation_fraction=0"))
    for side in ("low", "high"):
        (pairs / side / "cell2.tif").unlink()
    refuses(pack(pairs, "--set", "data.validation_fraction=0"), "missing: train input cell2, train target cell2")


def test_packing_with_another_setting(pairs: Path) -> None:
    """Targets of other intensities, which the store does not hold."""
    for number in range(NUMBER):
        shutil.copy(pairs / "low" / f"cell{number}.tif", pairs / "high")
    began(pack(pairs))
    refuses(pack(pairs, "--set", "data.match_intensity=true"), "match_intensity", "True")


def test_packing_copies_of_the_files_is_the_same(pairs: Path) -> None:
    """Staged on another disk they have other times, which are no reason to refuse."""
    began(pack(pairs))
    shutil.copytree(pairs / "low", pairs / "staged")
    for path in (pairs / "staged").iterdir():
        os.utime(path, ns=(1, 1))
    assert "packed already" in pack(pairs, inputs="staged").text


# Training


@pytest.mark.parametrize(("side", "role"), [("low", "input"), ("high", "target")])
def test_a_training_with_a_replaced_image_is_not_resumed(pairs: Path, side: str, role: str) -> None:
    began(train(pairs, steps=2))
    place, state = pairs / side / "cell1.tif", files(pairs / "run")
    before = place.read_bytes()
    image(place, seed=9)
    refuses(train(pairs, steps=2), f"{role} cell1", "another --out")
    assert files(pairs / "run") == state
    place.write_bytes(before)
    began(train(pairs, steps=2))


def test_a_training_with_two_targets_exchanged_is_not_resumed(pairs: Path) -> None:
    began(train(pairs))
    exchange(pairs / "high/cell0.tif", pairs / "high/cell1.tif")
    refuses(train(pairs), "target cell0", "target cell1")


def test_a_training_with_its_folders_exchanged_is_not_resumed(pairs: Path) -> None:
    began(train(pairs))
    exchange(pairs / "low", pairs / "high")
    refuses(train(pairs), "input cell0", "target cell0")


def test_a_training_with_a_pair_more_is_not_resumed(pairs: Path) -> None:
    began(train(pairs))
    for side in ("low", "high"):
        image(pairs / side / "cell9.tif", seed=9)
    refuses(train(pairs), "added: ", "input cell9")


def test_a_training_with_a_pair_less_is_not_resumed(pairs: Path) -> None:
    began(train(pairs))
    for side in ("low", "high"):
        (pairs / side / "cell2.tif").unlink()
    refuses(train(pairs), "missing: ", "input cell2")


def test_a_training_whose_manifest_pairs_others_is_not_resumed(pairs: Path) -> None:
    def write(*targets: int) -> None:
        rows = [f"low/cell{number}.tif,high/cell{target}.tif,train" for number, target in enumerate(targets)]
        (pairs / "pairs.csv").write_text("\n".join(["input,target,split", *rows]))

    write(0, 1, 2)
    began(train(pairs, "--manifest", pairs / "pairs.csv"))
    write(0, 2, 1)
    refuses(train(pairs, "--manifest", pairs / "pairs.csv"), "target low/cell1", "target low/cell2")


def test_a_training_whose_store_is_another_is_not_resumed(pairs: Path) -> None:
    began(pack(pairs))
    began(train(pairs, "--store", pairs / "store.zarr"))
    shutil.rmtree(pairs / "store.zarr")
    image(pairs / "high/cell1.tif", seed=9)
    began(pack(pairs))
    refuses(train(pairs, "--store", pairs / "store.zarr"), "store zarr.json")


def test_a_training_whose_photograph_is_another_is_not_resumed(tmp_path: Path) -> None:
    def photograph(name: str, seed: int) -> None:
        noise: Any = np.random.default_rng(seed).integers(0, 256, (32, 32), np.uint8)
        (tmp_path / "photographs").mkdir(exist_ok=True)
        Image.fromarray(noise).save(tmp_path / "photographs" / name)

    for number in range(3):
        photograph(f"{number}.png", number)
    places = ["--folder", tmp_path / "photographs", "--set", "problem=phase", "--set", "forward.side_px=32"]
    began(train(tmp_path, *places))
    photograph("1.png", 9)
    refuses(train(tmp_path, *places), "photograph", "1.png")


@pytest.mark.guard
def test_a_training_on_copies_of_its_images_is_resumed(pairs: Path) -> None:
    began(train(pairs))
    for path in (*(pairs / "low").iterdir(), *(pairs / "high").iterdir()):
        os.utime(path, ns=(1, 1))
    began(train(pairs))


def test_two_trainings_in_one_folder(pairs: Path) -> None:
    """The second is refused while the first lives, here stopped in its tracks; kill -9 gives the folder back."""
    words = words_of_training("--inputs", pairs / "low", "--targets", pairs / "high", out=pairs / "run", steps=60)
    first = start_command([*map(str, words)], errors=pairs / "errors.txt")
    try:
        while not (pairs / "run/metrics.jsonl").exists():
            assert first.is_alive()
            time.sleep(0.01)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGSTOP)
        state = files(pairs / "run")
        refuses(run(*words), "in use by another training", f"process {first.pid}", "choose another --out")
        assert files(pairs / "run") == state
    finally:
        first.kill()
        first.join()
    began(run(*words))
    assert not list((pairs / "run").glob(".*")), "the lock was left behind"


@pytest.mark.guard
def test_a_refused_training_leaves_no_folder(pairs: Path) -> None:
    refuses(train(pairs, "--inputs", pairs / "low", "--targets", pairs / "nowhere"), "does not exist")
    assert not (pairs / "run").exists()
