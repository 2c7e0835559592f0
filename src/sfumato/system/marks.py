"""Recognise files that sfumato wrote by a mark in each kind of file.

A picture has a text chunk, a page a tag in its head and an ONNX file its producer; tables and JSON files are recognised
by their columns and keys, model files and images by their metadata.
"""

import json
import struct
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from sfumato.system.version import __version__

__all__ = [
    "ANYTHING",
    "GENERATOR",
    "JOURNAL",
    "NETWORK",
    "PACKAGE",
    "PAGE",
    "PICTURE",
    "PRODUCER",
    "SOFTWARE",
    "Kind",
    "json_object",
    "json_with",
    "text_like",
]

PRODUCER = "sfumato"
SOFTWARE = f"{PRODUCER} {__version__}"
"""Text chunk `Software` of pictures."""
GENERATOR = f"<meta name=generator content='{SOFTWARE}'>"
"""Tag in the head of a page."""

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_CHUNKS = 64
_MOST_TEXT = 2**26
_DESCRIPTIONS = ("rdf.yaml", "bioimageio.yaml")
_JOB = ("model_sha256", "source", "outputs", "plan")
_JOURNAL_FILES = ("parts", "notes.txt")
_JOURNAL_SUFFIXES = (".records", ".unfinished")


class Kind(NamedTuple):
    """A kind of output."""

    name: str
    """Name for messages, such as ``picture``."""
    is_ours: Callable[[Path], bool]
    """Whether sfumato wrote the file at a path as an output of this kind."""
    suffix: str = ""
    """Required suffix of its names, if any."""


def text_like(name: str, is_ours: Callable[[str], bool]) -> Kind:
    """Make a kind of text file that is recognised by its content."""
    return _file_like(name, lambda file: is_ours(_text(file)))


def json_with(name: str, keys: Collection[str]) -> Kind:
    """Make a kind of JSON file that is recognised by its keys."""
    return text_like(name, lambda text: json_object(text).keys() >= set(keys))


def _file_like(name: str, is_ours: Callable[[BinaryIO], bool], suffix: str = "") -> Kind:
    def recognise(path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return is_ours(file)

    return Kind(name, recognise, suffix)


def _is_picture(file: BinaryIO) -> bool:
    """Whether a file is a PNG with our name in a text chunk before its pixels."""
    if file.read(len(_PNG)) != _PNG:
        return False
    for _ in range(_MOST_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            return False
        length, name = struct.unpack(">I4s", head)
        if name == b"IDAT":
            return False
        if name == b"tEXt":
            mark = f"Software\0{PRODUCER} ".encode()
            start = file.read(min(length, len(mark)))
            if start == mark:
                return True
            length -= len(start)
        file.seek(length + 4, 1)
    return False


def _is_page(text: str) -> bool:
    return GENERATOR.partition(__version__)[0] in text.partition("</head>")[0]


def _is_network(file: BinaryIO) -> bool:
    """Whether a file is an ONNX file with our name as its producer, the second field of the format."""
    name = PRODUCER.encode()
    return b"\x12" + bytes([len(name)]) + name in file.read(32)


def _is_package(file: BinaryIO) -> bool:
    """Whether a file is a BioImage.IO package whose description has our section."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in _DESCRIPTIONS if name in archive.namelist()]
            if not names:
                return False
            with archive.open(names[0]) as description:
                lines = _text(description).splitlines()
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False
    return any(line.strip() == f"{PRODUCER}:" for line in lines)


def _is_journal(folder: Path) -> bool:
    """Whether a folder holds the job of a restoration, or only what a killed one can leave."""
    if not folder.is_dir():
        return False
    if (folder / "job.json").exists():
        return json_with("job", _JOB).is_ours(folder / "job.json")
    return all(path.name in _JOURNAL_FILES or path.name.endswith(_JOURNAL_SUFFIXES) for path in folder.iterdir())


def _text(file: IO[bytes]) -> str:
    """Read the beginning of a text file."""
    return file.read(_MOST_TEXT).decode(errors="replace")


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse the JSON object in a text; empty if the text is something else."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


PICTURE = _file_like("picture", _is_picture, ".png")
PAGE = text_like("page", _is_page)
NETWORK = _file_like("network", _is_network)
PACKAGE = _file_like("BioImage.IO package", _is_package)
JOURNAL = Kind("journal of a restoration", _is_journal)
ANYTHING = Kind("output", lambda _: True)
"""An output whose writer itself checks what exists."""
