"""The model file: what is written is what is read, to the bit, and by the safetensors library too."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

import sfumato
from networks import seeded
from sfumato.data.normalize import Normalization
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import ModelInfo, inspect_model, load, save_model
from sfumato.models.model_updates import set_calibration, set_reach, set_sampling
from sfumato.models.reach import Reach
from sfumato.models.recipe import ModelRecipe, Recipe
from sfumato.models.safetensors_file import open_tensors
from sfumato.system.errors import ModelFileError, RunError

AUDIT: dict[str, Any] = {
    "quantiles": {"levels": [0.01, 0.5, 0.99], "values": [[0.1, 1 / 3, 0.9]]},
    "noise": [0.012345678901234567],
    "spectrum": {"mean": [3.0, 2.0, 1.0], "spread": [0.3, 0.2, 0.1]},
    "problem": "pairs",
    "forward": {"pixel_um": 0.1},
}
SMALL: dict[str, Any] = {"base": 4, "rate_base": 2, "num_scales": 2}


def make(**model: Any) -> tuple[CVDM, ModelInfo]:
    """A model in use, with weights none of which are 0, and its info; one condition and one target channel."""
    recipe = Recipe(name="größe", model=ModelRecipe.model_validate({**SMALL, **model}), forward={"pixel_um": 0.1})
    condition, target = Normalization((0.1,), (1 / 3,)), Normalization((-7.0,), (1e-12,))
    info = ModelInfo(recipe, 1, 1, condition, target, AUDIT, {"step": 12, "validation": 0.1 + 0.2})
    return seeded(lambda: build_model(recipe.model, 1, 1, seed=0)).eval(), info


def loss(model: CVDM, ndim: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    condition, target, eps = torch.randn(3, 2, 1, *[8] * ndim, generator=generator)
    with torch.no_grad():
        return torch.stack(list(model.loss(condition, target, torch.tensor([0.2, 0.7]), eps)))


@pytest.mark.parametrize(
    "choice",
    [
        *({"schedule": name} for name in ("learned", "paper", "global", "linear_biosr", "linear_qpi", "cosine")),
        *({"network": "sr3"}, {"mean_network": True}, {"residual": True}, {"ndim": 3}),
        *({"norm": name} for name in ("channel", "instance")),
        {"predicts": "noise", "objective": "elbo", "scale": 0.3, "smoothness_weight": 0.01},
    ],
    ids=str,
)
def test_round_trip_to_the_bit(choice: dict[str, Any], tmp_path: Path) -> None:
    model, info = make(**choice)
    path = tmp_path / "model.safetensors"
    save_model(path, model.state_dict(), info)
    loaded = load(path)
    assert loaded.info == info
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not loaded.model.training
    weights = loaded.model.state_dict()
    assert list(weights) == list(model.state_dict())
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    ndim = choice.get("ndim", 2)
    assert torch.equal(loss(loaded.model, ndim), loss(model, ndim))
    assert inspect_model(path) == info
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_reach_is_kept_and_a_file_without_it_keeps_its_bytes(tmp_path: Path) -> None:
    model, info = make()
    path = tmp_path / "model.safetensors"
    save_model(path, model.state_dict(), info)
    without = path.read_bytes()
    for reach in (Reach(sample=48), Reach(sample=80, one_pass=64, denoiser=16)):
        set_reach(path, reach)
        assert inspect_model(path) == dataclasses.replace(info, reach=reach)
    set_reach(path, None)
    assert path.read_bytes() == without


def test_names_of_channels_are_kept_and_a_file_without_them_keeps_its_bytes(tmp_path: Path) -> None:
    model, info = make()
    for name, told in (("plain", info), ("named", dataclasses.replace(info, channels=("GFP",)))):
        save_model(tmp_path / name, model.state_dict(), told)
        assert inspect_model(tmp_path / name) == told
    assert b'channels\\":[\\"GFP' in (tmp_path / "named").read_bytes().replace(b" ", b"")
    assert b'"channels' not in (tmp_path / "plain").read_bytes()


def test_same_contents_same_bytes(tmp_path: Path) -> None:
    model, info = make()
    state = model.state_dict()
    save_model(tmp_path / "a.safetensors", state, info)
    backwards = dict(reversed(state.items()))
    strided = {name: tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor for name, tensor in backwards.items()}
    save_model(tmp_path / "b.safetensors", strided, info)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_the_library_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    model, info = make()
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    save_model(ours, model.state_dict(), info)
    tensors = load_file(ours)
    assert tensors.keys() == model.state_dict().keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in model.state_dict().items())
    with safetensors.safe_open(ours, "pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["sfumato"])["recipe"]["name"] == "größe"
    assert json.loads(metadata["sfumato"])["version"] == sfumato.__version__
    save_file(tensors, theirs, metadata)
    loaded = load(theirs)
    assert loaded.info == info
    assert torch.equal(loss(loaded.model), loss(model))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model, info = make()
    halves = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    path = tmp_path / "model.safetensors"
    save_model(path, halves, info)
    assert load_file(path)["network.head.weight"].dtype == dtype
    weights = load(path).model.state_dict()
    assert all(torch.equal(weights[name], half.to(torch.float32)) for name, half in halves.items())
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


def test_loading_does_not_depend_on_defaults_of_the_program(tmp_path: Path) -> None:
    model, info = make()
    save_model(tmp_path / "model.safetensors", model.state_dict(), info)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):  # stands for any device that is not the CPU
            loaded = load(tmp_path / "model.safetensors")
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(loss(loaded.model), loss(model))


def test_a_header_whose_length_begins_like_a_pickle(tmp_path: Path) -> None:
    """0x..0280 in little-endian bytes is what a pickle of protocol 2 begins with."""
    model, info = make()
    path = tmp_path / "model.safetensors"
    save_model(path, model.state_dict(), ModelInfo(**{**vars(info), "provenance": {"note": ""}}))
    missing = (0x280 - int.from_bytes(path.read_bytes()[:8], "little")) % 2**16
    note = {"note": "x" * missing}
    save_model(path, model.state_dict(), ModelInfo(**{**vars(info), "provenance": note}))
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert load(path).info.provenance == note


def test_a_file_replaced_while_open_is_read_as_it_was(tmp_path: Path) -> None:
    model, info = make()
    path = tmp_path / "model.safetensors"
    save_model(path, model.state_dict(), info)
    with open_tensors(path, "model") as file:
        save_model(path, {name: tensor + 1 for name, tensor in model.state_dict().items()}, info)
        tensors, _ = file.read()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in model.state_dict().items())


def test_what_was_measured_of_other_weights_is_not_written(tmp_path: Path) -> None:
    """A training that goes on may write the file while it is calibrated."""
    model, info = make()
    path = tmp_path / "model.safetensors"
    save_model(path, model.state_dict(), info)
    before = load(path).sha256
    found = Correction("risk_control", 0.9, 1.5, 30, 30, 0.5, Sampled(4, 3, "2m", 0.0))
    set_calibration(path, found, sha256=before)
    assert load(path).info.calibration == found
    now = path.read_bytes()
    for write in (
        lambda: set_calibration(path, None, sha256=before),
        lambda: set_sampling(path, info.recipe.sample, sha256=before),
    ):
        with pytest.raises(ModelFileError, match="it was rewritten meanwhile"):
            write()
        assert path.read_bytes() == now


def test_what_cannot_be_loaded_is_not_written(tmp_path: Path) -> None:
    model, info = make()
    path, state = tmp_path / "model.safetensors", model.state_dict()
    save_model(path, state, info)
    before = path.read_bytes()
    some = "network.head.weight"
    without = {name: tensor for name, tensor in state.items() if name != some}
    with pytest.raises(ModelFileError, match=r"'network\.head\.weight' is missing"):
        save_model(path, without, info)
    with pytest.raises(ModelFileError, match=r"is \[1, 4, 1, 1\] float64 instead of \[1, 4, 1, 1\] float32"):
        save_model(path, {**state, some: state[some].double()}, info)
    with pytest.raises(RunError, match=r"1 of its tensors, 'network.head.weight' first, .* not finite; start"):
        save_model(path, {**state, some: state[some] / 0}, info)
    with pytest.raises(RunError, match="finite numbers"):
        save_model(path, state, ModelInfo(**{**vars(info), "provenance": {"validation": float("nan")}}))
    with pytest.raises(RunError, match="shorten what is kept for the audit"):
        save_model(path, state, ModelInfo(**{**vars(info), "audit": {"spectrum": "x" * 2**21}}))
    with pytest.raises(ValueError, match="the condition has 2 channels, but its normalisation 1"):
        ModelInfo(**{**vars(info), "condition_channels": 2})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


HUGE = """
import json, resource, sys, time
from pathlib import Path
import torch
from sfumato.models.build import build_model
from sfumato.system.errors import ModelFileError
from sfumato.models.model_file import inspect_model, load
from sfumato.models.reach import Reach
from sfumato.models.recipe import ModelRecipe

