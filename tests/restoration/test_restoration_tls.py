"""A scheduler elsewhere is joined with TLS: with certificates it works, without them nobody gets in."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sfumato.data.images.io import open_image, write_image
from sfumato.restoration.engines import Certificates, Dask
from sfumato.restoration.planning import plan_restoration
from sfumato.restoration.run import run_restoration
from sfumato.system.errors import RunError
from untrained_models import SMALL, noise, write_model

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return Certificates(certificate, certificate, key)


@pytest.fixture(scope="module")
def scheduler(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, folder = f"tls://127.0.0.1:{port}", tmp_path_factory.mktemp("cluster")
    tls = ["--tls-ca-file", str(certificates.authority), "--tls-cert", str(certificates.certificate)]
    tls += ["--tls-key", str(certificates.key), "--no-dashboard"]
    program = [sys.executable, "-m"]
    host = ["--host", "127.0.0.1"]
    commands = [
        [*program, "distributed.cli.dask_scheduler", "--protocol", "tls", *host, "--port", str(port), *tls],
        [*program, "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", *tls],
    ]
    with (folder / "log.txt").open("w") as log:
        running = [subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) for command in commands]
        yield address
        for process in running:
            process.kill()
            process.wait()


def test_with_certificates_a_restoration_runs_there(scheduler: str, certificates: Certificates, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors")
    write_image(tmp_path / "in.tif", noise(40, 36), axes="YX")
    there, here = (
        plan_restoration(model, tmp_path / "in.tif", tmp_path / name, SMALL) for name in ("a.zarr", "b.zarr")
    )
    run_restoration(there, engine=Dask(scheduler=scheduler, certificates=certificates))
    run_restoration(here)
    np.testing.assert_array_equal(open_image(there.files[0]).read(), open_image(here.files[0]).read())


@pytest.mark.usefixtures("impatient")
def test_without_certificates_nobody_joins(scheduler: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors")
    write_image(tmp_path / "in.tif", noise(40, 36), axes="YX")
    planned = plan_restoration(model, tmp_path / "in.tif", tmp_path / "out.zarr", SMALL)
    for address in (scheduler, scheduler.replace("tls", "tcp")):
        with pytest.raises(RunError, match="no cluster"):
            run_restoration(planned, engine=Dask(scheduler=address))
