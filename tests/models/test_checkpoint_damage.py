"""Model files that are damaged, foreign, from the future or hostile: what the user is told."""

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fuzz_model_files import MOST_MEGABYTES, MOST_SECONDS, Parts, fuzz, small_model
from sfumato.models import safetensors_file
from sfumato.models.model_file import inspect_model, load
from sfumato.models.safetensors_file import open_tensors
from sfumato.system.errors import ModelFileError

Change = Callable[[Parts], None]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small_model(tmp_path_factory.mktemp("model"))


def info(**values: Any) -> Change:
    return lambda parts: parts.info.update(values)


def network(**values: Any) -> Change:
    return lambda parts: parts.info["recipe"]["model"].update(values)


def entry(name: str, **values: Any) -> Change:
    return lambda parts: parts.entries[name].update(values)


def renamed(parts: Parts) -> None:
    parts.entries["network.head.bios"] = parts.entries.pop("network.head.bias")


def without(*names: str) -> Change:
    def change(parts: Parts) -> None:
        for name in names:
            del parts.info[name]

    return change


def swapped(parts: Parts) -> None:
    """Two tensors of equal size but other shape change places, so that nothing overlaps."""
    shape = parts.entries["network.down.0.conv1.weight"]["shape"]
    parts.entries["network.down.0.conv1.weight"]["shape"] = shape[::-1]


def added(parts: Parts) -> None:
    end = len(parts.data)
    parts.entries["extra"] = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}


HEAD = "network.head.bias"
NOT_WHOLE = "is not a whole safetensors file: .Error while deserializing header: .*; copy it again, or give"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (info(format=2, version="9.1"), r"written by a newer sfumato \(9\.1, file format 2\); .* upgrade: pip install"),
        (info(format=0), "file format 0, expected a number from 1"),
        (info(format=True), "file format True"),
        (info(format="1"), "file format '1'"),
        (info(kind="training state"), "holds a training state, expected a model; give the model.safetensors"),
        (info(kind=None), "holds a None, expected a model"),
        (without("recipe"), "no 'recipe'.*written by sfumato 0.1.0"),
        (without("version", "audit"), "no 'audit'.*of an unknown version"),
        (info(version="\x1b[31m", audit=3), "audit is 3, expected names and values.*of an unknown version"),
        (info(provenance=[]), r"provenance is \[\]"),
        (info(recipe=[]), "recipe.: Input should be"),
        (info(recipe={"modle": {}}), "recipe.modle: Extra inputs are not permitted"),
        (info(recipe={"name": "x" * 70_000}), "recipe has more than 65536 characters"),
        (info(condition_channels="1"), "condition_channels is '1', expected a number"),
        (info(condition_channels=2), "the condition has 2 channels, but its normalisation 1"),
        (info(channels="GFP"), "channels is 'GFP', expected names of channels"),
        (info(channels=[1]), "channels are .* give a name for each measured channel"),
        (info(channels=["GFP", "DAPI"]), "channels are .* give a name for each measured channel"),
        (info(channels=["x" * 201]), "channels are .* give a name for each measured channel"),
        (info(condition={"offset": [0], "scale": [0]}), "finite, positive scales"),
        (info(condition={"offset": [10**400], "scale": [1]}), "beyond the range of floats"),
        (info(target={"offset": [0, "a"], "scale": [1, 1]}), "a list of numbers there"),
        (info(target={"offset": [0, 0]}), "keys `offset` and `scale`"),
        (network(base=10**9), "at least 1000000000000000000 weights, and the file 1262"),
        (network(base=10**4000), "at least 1000000000000000000 weights"),
        (network(rate_base=10**9), "weights, and the file"),
        (network(num_scales=10**9), "num_scales is 1000000000; give at most 10"),
        (network(base=1, norm="channel"), "model.base is 1, .* give at least 2"),
        (network(base=3), r"'network\..*instead of .* and \d+ more; copy the file again"),
        (network(network="sr3", base=1), r"'network\.stem\.weight' is missing; .* and \d+ more"),
        (network(schedule="cosine"), "'schedule.* should not be there"),
        (network(residual=True), "as many condition channels as target channels, got 1 and 2"),
        (network(ndim=4), "recipe.model.ndim: Input should be 2 or 3"),
        (network(scale=-1), "recipe.model.scale: Input should be greater than 0"),
        (renamed, "'network.head.bias' is missing; 'network.head.bios' should not be there"),
        (added, "'extra' should not be there"),
        (swapped, r"'network.down.0.conv1.weight' is \[3, 3, 5, 2\] float32 instead of \[2, 5, 3, 3\] float32"),
        (entry(HEAD, dtype="I32"), "'network.head.bias' is .* int32 instead of .* float32"),
        (entry(HEAD, dtype="F8_E4M3"), NOT_WHOLE),
        (entry(HEAD, dtype="F8_E4M3", shape=[8]), "dtype 'F8_E4M3', expected one of F64, F32"),
        (entry(HEAD, dtype=["F32"]), NOT_WHOLE),
        (entry(HEAD, shape=[3]), NOT_WHOLE),
        (entry(HEAD, shape=[-2]), NOT_WHOLE),
        (entry(HEAD, shape=[True, 2]), NOT_WHOLE),
        (entry(HEAD, shape=[1] * 9), NOT_WHOLE),
        (entry(HEAD, shape=[2**62, 2**62]), NOT_WHOLE),
        (entry(HEAD, shape="2"), NOT_WHOLE),
        (entry(HEAD, data_offsets=[0, 8]), NOT_WHOLE),
        (entry(HEAD, data_offsets=[10**9, 10**9 + 8]), NOT_WHOLE),
        (entry(HEAD, data_offsets=[8, 0]), NOT_WHOLE),
        (entry(HEAD, data_offsets=[8]), NOT_WHOLE),
        (lambda parts: parts.entries.update({HEAD: 3}), NOT_WHOLE),
        (lambda parts: parts.entries.clear(), NOT_WHOLE),
    ],
)
def test_changed_values(change: Change, words: str, original: bytes, tmp_path: Path) -> None:
    """Length and checksum are right again, so that only the change itself is wrong."""
    parts, path = Parts.of(original), tmp_path / "model.safetensors"
    path.write_bytes(parts.join())
    load(path)
    change(parts)
    path.write_bytes(parts.join())
    for read in (inspect_model, load):
        with pytest.raises(ModelFileError, match=words) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1500


