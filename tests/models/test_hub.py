"""Models on the Hub: addresses, the cache without a network, hashes, cards, and a round trip through an endpoint."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from fake_hub import COMMIT, fake_hub
from random_models import write_random_model
from sfumato import load
from sfumato.data.normalize import Normalization
from sfumato.export.card import Credits
from sfumato.export.hub import export_hub
from sfumato.models.hub import HubAddress
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_updates import set_calibration
from sfumato.system.errors import ModelFileError

CREDITS = Credits("CC-BY-4.0", ("Ada Lovelace", "Mary Somerville"))
needs_hub = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed (extra `hub`)"
)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    data = Normalization((100.0,), (50.0,))
    return write_random_model(tmp_path / "run.safetensors", base=2, num_scales=1, std=0.1, data=data)


def run(code: str, **environment: str) -> str:
    """What a Python of its own prints: huggingface_hub reads its settings once, when it is imported."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), "")
    keep = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**keep, **proxies, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("start", ["hf://", "hf:/"])
def test_addresses(start: str) -> None:
    assert HubAddress.parse(f"{start}lab/denoiser") == HubAddress("lab/denoiser")
    full = f"{start}lab/de.noi-ser_2/nuclei/model.safetensors@v1.0#sha256={'ab' * 32}"
    assert HubAddress.parse(full) == HubAddress("lab/de.noi-ser_2", "nuclei/model.safetensors", "v1.0", "ab" * 32)


@pytest.mark.parametrize(
    "text", ["hf://lab", "hf://lab/x#sha256=12", "hf://lab/x@", "hf:///x/y", "hf://../x", "hf://lab/x y", "https://a/b"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ModelFileError, match="expected hf://owner/name"):
        HubAddress.parse(text)


def test_a_wrong_hash_is_refused(model_file: Path) -> None:
    right = hashlib.sha256(model_file.read_bytes()).hexdigest()
    assert load(model_file, sha256=right.upper()).sha256 == right
    with pytest.raises(ModelFileError, match=f"has the SHA-256 {right}, expected {'0' * 64}"):
        load(model_file, sha256="0" * 64)


def lay_out_cache(home: Path, model_file: Path) -> str:
    """Put a file into a cache as huggingface_hub lays it out; returns its hash."""
    content = model_file.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    place = home / "hub" / "models--lab--denoiser"
    for folder in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (place / folder).mkdir(parents=True)
    (place / "blobs" / sha256).write_bytes(content)
    (place / "refs" / "main").write_text(COMMIT)
    (place / "snapshots" / COMMIT / "model.safetensors").symlink_to(Path("../../blobs") / sha256)
    return sha256


@needs_hub
def test_a_cached_model_loads_without_a_network(tmp_path: Path, model_file: Path) -> None:
    """Sockets refuse to connect, so that nothing but the cache can have answered."""
    sha256 = lay_out_cache(tmp_path / "home", model_file)
    printed = run(
        f"""
import socket
def refuse(*args): raise OSError("the network is off")
socket.socket.connect = socket.getaddrinfo = refuse
from pathlib import Path
import sfumato
from sfumato.system.errors import ModelFileError
for place in ["hf://lab/denoiser", "hf://lab/denoiser@{COMMIT}", Path("hf://lab/denoiser#sha256={sha256}")]:
    print(sfumato.load(place).sha256)
for place in ["hf://lab/denoiser#sha256={"0" * 64}", "hf://lab/denoiser@v9", "hf://lab/other"]:
    try:
        sfumato.load(place)
    except ModelFileError as error:
        print("refused:", error)
""",
        HF_HOME=str(tmp_path / "home"),
        HF_HUB_OFFLINE="1",
    ).splitlines()
    assert printed[:3] == [sha256] * 3
    assert len(printed) == 6, printed
    assert f"has the SHA-256 {sha256}, expected {'0' * 64}" in printed[3]
    assert all("cannot get model.safetensors of lab/" in line for line in printed[4:])


@needs_hub
def test_an_address_restores_and_is_calibrated_into_a_file(tmp_path: Path, model_file: Path) -> None:
    lay_out_cache(tmp_path / "home", model_file)
    np.save(tmp_path / "in.npy", np.random.default_rng(0).random((24, 24), np.float32))
    out, copy = tmp_path / "out.npy", tmp_path / "copy.safetensors"
    run(
        f"""
from sfumato.cli import main
import sys
sys.argv = ["sfumato", "restore", "hf://lab/denoiser", {str(tmp_path / "in.npy")!r}, {str(out)!r}]
sys.argv += ["--samples", "2", "--steps", "2"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
from sfumato.models.model_updates import set_calibration
set_calibration("hf://lab/denoiser", None, {str(copy)!r})
""",
        HF_HOME=str(tmp_path / "home"),
        HF_HUB_OFFLINE="1",
    )
    assert np.isfinite(np.load(out)).all()
    assert load(copy).info == load(model_file).info


@needs_hub
def test_push_and_load_through_an_endpoint(tmp_path: Path, model_file: Path) -> None:
    """The library's own client against a server of this machine: what is pushed is what is loaded."""
    with fake_hub() as (address, files):
        printed = run(
            f"""
import sfumato
from sfumato.export.card import Credits
from sfumato.export.hub import export_hub, push
folder = export_hub({str(model_file)!r}, {str(tmp_path / "repo")!r}, Credits("CC-BY-4.0", ("Ada",)))
(folder / "private.txt").write_text("not for others")
print(push(folder, "lab/denoiser"))
print(sfumato.load("hf://lab/denoiser").sha256)
""",
            HF_ENDPOINT=address,
            HF_HOME=str(tmp_path / "home"),
            HF_TOKEN="hf_testing",
            HF_HUB_DISABLE_XET="1",
            HF_HUB_DISABLE_PROGRESS_BARS="1",
        ).splitlines()
    sha256 = hashlib.sha256(model_file.read_bytes()).hexdigest()
    assert printed == [f"hf://lab/denoiser@{COMMIT}", sha256]
    assert sorted(files) == ["README.md", "model.safetensors"]
    assert hashlib.sha256(files["model.safetensors"]).hexdigest() == sha256


def test_the_card_says_what_the_file_says(tmp_path: Path, model_file: Path) -> None:
    sampled = Sampled(16, 32, "2m", 0.0)
    set_calibration(model_file, Correction("risk_control", 0.9, 1.5, 40, 80, 0.71, sampled))
    folder = export_hub(model_file, tmp_path / "repo", CREDITS, address="lab/denoiser")
    assert (folder / "model.safetensors").read_bytes() == model_file.read_bytes()
    _, front, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "cc-by-4.0"
    assert yaml.safe_load(front)["library_name"] == "sfumato"
    for part in (
        "90% of pixels inside on average, guaranteed for images like the 40 held out",
        "held 0.710 of the pixels",
        "16 samples of 32 steps",
        "mostly 50 to 150",
        "CC-BY-4.0, by Ada Lovelace, Mary Somerville",
        "arXiv:2312.02246",
        "hf://lab/denoiser",
        load(model_file).sha256,
        "Not for diagnosis",
    ):
        assert part in text


def test_the_card_of_an_uncalibrated_model_says_so(tmp_path: Path, model_file: Path) -> None:
    text = (export_hub(model_file, tmp_path, CREDITS) / "README.md").read_text(encoding="utf-8")
    assert "Not calibrated" in text
    assert "holds no scores" in text
