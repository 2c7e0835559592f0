"""A model file names places; no command opens one of them unasked, and none of them is ever called."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from attack.attacking import FEW, image, pixels, refuses, run, write_model

HTTP, S3 = "http://127.0.0.1:9/pairs.zarr", "s3://attacked/pairs.zarr"
_armed: list[list[str]] = []


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse every connection by AF_INET or AF_INET6, and every question for an address, while a test asks for it."""
    if not _armed or event not in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        return
    place = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
    if isinstance(place, tuple) or event == "socket.getaddrinfo":
        _armed[0].append(f"{event} {place}")
        raise PermissionError(f"this test has no network: {place}")


sys.addaudithook(_listen)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All that is said to the network, none of which gets there."""
    for name in ("aiohttp", "s3fs"):
        pytest.importorskip(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    made: list[str] = []
    _armed.append(made)
    yield made
    _armed.clear()


def model_of(folder: Path, place: str) -> Path:
    """A model whose recipe names a place."""
    return write_model(folder / "model.safetensors", recipe=f"data: {{{place}}}")


def pairs(folder: Path) -> tuple[Path, Path]:
    """Two folders of two images each."""
    for side in ("inputs", "targets"):
        for number in range(2):
            image(folder / side / f"{number}.tif", seed=number)
    return folder / "inputs", folder / "targets"


@pytest.mark.parametrize("address", [HTTP, S3])
def test_evaluate_does_not_call_what_a_model_names(address: str, calls: list[str], tmp_path: Path) -> None:
    model = model_of(tmp_path, f"store: '{address}'")
    refuses(run("evaluate", f"m={model}", *FEW, "--out", tmp_path / "out"), "--from-recipe", address)
    assert calls == []


@pytest.mark.parametrize("address", [HTTP, S3])
def test_evaluate_does_not_call_it_when_asked_for_the_recipe(address: str, calls: list[str], tmp_path: Path) -> None:
    model = model_of(tmp_path, f"store: '{address}'")
    ran = run("evaluate", f"m={model}", "--from-recipe", *FEW, "--out", tmp_path / "out")
    refuses(ran, address, "never opened", "--store")
    assert calls == []


def test_inspect_does_not_call_what_a_model_names(calls: list[str], tmp_path: Path) -> None:
    model = model_of(tmp_path, f"store: '{HTTP}'")
    refuses(run("inspect", model, "--steps", "2,3", "--samples", "2", "--out", tmp_path / "out"), "--from-recipe")
    refuses(run("inspect", model, "--steps", "2,3", "--from-recipe", "--out", tmp_path / "out"), "never opened")
    assert calls == []


def test_a_share_of_another_machine_is_an_address(calls: list[str], tmp_path: Path) -> None:
    model = model_of(tmp_path, r"inputs: '\\host\low', targets: '\\host\high'")
    refuses(run("evaluate", f"m={model}", "--from-recipe", *FEW, "--out", tmp_path / "out"), "never opened")


def test_evaluate_opens_folders_that_a_model_names_only_when_asked(tmp_path: Path) -> None:
    low, high = pairs(tmp_path / "theirs")
    model = model_of(tmp_path, f"inputs: '{low}', targets: '{high}'")
    refuses(run("evaluate", f"m={model}", *FEW, "--out", tmp_path / "out"), "--from-recipe", str(low))
    assert not (tmp_path / "out").exists()
    ran = run("evaluate", f"m={model}", "--from-recipe", *FEW, "--out", tmp_path / "out")
    assert ran.code == 0, ran.text
    assert (tmp_path / "out/scores.csv").is_file()


def test_inspect_opens_a_manifest_that_a_model_names_only_when_asked(tmp_path: Path) -> None:
    pairs(tmp_path)
    (tmp_path / "pairs.csv").write_text("input,target,split\ninputs/0.tif,targets/0.tif,test\n")
    model = model_of(tmp_path, f"manifest: '{tmp_path / 'pairs.csv'}'")
    steps = ("--steps", "2,3", "--solver", "2m", "--samples", "2")
    refuses(run("inspect", model, *steps, "--out", tmp_path / "out"), "--from-recipe", "pairs.csv")
    assert not (tmp_path / "out").exists()


def test_one_place_is_opened_at_a_time(tmp_path: Path) -> None:
    low, high = pairs(tmp_path / "ours")
    model = model_of(tmp_path, f"inputs: '{low}', targets: '{high}'")
    places = ("--inputs", low, "--targets", high, "--from-recipe")
    refuses(run("evaluate", f"m={model}", *places, *FEW, "--out", tmp_path / "out"), "--from-recipe", "keep one")


@pytest.mark.guard
def test_the_network_is_watched(model: Path, calls: list[str], tmp_path: Path) -> None:
    refuses(run("restore", model, "http://127.0.0.1:9/a.zarr", tmp_path / "out.tif", *FEW), "127.0.0.1")
    assert calls
    calls.clear()
    refuses(run("evaluate", f"m={model}", "--store", HTTP, *FEW, "--out", tmp_path / "out"), "127.0.0.1")
    assert calls


@pytest.mark.guard
def test_commands_with_a_model_call_nobody(calls: list[str], tmp_path: Path) -> None:
    low, high = pairs(tmp_path / "ours")
    model, measured = model_of(tmp_path, f"store: '{HTTP}'"), low / "0.tif"
    sfumato.restore(pixels(measured), sfumato.load(model), num_samples=2, num_steps=2)
    out = tmp_path / "out"
    places = ("--inputs", low, "--targets", high)
    for words in (
        ("restore", model, measured, tmp_path / "restored.tif", *FEW),
        ("evaluate", f"m={model}", *places, *FEW, "--out", out),
        ("calibrate", model, tmp_path / "ours", "--method", "recalibrated", *FEW, "--unit", "(.*)"),
        ("audit", model, measured, *FEW, "--out", out),
        ("inspect", model, measured, "--samples", "2", "--steps", "2", "--out", out),
        ("inspect", model, "--samples", "2", "--steps", "2,3", "--solver", "2m", *places, "--out", out),
        ("export", model, "--hub", out, "--licence", "CC-BY-4.0", "--author", "A. Author"),
    ):
        ran = run(*words)
        assert ran.code == 0, f"{words[0]}: {ran.text}"
    assert calls == []