def sparse(path, rename=None):
    "A file of a model with 2 billion weights, all of them holes."
    recipe = ModelRecipe(base=512, rate_base=16)
    with torch.device("meta"):
        state = build_model(recipe, 1, 1).state_dict()
    small = Path(sys.argv[1]).read_bytes()
    held = json.loads(small[8:8 + int.from_bytes(small[:8], "little")])["__metadata__"]
    info = json.loads(held["sfumato"])
    info["recipe"]["model"] = recipe.model_dump(mode="json")
    entries, end = {"__metadata__": {**held, "sfumato": json.dumps(info)}}, 0
    for name, tensor in state.items():
        start, end = end, end + 4 * tensor.numel()
        entries[rename if name == "network.head.bias" and rename else name] = {
            "dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
    return 8 + len(header) + end

good, bad = Path(sys.argv[2]) / "good.safetensors", Path(sys.argv[2]) / "bad.safetensors"
size = sparse(good)
sparse(bad, rename="network.head.bios")
load(sys.argv[1])
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
info = inspect_model(good)
try:
    load(bad)
    refused = ""
except ModelFileError as error:
    refused = str(error)
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
print(json.dumps([size, info.recipe.model.base, refused, seconds, grown, "torch._dynamo" in sys.modules]))
"""


def test_inspecting_reads_the_head_and_loading_checks_before_it_allocates(tmp_path: Path) -> None:
    model, info = make()
    save_model(tmp_path / "model.safetensors", model.state_dict(), info)
    command = [sys.executable, "-c", HUGE, str(tmp_path / "model.safetensors"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    size, base, refused, seconds, grown, compiler = json.loads(result.stdout)
    assert size > 7e9
    assert base == 512
    assert "'network.head.bias' is missing" in refused
    assert "'network.head.bios' should not be there" in refused
    assert seconds < 2
    assert grown < 50e6
    assert not compiler, "building without memory has loaded torch's compiler, which takes seconds"
