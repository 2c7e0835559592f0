"""Bad input of every kind: the error is an ImageError that says what was got, what was expected and what to do."""

import contextlib
import io
import json
import pickle
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image as PillowImage

from fuzz_readers import peak_memory
from io_samples import deltavision, mrc_header, pattern
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import open_image, write_image
from sfumato.system.errors import ImageError

SIDE = 316_228  # its square is 100 gigapixels


class Marker:
    """Something whose unpickling leaves a trace."""

    made = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return mark, ()


def mark() -> None:
    Marker.made = True


# Makers of bad files: each writes one into a folder and gives its path.


def bare(content: bytes, name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def tiff(**options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, pattern(3, 20, 30), **{"photometric": "minisblack", "metadata": None, **options})
    return file.getvalue()


def cut(content: bytes, end: int) -> bytes:
    return content[:end]


def with_tag(content: bytes, code: int, value: int) -> bytes:
    """Overwrite the value of a tag on the first page of a little-endian TIFF."""
    changed = bytearray(content)
    (start,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, start)
    for place in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from("<HH", content, place)
        if tag == code:
            struct.pack_into("<H" if kind == 3 else "<I", changed, place + 8, value)
            return bytes(changed)
    raise AssertionError(f"no tag {code}")


def looped() -> bytes:
    """A TIFF whose second page is followed by the first."""
    content = bytearray(tiff())
    (first,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, first)
    (second,) = struct.unpack_from("<I", content, first + 2 + 12 * count)
    (count,) = struct.unpack_from("<H", content, second)
    struct.pack_into("<I", content, second + 2 + 12 * count, first)
    return bytes(content)


def ome(change: Callable[[str], str]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "a.ome.tif"
        write_image(path, pattern(3, 20, 30), axes="ZYX")
        text = str(tifffile.tiffcomment(path))
        assert change(text) != text
        tifffile.tiffcomment(path, change(text).encode())
        return path

    return make


def elsewhere(text: str) -> str:
    """Planes in this file and in another, outside of the folder."""
    other = '<TiffData FirstZ="2" IFD="0" PlaneCount="1"><UUID FileName="../other.ome.tif">urn:uuid:2</UUID></TiffData>'
    this = '<TiffData IFD="0" PlaneCount="2"><UUID FileName="a.ome.tif">urn:uuid:1</UUID></TiffData>'
    return re.sub("<TiffData[^>]*>", this + other, text)


def picture_inside(compression: str, kept: slice = slice(None)) -> Callable[[Path], Path]:
    """A TIFF of one strip, of which only a part is kept."""

    def make(folder: Path) -> Path:
        path = folder / "a.tif"
        tifffile.imwrite(path, pattern(20, 30, dtype=np.uint8), compression=compression, metadata=None)
        with tifffile.TiffFile(path) as file:
            offset, length = file.pages[0].dataoffsets[0], file.pages[0].databytecounts[0]
        content = path.read_bytes()
        strip = content[offset : offset + length][kept]
        path.write_bytes(with_tag(content[:offset] + strip + content[offset + length :], 279, len(strip)))
        return path

    return make


def large_inside(compression: str, marker: bytes, at: int, form: str) -> Callable[[Path], Path]:
    """A TIFF of 20 x 30 pixels in one strip, whose own header declares 65500 x 65500."""

    def make(folder: Path) -> Path:
        path = picture_inside(compression)(folder)
        content = bytearray(path.read_bytes())
        struct.pack_into(form, content, content.index(marker) + at, 65500, 65500)
        path.write_bytes(content)
        return path

    return make


def mrc(shape: tuple[int, int, int] = (2, 20, 30), mode: int = 6, pixels: int = 1200, **fields: int) -> bytes:
    header = bytearray(mrc_header(shape, mode, cell=(1, 1, 1)))
    for offset, value in fields.items():
        struct.pack_into("<i", header, int(offset.removeprefix("at")), value)
    return bytes(header) + bytes(2 * pixels)


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def npy_header(**changes: str) -> bytes:
    text = "{'descr': '<u2', 'fortran_order': False, 'shape': (20, 30), }"
    for old, new in changes.items():
        text = re.sub(f"(?<='{old}': )('[^']*'|\\([^)]*\\)|[^,]*)", new, text)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def npz(members: dict[str, bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return folder / "a.npz"

    return make


def png(*, width: int = 30, height: int = 20, colour: int = 0) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(31 * 20))) + chunk(b"IEND", b"")


def jpeg(*, side: int | None = None) -> bytes:
    file = io.BytesIO()
    PillowImage.fromarray(pattern(64, 64, dtype=np.uint8)).save(file, "JPEG")
    content = bytearray(file.getvalue())
    if side is not None:
        frame = content.index(b"\xff\xc0")
        struct.pack_into(">HH", content, frame + 5, side, side)
    return bytes(content)


def store(change: Callable[[Path], None], version: Any = "0.5", name: str = "a.ome.zarr") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write_image(folder / name, pattern(3, 20, 30), axes="ZYX", ome_zarr_version=version)
        change(folder / name)
        return folder / name

    return make


def overwritten(file: str, content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        (path / file).write_bytes(content)

    return make


def edit(file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change a metadata document in place."""

    def make(path: Path) -> None:
        document = json.loads((path / file).read_text())
        change(document)
        (path / file).write_text(json.dumps(document))

    return make


def set_at(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def pickled_chunk(path: Path) -> None:
    """A chunk that Zarr 2 would unpickle, were its codec let in."""
    edit("0/.zarray", set_at("compressor", value={"id": "pickle"}))(path)
    (path / "0/0/0/0").write_bytes(pickle.dumps(Marker()))


def many_chunks(path: Path) -> None:
    """A chunk for each of 1.1 million pixels."""
    edit("0/zarr.json", set_at("shape", value=[11, 320, 320]))(path)
    edit("0/zarr.json", set_at("chunk_grid", "configuration", "chunk_shape", value=[1, 1, 1]))(path)


IMAGE_KEYS = ("attributes", "ome", "multiscales", 0)


class Case(NamedTuple):
    """A bad file, and what its error must say was got, was expected, and is to be done."""

    name: str
    make: Callable[[Path], Path]
    got: str
    expected: str
    advice: str


AGAIN = "copy it again or save it again"
CASES = [
    Case("missing", lambda f: f / "no.tif", r"no\.tif does not exist", "an? .*image there", "check the path"),
    Case("empty", bare(b"", "a.tif"), r"is empty \(0 bytes\)", "TIFF, OME-TIFF", "copy or save it again"),
    Case("text", bare(b"hello world", "a.txt"), "b'hello wo'", "TIFF, OME-TIFF", "convert it"),
    Case("folder", lambda f: f, "is a folder without Zarr", "one image", "open a file inside"),
    Case("bad name", lambda f: f / "\0.tif", "null", "supported image", AGAIN),
    Case("TIFF, 6 bytes", bare(tiff()[:6], "a.tif"), "page 0 begins or ends after its 6 bytes", "valid TIFF", AGAIN),
    Case(
        "TIFF, block cut off",
        bare(cut(tiff(contiguous=True), 3000), "a.tif"),
        "begins or ends after its 3,000 bytes|but its TIFF header declares",
        "whole",
        "copy it again",
    ),
    Case(
        "TIFF, strip cut off",
        bare(cut(tiff(compression="zlib")[:-20], 10**9), "a.tif"),
        "reaches to byte|begins or ends after",
        "valid TIFF",
        AGAIN,
    ),
    Case(
        "TIFF, 100 gigapixels, packed",
        bare(with_tag(with_tag(with_tag(tiff(compression="zlib"), 256, SIDE), 257, SIDE), 278, SIDE), "a.tif"),
        r"page 0 of \(1, 1, 316228, 316228, 1\) pixels is packed in [\d,]+ bytes",
        "at least [0-9,]+ bytes",
        AGAIN,
    ),
    Case(
        "TIFF, 100 gigapixels, plain",
        bare(with_tag(with_tag(with_tag(tiff(), 256, SIDE), 257, SIDE), 278, SIDE), "a.tif"),
        "declares 200,0|is packed in 1,200 bytes",
        "the whole image|at least 200,0",
        "again",
    ),
    Case("TIFF, endless", bare(looped(), "a.tif"), "page 2 points back to byte", "valid TIFF", AGAIN),
    Case(
        "TIFF, rows per strip",
        bare(with_tag(tiff(compression="zlib"), 278, 2), "a.tif"),
        "page 0 has 1 and 1 offsets and lengths",
        "10 of each",
        AGAIN,
    ),
    Case(
        "TIFF, wider than its strips",
        bare(with_tag(tiff(compression="zlib"), 256, 40), "a.tif"),
        "a strip or tile unpacks to 1,200 bytes; its header declares 1,600",
        "valid TIFF",
        AGAIN,
    ),
    Case(
        "TIFF, too many tags",
        bare(tiff()[:8] + b"\xff\xff" + tiff()[10:], "a.tif"),
        "page 0 has 65535 tags",
        "at most 4096",
        AGAIN,
    ),
    Case(
        "TIFF, a larger JPEG inside",
        large_inside("jpeg", b"\xff\xc0", 5, ">HH"),
        r"a picture of \(65500, 65500\) pixels; its header declares \(20, 30\)",
        "valid TIFF",
        AGAIN,
    ),
    Case(
        "TIFF, a larger JPEG 2000 inside",
        large_inside("jpeg2000", b"\xff\x4f\xff\x51", 8, ">II"),
        r"a picture of \(65500, 65500\) pixels; its header declares \(20, 30\)",
        "valid TIFF",
        AGAIN,
    ),
    Case("TIFF, JPEG XL cut off", picture_inside("jpegxl", slice(0, 40)), "JpegxlError", "valid TIFF", AGAIN),
    Case("TIFF, JPEG XR cut off", picture_inside("jpegxr", slice(0, 40)), "not found", "valid TIFF", AGAIN),
    Case("TIFF, JPEG without a picture", picture_inside("jpeg", slice(0, 4)), r"of \(0, 0\) pixels", "valid", AGAIN),
    Case("TIFF, zstd cut off", picture_inside("zstd", slice(0, 40)), "ZstdError", "valid TIFF", AGAIN),
    Case("TIFF, LZW cut off", picture_inside("lzw", slice(0, 40)), "unpacks to", "valid TIFF", AGAIN),
    Case("TIFF, PackBits cut off", picture_inside("packbits", slice(0, 40)), "unpacks to|Imcd", "valid TIFF", AGAIN),
    Case(
        "TIFF, unknown compression",
        bare(with_tag(tiff(compression="zlib"), 259, 12345), "a.tif"),
        "compressed with 12345",
        "a compression that the library imagecodecs can undo",
        "save it again, for example with deflate",
    ),
    Case(
        "TIFF, odd bits",
        bare(with_tag(tiff(compression="zlib"), 258, 67), "a.tif"),
        "pixels have 67 bits",
        "numbers of 1 to 64 bits",
        AGAIN,
    ),
    Case(
        "OME-TIFF, planes missing",
        ome(lambda text: text.replace('SizeZ="3"', 'SizeZ="30000000000"')),
        "30,000,000,000 planes .* while it has 3 pages",
        "a page for each plane",
        "copy it again",
    ),
    Case("OME-TIFF, other files", ome(elsewhere), r"names the files \['\.\./other", "in this very file", "join a set"),
    Case(
        "OME-TIFF, planes twice",
        ome(lambda text: re.sub("(<TiffData[^>]*>)", r"\1\1", text)),
        "gives planes before the first, or more than once",
        "each once",
        AGAIN,
    ),
    Case(
        "OME-TIFF, planes without page",
        ome(lambda text: re.sub("<TiffData[^>]*>", '<TiffData IFD="1" PlaneCount="3"/>', text)),
        "gives pages to 2 of 3 planes",
        "one for each",
        AGAIN,
    ),
    Case(
        "OME-TIFF, entities",
        ome(lambda text: text.replace("<OME ", '<!DOCTYPE a [<!ENTITY b "c">]><OME ', 1)),
        "defines entities",
        "plain OME-XML",
        AGAIN,
    ),
    Case("OME-TIFF, no XML", ome(lambda text: text.replace("<Image ", "<Imag")), "ParseError", "valid TIFF", AGAIN),
    Case("OME-TIFF, no image", ome(lambda text: re.sub("Image", "Other", text)), "no image", "pixels", "join the set"),
    Case(
        "OME-TIFF, order",
        ome(lambda text: re.sub('DimensionOrder="[A-Z]*"', 'DimensionOrder="XYZZZ"', text)),
        "order 'XYZZZ'",
        "XY and then Z, C, T",
        AGAIN,
    ),
    Case("MRC, 500 bytes", bare(mrc()[:500], "a.mrc"), "has 500 bytes", "a.* MRC header of 1024", "copy it again"),
    Case(
        "MRC, cut off",
        bare(mrc()[:-1], "a.mrc"),
        "has 3,423 bytes but its MRC header declares 3,424",
        "the whole image",
        "copy it again",
    ),
    Case(
        "MRC, 100 gigapixels",
        bare(mrc((1, SIDE, SIDE)), "a.mrc"),
        "declares 200,000,296,992",
        "the whole image",
        "copy it again",
    ),
    Case("MRC, negative", bare(mrc((-3, 20, 30)), "a.mrc"), "nz = 30, 20, -3", "positive numbers", "save it again"),
    Case("MRC, mode", bare(mrc(mode=3), "a.mrc"), "MRC mode 3", "one of", "convert it"),
    Case(
        "MRC, extended header",
        bare(mrc(at92=-5000), "a.mrc"),
        "from byte -1",
        "the whole image",
        "copy it again",
    ),
    Case(
        "DeltaVision, cut off",
        bare(deltavision((9, 256, 256), 6) + bytes(1000), "a.dv"),
        r"has 2,024 bytes but its MRC \(DeltaVision\) header declares 1,180,672",
        "the whole image",
        "copy it again",
    ),
    Case(
        "npy, Python objects",
        bare(npy(np.array([[Marker()]]), allow_pickle=True), "a.npy"),
        "values of type object",
        "an array of numbers",
        "convert it with numpy.save",
    ),
    Case(
        "npy, records",
        bare(npy(np.zeros((2, 2), [("a", "f4")])), "a.npy"),
        r"values of type \[\('a'",
        "an array of numbers",
        "convert it",
    ),
    Case("npy, text", bare(npy(np.array([["a"]])), "a.npy"), "values of type <U1", "an array of numbers", "convert it"),
    Case(
        "npy, cut off",
        bare(npy(pattern(20, 30))[:-7], "a.npy"),
        "has 1,321 bytes but its npy header declares 1,328",
        "the whole image",
        "copy it again",
    ),
    Case(
        "npy, 100 gigapixels",
        bare(npy_header(shape=f"({SIDE}, {SIDE})") + bytes(99), "a.npy"),
        "declares 200,000,296,047",
        "the whole image",
        "copy it again",
    ),
    Case("npy, no pixels", bare(npy(np.zeros((0, 3))), "a.npy"), r"shape \(0, 3\)", "at least one pixel", "save"),
    Case("npy, one number", bare(npy(np.float32(1)), "a.npy"), "has 0 axes", "1 to 6, out of STCZYX", "split"),
    Case("npy, 7 axes", bare(npy(np.zeros((1,) * 7)), "a.npy"), "has 7 axes", "1 to 6, out of STCZYX", "squeeze"),
    Case(
        "npy, code in the header",
        bare(npy_header(shape="(__import__('os'), 3)"), "a.npy"),
        "ValueError: Cannot parse header|malformed node",
        "valid npy image",
        AGAIN,
    ),
    Case(
        "npy, a header of 60 kilobytes",
        bare(b"\x93NUMPY\x01\x00" + struct.pack("<H", 60000) + b"-" * 60000, "a.npy"),
        r"Header info length \(60000\) is large",
        "valid npy image",
        AGAIN,
    ),
    Case(
        "npy, of the future",
        bare(b"\x93NUMPY\x04\x00" + npy_header()[8:], "a.npy"),
        r"version \(4, 0\)",
        "1 to 3",
        "save it with numpy.save",
    ),
    Case(
        "npz, several",
        npz({"a.npy": npy(pattern(2, 2)), "b.npy": npy(pattern(2, 2))}),
        r"its only array and holds \['a', 'b'\]",
        "one of these",
        r"open .*a\.npz/a",
    ),
    Case(
        "npz, none of this name",
        lambda f: npz({"a.npy": npy(pattern(2, 2))})(f) / "b",
        r"asked for 'b' and holds \['a'\]",
        "one of these",
        r"open .*a\.npz/a",
    ),
    Case(
        "npz, lying",
        npz({"a.npy": npy_header(shape=f"({SIDE}, {SIDE})") + bytes(99)}),
        "header declares 200,000,296,047",
        "the whole array",
        "save it again",
    ),
    Case(
        "npz, Python objects",
        npz({"a.npy": npy(np.array([[Marker()]]), allow_pickle=True)}),
        "values of type object",
        "an array of numbers",
        "convert it",
    ),
    Case("PNG, cut off", bare(png()[:45], "a.png"), "chunk b'IDAT' of", "valid PNG", AGAIN),
    Case("PNG, no pixels", bare(png()[:33], "a.png"), r"chunks \[b'IHDR'\]", "grey, colour or palette", AGAIN),
    Case("PNG, colour type", bare(png(colour=5), "a.png"), "colour type 5", "grey, colour or palette", AGAIN),
    Case(
        "PNG, too few rows",
        bare(png(height=21), "a.png"),
        "PngError: [nN]ot enough",
        "valid PNG",
        AGAIN,
    ),
    Case(
        "PNG, checksum",
        bare(png()[:29] + b"\0\0\0\0" + png()[33:], "a.png"),
        "PngError: IHDR: CRC error",
        "valid PNG",
        AGAIN,
    ),
    Case(
        "PNG, 100 gigapixels",
        bare(png(width=SIDE, height=SIDE), "a.png"),
        r"reading \(316228, 316228\) pixels of uint8 \(YX\) takes \d+,\d+,\d+,\d+ bytes",
        "at most the memory budget of 4,294,967,296",
        "read a smaller region or raise memory_budget",
    ),
    Case("JPEG, cut off", bare(jpeg()[:-300], "a.jpg"), "truncated", "valid JPEG", AGAIN),
    Case("JPEG, header only", bare(jpeg()[:30], "a.jpg"), "declares 0 x 0 pixels", "1, 3 or 4 channels", AGAIN),
    Case(
        "JPEG, 4 gigapixels",
        bare(jpeg(side=65500), "a.jpg"),
        r"reading \(65500, 65500\) pixels",
        "at most the memory budget",
        "raise memory_budget",
    ),
    Case(
        "Zarr, JSON",
        store(overwritten("zarr.json", b'{"attributes": ')),
        "JSONDecodeError",
        "valid OME-Zarr",
        AGAIN,
    ),
    Case(
        "Zarr, JSON nested without end",
        store(overwritten("zarr.json", b"[" * 10**6)),
        "RecursionError",
        "valid OME-Zarr",
        AGAIN,
    ),
    Case(
        "Zarr, a list",
        store(overwritten("zarr.json", b"[]")),
        r"zarr\.json holds a list",
        "a JSON object",
        AGAIN,
    ),
    Case(
        "Zarr, a plate",
        store(edit("zarr.json", set_at("attributes", value={"ome": {"plate": {}}}))),
        r"metadata has \['plate'\]",
        "multiscales",
        "open one image inside, such as path/0",
    ),
    Case(
        "Zarr, out of the store",
        store(edit("zarr.json", set_at(*IMAGE_KEYS, "datasets", 0, "path", value="../../secret"))),
        r"dataset is called '\.\./\.\./secret'",
        "a name inside the store",
        AGAIN,
    ),
    Case(
        "Zarr, absolute name",
        store(edit("zarr.json", set_at(*IMAGE_KEYS, "datasets", 0, "path", value="/etc"))),
        "dataset is called '/etc'",
        "a name inside the store",
        AGAIN,
    ),
    Case(
        "Zarr, no dataset",
        store(lambda path: shutil.rmtree(path / "0")),
        "there is no Zarr array in",
        "the one that its metadata names",
        AGAIN,
    ),
    Case(
        "Zarr, axes do not fit",
        store(edit("zarr.json", set_at(*IMAGE_KEYS, "axes", value=[{"name": "y"}, {"name": "x"}, {"name": "y"}]))),
        "axes are 'YXY'",
        "no letter twice",
        "name them in the order of storage",
    ),
    Case(
        "Zarr, scale does not fit",
        store(
            edit(
                "zarr.json",
                set_at(*IMAGE_KEYS, "datasets", 0, "coordinateTransformations", 0, "scale", value=[1, 2, 3, 4]),
            )
        ),
        "ValueError",
        "valid OME-Zarr",
        AGAIN,
    ),
    Case("Zarr 2, pickle", store(pickled_chunk, "0.4"), r"packed with \['pickle'\]", "only .*'blosc'", AGAIN),
    Case(
        "Zarr 2, objects",
        store(edit("0/.zarray", set_at("dtype", value="|O")), "0.4"),
        r"type is '\|O'",
        "a type of numbers",
        AGAIN,
    ),
    Case(
        "Zarr 2, chunks",
        store(edit("0/.zarray", set_at("chunks", value=[0, 20, 30])), "0.4"),
        r"in chunks of \[0, 20, 30\]",
        "positive whole numbers",
        AGAIN,
    ),
    Case(
        "Zarr, shape",
        store(edit("0/zarr.json", set_at("shape", value=[3, 20, -30]))),
        r"shape is \[3, 20, -30\]",
        "positive whole numbers",
        AGAIN,
    ),
    Case(
        "Zarr, codec",
        store(edit("0/zarr.json", set_at("codecs", 1, value={"name": "numcodecs.pickle"}))),
        r"packed with \['numcodecs.pickle'\]",
        "only",
        AGAIN,
    ),
    Case(
        "Zarr, 100 gigapixels",
        store(edit("0/zarr.json", set_at("shape", value=[1, SIDE, SIDE]))),
        r"reading \(1, 316228, 316228\) pixels",
        "at most the memory budget",
        "read a smaller region",
    ),
    Case(
        "Zarr, a chunk of 100 gigapixels",
        store(
            edit(
                "0/zarr.json",
                set_at("chunk_grid", "configuration", "chunk_shape", value=[1, SIDE, SIDE]),
            )
        ),
        "takes [0-9,]+ bytes",
        "at most the memory budget",
        "read a smaller region",
    ),
    Case("Zarr, a million chunks", store(many_chunks), "takes [0-9,]+ bytes", "memory budget", "smaller region"),
    Case(
        "Zarr, chunk cut off",
        store(overwritten("0/c/0/0/0", b"(\xb5/\xfd\x60")),
        "decompress|Error",
        "valid OME-Zarr",
        AGAIN,
    ),
    Case(
        "Zarr, chunk of another size",
        store(edit("0/zarr.json", set_at("data_type", value="float64"))),
        "ValueError|Error",
        "valid OME-Zarr",
        AGAIN,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(case: Case, tmp_path: Path) -> None:
    path = case.make(tmp_path)
    with pytest.raises(ImageError) as caught:
        open_image(path).read()
    text = str(caught.value)
    assert re.search(case.got, text), text
    assert re.search(f"expected .*{case.expected}", text), text
    assert re.search(f"; .*{case.advice}", text), text
    assert text.startswith(str(path)[:20]) or "axes" in text, text
    assert not Marker.made


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 20
    assert len({case.name for case in CASES}) == len(CASES)


class Refusal(NamedTuple):
    """What cannot be written, and what the error must say."""

    name: str
    array: Any
    options: dict[str, Any]
    texts: tuple[str, str, str]


GREY = np.zeros((4, 5), np.uint8)
MICROMETER = PixelSize(1.0, "micrometer")
REFUSALS = [
    Refusal("a.bmp", GREY, {}, ("suffix '.bmp'", "expected .tif", "choose one")),
    Refusal("no/a.tif", GREY, {}, ("no is not a folder", "expected one", "make it first")),
    Refusal("a.tif", GREY, {"axes": "ZYX"}, ("'ZYX' for an array with 2", "expected one letter", "name them")),
    Refusal("a.tif", GREY, {"axes": "YQ"}, ("axes are 'YQ'", "out of STCZYX", "name them")),
    Refusal("a.tif", GREY, {"axes": "YY"}, ("axes are 'YY'", "no letter twice", "name them")),
    Refusal("a.tif", GREY, {"axes": "ZT"}, ("axes are ZT", "expected Y and X", "write .npy")),
    Refusal("a.zarr", GREY, {"axes": "ZT"}, ("axes are ZT", "expects Y and X", "write a .tif")),
    Refusal("a.zarr", np.zeros((1, 1, 4, 5)), {"axes": "SCYX"}, ("SCYX", "S or C but not both", "one store for each")),
    Refusal("a.zarr", GREY, {"ome_zarr_version": "0.3"}, ("'0.3'", "expected '0.4' or '0.5'", "choose one")),
    Refusal("a.png", GREY.astype(float), {}, ("the image is float64", "holds uint8 or uint16", "write .tif")),
    Refusal("a.png", np.zeros((5, 4, 5), np.uint8), {"axes": "CYX"}, ("5 channels", "up to 4", "write .tif")),
    Refusal("a.png", np.zeros((5, 4, 5), np.uint8), {"axes": "ZYX"}, ("ZYX", "expected Z to stay", "select one index")),
    Refusal("a.png", GREY, {"pixel_size": {"X": MICROMETER}}, ("sizes for ['X']", "X and Y together", "write .tif")),
    Refusal(
        "a.png",
        GREY,
        {"pixel_size": {axis: PixelSize(1.0, "millimeter") for axis in "XY"}},
        ("millimeter", "can keep 0.3 nanometer to 5 micrometer", "write .tif"),
    ),
    Refusal("a.npy", GREY, {"pixel_size": {"X": MICROMETER}}, ("sizes ['X']", "expected none", "write .tif or .zarr")),
    Refusal("a.npy", GREY, {"metadata": {"a": 1}}, ("metadata ['a']", "expected none", "write .tif or .zarr")),
    Refusal("a.tif", GREY, {"pixel_size": {"Z": MICROMETER}}, ("'Z' is 1.0", "axes that are there", "leave")),
    Refusal("a.tif", GREY, {"pixel_size": {"X": PixelSize(1, "second")}}, ("1 second", "a length", "leave")),
    Refusal("a.tif", GREY[:0], {}, ("shape (0, 5)", "at least one pixel", "nothing to write")),
    Refusal("a.tif", np.array([["a"]]), {}, ("type 'str", "integers, floats", "convert")),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: f"{refusal.name} {refusal.texts[0]}")
def test_what_cannot_be_written(refusal: Refusal, tmp_path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        write_image(tmp_path / refusal.name, refusal.array, **{"axes": "YX", **refusal.options})
    for text in refusal.texts:
        assert text in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_sizes_that_are_none() -> None:
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ImageError, match="expected a positive number; leave it out"):
            PixelSize(value, "micrometer")
    with pytest.raises(ImageError, match="unit is 'furlong'; expected a word such as"):
        PixelSize(1.0, "furlong")


def test_a_folder_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.tif").write_bytes(tiff())
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ImageError, match=r"may not be read; expected a readable .* image; check its rights"):
        open_image(tmp_path / "a.tif")


def test_a_file_that_shrinks_after_opening(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(compression="zlib"))
    image = open_image(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ImageError, match="could not be read"):
        image.read()


@pytest.mark.parametrize("compression", ["zlib", "lzw", "packbits", "zstd", "lzma"])
def test_a_small_file_does_not_unpack_into_a_large_block(compression: str, tmp_path: Path) -> None:
    """A strip that holds more than its header says is refused, or cut where the header says."""
    run = bytes([257 - 128, 0])  # 128 zeros; imagecodecs takes minutes to find the runs
    packbits = compression == "packbits"
    bomb = run * (10**8 // 128) if packbits else getattr(imagecodecs, f"{compression}_encode")(bytes(10**8))
    tifffile.imwrite(tmp_path / "a.tif", pattern(20, 30), compression=compression, metadata=None)
    content = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        offset, length = file.pages[0].dataoffsets[0], file.pages[0].databytecounts[0]
    assert offset + length == len(content)
    changed = with_tag(bytes(content[:offset]) + bomb, 279, len(bomb))
    (tmp_path / "a.tif").write_bytes(changed)
    image = open_image(tmp_path / "a.tif", memory_budget=len(bomb) + 10**6)
    before = peak_memory(reset=True)
    with contextlib.suppress(ImageError):
        assert image.read().max() == 0
    assert peak_memory() - before < len(bomb) + 10**7
