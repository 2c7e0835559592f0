"""Output images at an address: a real S3 server on this machine, and the memory of this process."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from filled_outputs import VERSIONS, Version, blocks, create, fill, noise
from object_store import objects
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import open_image
from sfumato.data.images.output import OutputImage
from sfumato.system.errors import ImageError, StorageError

pytest.importorskip("fsspec", reason="fsspec is not installed")


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("version", "sharded"), VERSIONS)
def test_the_same_bytes_on_s3_as_on_disk(
    version: Version, sharded: bool, server: str, bucket: str, tmp_path: Path
) -> None:
    array = noise((70, 45))
    remote = create(f"s3://{bucket}/folder/out.zarr", "YX", (70, 45), version=version, sharded=sharded)
    local = create(tmp_path / "out.zarr", "YX", (70, 45), version=version, sharded=sharded)
    for output in (remote, local):
        fill(output, array)
    assert objects(server, f"{bucket}/folder/out.zarr") == files(tmp_path / "out.zarr")
    opened = open_image(f"s3://{bucket}/folder/out.zarr")
    np.testing.assert_array_equal(opened.read(), array)
    assert opened.pixel_size["Y"] == PixelSize(250, "nanometer")
    assert opened.metadata == {"model": "m"}
    assert OutputImage.open(remote.place).levels == local.levels


def test_an_image_on_s3_is_created_once(server: str, bucket: str) -> None:
    place = f"s3://{bucket}/out.zarr"
    output = create(place, "YX", (70, 45))
    fill(output, noise((70, 45)))
    before = objects(server, f"{bucket}/out.zarr")
    create(place, "YX", (70, 45))
    with pytest.raises(ImageError, match="exists and differs"):
        create(place, "YX", (70, 45), dtype="uint8")
    assert objects(server, f"{bucket}/out.zarr") == before


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_creation_that_was_stopped_on_s3_is_taken_up(version: Version, server: str, bucket: str) -> None:
    import s3fs

    system = s3fs.S3FileSystem(endpoint_url=server)
    place = f"{bucket}/out.zarr"
    create(f"s3://{place}", "YX", (70, 45), version=version)
    whole = objects(server, place)
    system.rm_file(f"{place}/{'zarr.json' if version == '0.5' else '.zgroup'}")
    with pytest.raises(ImageError):
        OutputImage.open(f"s3://{place}")
    with pytest.raises(ImageError, match="exists and is not an image of sfumato"):
        create(f"s3://{place}", "YX", (70, 45), version=version, dtype="uint8")
    create(f"s3://{place}", "YX", (70, 45), version=version)
    assert objects(server, place) == whole
    system.pipe_file(f"{bucket}/mine/thesis.txt", b"mine")
    with pytest.raises(ImageError, match="exists and is not an image of sfumato"):
        create(f"s3://{bucket}/mine", "YX", (70, 45), version=version)
    assert objects(server, f"{bucket}/mine") == {"thesis.txt": b"mine"}


def test_a_bucket_that_is_not_there(server: str) -> None:
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/out.zarr: .* expected a place"):
        create("s3://no-such-bucket/out.zarr", "YX", (70, 45))


def test_an_image_in_memory() -> None:
    place = f"memory://{uuid.uuid4().hex}/out.zarr"
    output = create(place, "YX", (70, 45), sharded=True)
    fill(output, noise((70, 45)))
    np.testing.assert_array_equal(OutputImage.open(place).read(0, (0, 0), (70, 45)), noise((70, 45)))
    assert len(blocks(output, 0)) == 6
    output.remove_leftovers()


def test_addresses_that_lead_nowhere() -> None:
    with pytest.raises(ImageError, match="expected one without"):
        create("memory://folder/../out.zarr", "YX", (70, 45))
    with pytest.raises(ImageError, match="Protocol not known: teleport"):
        create("teleport://folder/out.zarr", "YX", (70, 45))


@pytest.mark.parametrize("missing", ["s3fs", "fsspec"])
def test_the_extra_is_named_where_a_library_is_missing(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None  # as Python does for what cannot be imported
from sfumato.data.images.output import OutputImage
try:
    OutputImage.open("s3://bucket/out.zarr")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert "pip install 'sfumato[remote]'" in done.stdout, done.stderr