def with_header(text: str) -> Callable[[bytes], bytes]:
    return lambda original: len(text).to_bytes(8, "little") + text.encode(errors="surrogateescape")


def pickled(original: bytes) -> bytes:
    file = io.BytesIO()
    torch.save({"network.head.bias": torch.zeros(2)}, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda original: b"", "it has 0 bytes"),
        (lambda original: original[:7], "it has 7 bytes"),
        (lambda original: original[:100], "it has 100 bytes, and its header alone would take"),
        (lambda original: original[:-1], NOT_WHOLE),
        (lambda original: original + b"\0", NOT_WHOLE),
        (lambda original: original[:-1] + bytes([original[-1] ^ 1]), "damaged: its checksum"),
        (lambda original: original.replace(b"pixel_um", b"pixel_uM"), "damaged: its checksum"),
        (lambda original: original.replace(b'\\"step\\": 10', b'\\"step\\": 11'), "damaged: its checksum"),
        (lambda original: b"\xff" * 8 + original[8:], "18446744073709551615"),
        (lambda original: b"\x89PNG\r\n\x1a\n" + bytes(100), "is not a safetensors file"),
        (lambda original: b"name: run\ntrain: {}\n", "is not a safetensors file"),
        (pickled, "is a pickle, as torch.save writes it.*never opened here; ask for the model as a safetensors file"),
        (lambda original: pickle.dumps({"a": list(range(9))}, 2), "is a pickle"),
        (lambda original: pickle.dumps({"a": list(range(9))}, 5), "is a pickle"),
        (with_header("[]"), NOT_WHOLE),
        (with_header("{"), NOT_WHOLE),
        (with_header("\udc80"), NOT_WHOLE),
        (with_header(" " * 3 * 2**20), "header alone would take 3145728, with at most 2097152 allowed"),
        (with_header("[]" * (2**17 + 1)), NOT_WHOLE),
        (with_header("{}"), r"not one of sfumato: its metadata are \[\]"),
        (with_header('{"__metadata__":{"format":"pt"}}'), r"not one of sfumato: its metadata are \['format'\]"),
        (with_header('{"__metadata__":{"sfumato":1,"checksum":"0"}}'), NOT_WHOLE),
        (
            with_header('{"__metadata__":{"sfumato":"' + "[" * (2**17 + 1) + '","checksum":"0"}}'),
            "more than 131072 lists",
        ),
        (with_header('{"__metadata__":{"sfumato":"' + "[" * 10**5 + '","checksum":"0"}}'), "nested too deeply"),
        (with_header('{"__metadata__":{"sfumato":"{\\"a\\":1,\\"a\\":2}","checksum":"0"}}'), "a name is given twice"),
        (with_header('{"__metadata__":{"sfumato":"[1]","checksum":"0"}}'), "its metadata holds no named values"),
        (with_header('{"__metadata__":{"sfumato":"{\\"format\\":1e999}","checksum":"0"}}'), "not a finite number"),
        (with_header('{"__metadata__":{"sfumato":"{\\"format\\":NaN}","checksum":"0"}}'), "not a finite number"),
        (with_header('{"a":1,"a":2}'), NOT_WHOLE),
        (with_header("[" * 10**5), NOT_WHOLE),
        (with_header('{"a":' + "9" * 5000 + "}"), NOT_WHOLE),
    ],
)
def test_changed_bytes(change: Callable[[bytes], bytes], words: str, original: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(change(original))
    assert path.read_bytes() != original
    with pytest.raises(ModelFileError, match=words) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert ";" in str(caught.value), "says what to do"


def test_a_model_of_another_library(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "other.safetensors", {"format": "pt"})
    with pytest.raises(ModelFileError, match="but not one of sfumato"):
        load(tmp_path / "other.safetensors")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    for name, words in {
        "nothing": "does not exist",
        ".": "is a folder; expected a model file",
        "pipe.safetensors": "is not a file",
    }.items():
        with pytest.raises(ModelFileError, match=f"{words}; give the path"):
            load(tmp_path / name)
    with pytest.raises(ModelFileError, match="does not exist"):
        load("a\0b")


def test_a_file_that_shrinks_while_it_is_read(original: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(original)
    with open_tensors(path, "model") as file:
        os.truncate(path, len(original) - 100)
        with pytest.raises(ModelFileError, match="ends too early"):
            file.read()


def test_a_file_that_is_replaced_while_it_is_opened(
    original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header is never that of another file."""
    path, newer = tmp_path / "model.safetensors", tmp_path / "newer"
    path.write_bytes(original)
    newer.write_bytes(original)

    def replaced_before(*arguments: Any) -> Any:
        newer.replace(path)
        return safe_open(*arguments)

    monkeypatch.setattr(safetensors_file, "safe_open", replaced_before)
    with pytest.raises(ModelFileError, match="was replaced while it was opened; try again"):
        load(path)


def test_read_errors_are_told(original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(original)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fail)
        with pytest.raises(ModelFileError, match=r"cannot read .*model\.safetensors: Input/output error; check"):
            load(path)


def test_checksums_do_not_depend_on_how_the_header_is_written(original: bytes, tmp_path: Path) -> None:
    parts, path = Parts.of(original), tmp_path / "model.safetensors"
    backwards = Parts(dict(reversed(parts.entries.items())), parts.info, parts.data)
    path.write_bytes(backwards.join())
    assert json.loads(json.dumps(load(path).info.audit)) == parts.info["audit"]


@pytest.mark.parametrize(("files", "seed"), [(500, 2024), pytest.param(10_000, 0, marks=pytest.mark.slow)])
def test_fuzz(files: int, seed: int, tmp_path: Path) -> None:
    outcome = fuzz(files, seed=seed, folder=tmp_path)
    assert outcome.escaped == []
    assert outcome.slowest < MOST_SECONDS
    assert outcome.megabytes < MOST_MEGABYTES
    assert len(outcome.refusals) >= 15, "the mutants do not get deep enough"
    assert 0.02 < outcome.loaded / files < 0.3
