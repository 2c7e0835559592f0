"""Memory that really runs out: a process under a limit restores with a smaller batch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato.data.images.io import open_image, write_image
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration
from untrained_models import write_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory differ elsewhere")

SIDE, BATCH = 384, 16
"""Of a network with 4 filters: features take 2 MB for a sample and 38 MB for 16, and several are alive at once."""
ALLOWED = 120 * 2**20
"""Beyond what a process takes that has restored a small image: enough for a sample, too little for 16."""

LIMITED = """
import re, resource, sys
from pathlib import Path
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration

model, small, large, out, batch, allowed = sys.argv[1:]
settings = Settings(int(batch), 1, batch=int(batch), threads=1)
run_restoration(plan_restoration(model, small, Path(out) / "small.zarr", settings))
taken = 1024 * int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
resource.setrlimit(resource.RLIMIT_DATA, (taken + int(allowed),) * 2)
planned = plan_restoration(model, large, Path(out) / "large.zarr", settings)
run_restoration(planned)
print((planned.journal / "notes.txt").read_text())
"""


def test_the_batch_is_halved_until_it_fits_into_memory(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors", norm="population")
    pixels = np.random.default_rng(0).normal(100, 10, (SIDE, SIDE)).astype(np.float32)
    for name, side in (("small", 32), ("large", SIDE)):
        write_image(tmp_path / f"{name}.tif", pixels[:side, :side], axes="YX")
    places = [str(model), str(tmp_path / "small.tif"), str(tmp_path / "large.tif"), str(tmp_path)]
    command = [sys.executable, "-c", LIMITED, *places, str(BATCH), str(ALLOWED)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "at a time" in ran.stdout
    free = plan_restoration(
        model, tmp_path / "large.tif", tmp_path / "free.zarr", Settings(BATCH, 1, batch=BATCH, threads=1)
    )
    run_restoration(free)
    expected, found = (open_image(place).read({}) for place in (free.files[0], tmp_path / "large.zarr"))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
