"""Settings and fixtures of all tests."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from warm_programs import warm_programs

# Test tensors are small: threads gain nothing on them, lose much on a busy machine, and reorder sums.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Address of an S3 server, with the settings of its clients."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield address
    running.stop()


@pytest.fixture(scope="session")
def programs() -> Iterator[list[str]]:
    """The option that makes the commands of a followed page start at once, where processes can be forked."""
    if not hasattr(os, "fork"):
        yield []
        return
    with warm_programs() as folder:
        yield ["--programs", str(folder)]


@pytest.fixture
def impatient() -> Iterator[None]:
    """Give up on a scheduler that does not answer within two seconds."""
    import dask
    import distributed  # noqa: F401  (first: a context opened before it would take its settings away again)

    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
        yield


@pytest.fixture
def bucket(server: str) -> str:
    import s3fs

    name = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem(endpoint_url=server).mkdir(name)
    return name


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs rights that this process lacks")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
