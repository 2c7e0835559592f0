"""Read and write named tensors in one safetensors file, checked before allocation and written whole or not at all.

::

    8 bytes     length of the header
    header      JSON: name -> dtype, shape, place; `__metadata__`: `sfumato` (JSON text) and `checksum`
    the rest    the tensors' bytes, without gaps

The safetensors library parses the header. The tensors are read in one pass through one file handle, so that tensors and
hash come from the same bytes even while a run replaces the file. They are never read through a memory map, where a
truncated file would kill the process. Writing is done here: the library puts the two texts of ``__metadata__`` in
random order, and the same contents must give the same bytes.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sfumato.system.atomic_files import replacing
from sfumato.system.errors import ModelFileError, RunError
from sfumato.system.version import __version__

__all__ = [
    "FileKind",
    "Spec",
    "TensorFile",
    "as_float32",
    "checksum",
    "differences",
    "layout",
    "not_finite",
    "open_tensors",
    "write_tensors",
]

FileKind = Literal["model", "training state"]

_FORMAT = 1
"""Number of the file format; a higher one was written by a newer version."""

_MOST_HEADER = 2**21
_MOST_LISTS = 2**17
"""Most lists and dictionaries in the metadata: millions would take seconds to parse."""
_BLOCK = 2**24
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
# A file with a header of 640 bytes starts like a pickle too, so these count only if the length is invalid.
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_HALF = (torch.float16, torch.bfloat16)
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Spec(NamedTuple):
    """Shape and dtype of a tensor, known before it is read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Size of its elements in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"


class TensorFile:
    """An open file whose header is valid.

    Attributes:
        path: Path of the file.
        metadata: Metadata from its writer.
        specs: Shapes and dtypes by name, in the order of the file.
        version: Version of sfumato that wrote it.
    """

    def __init__(self, path: Path, file: BufferedReader, kind: FileKind) -> None:
        self.path, self._file, self._kind = path, file, kind
        self._start = self._read_start()
        held, self.specs = self._parsed()
        self._text, self._checksum = held["sfumato"], held["checksum"]
        self.metadata = self._check_metadata()

    def read(self) -> tuple[dict[str, Tensor], str]:
        """Read all tensors and compute the SHA-256 of the file, in one pass."""
        digest = hashlib.sha256(self._start)
        tensors, parts = {}, {}
        for name, spec in self.specs.items():
            tensors[name] = torch.empty(spec.shape, dtype=spec.dtype, device="cpu")
            data, crc = _bytes_of(tensors[name]), 0
            for start in range(0, len(data), _BLOCK):
                block = data[start : start + _BLOCK]
                if self._file.readinto(block) != len(block):
                    raise self.error("ends too early", "copy it again")
                digest.update(block)
                crc = zlib.crc32(block, crc)
            parts[name] = (spec, crc)
        if checksum(self._text, parts) != self._checksum:
            raise self.error("is damaged: its checksum does not match its contents", "copy it again from its source")
        return tensors, digest.hexdigest()

    def error(self, fault: str, advice: str) -> ModelFileError:
        """Make an error that says what is wrong with this file and what to do."""
        return ModelFileError(f"{self.path} {fault}; {advice}")

    def _not_one(self, reason: str) -> ModelFileError:
        return self.error(f"is not a safetensors file: {reason}", "give a model.safetensors written by sfumato")

    def _read_start(self) -> bytes:
        """Read the length and the header, unless it is too large."""
        size = os.fstat(self._file.fileno()).st_size
        prefix = self._file.read(8)
        length = int.from_bytes(prefix, "little")
        if length > min(size - 8, _MOST_HEADER):
            if prefix.startswith(_PICKLES):
                raise self.error(
                    "is a pickle, as torch.save writes it, which can run any code when read and is never opened here",
                    "ask for the model as a safetensors file",
                )
            raise self._not_one(
                f"it has {size} bytes, and its header alone would take {length}, with at most {_MOST_HEADER} allowed"
            )
        return prefix + self._file.read(length)

    def _parsed(self) -> tuple[dict[str, str], dict[str, Spec]]:
        """Parse metadata and specs; the library checks that the tensors fill the file without gap or overlap."""
        try:
            with safe_open(self.path, "pt") as opened:
                held = opened.metadata() or {}
                slices = {name: opened.get_slice(name) for name in opened.offset_keys()}
                specs = {name: self._spec(name, part.get_dtype(), part.get_shape()) for name, part in slices.items()}
        except SafetensorError as error:
            raise self.error(
                f"is not a whole safetensors file: {str(error)[:300]!r}",
                "copy it again, or give a model.safetensors written by sfumato",
            ) from error
        if not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
            raise self.error("was replaced while it was opened", "try again")
        if not {"sfumato", "checksum"} <= held.keys():
            raise self.error(
                f"is a safetensors file, but not one of sfumato: its metadata are {sorted(held)!r:.100}",
                "give a model.safetensors written by sfumato",
            )
        return held, specs

    def _spec(self, name: str, dtype: str, shape: list[int]) -> Spec:
        if dtype not in _DTYPES:
            raise self.error(
                f"has the tensor {name!r:.100} of dtype {dtype!r:.100}, expected one of {', '.join(_DTYPES)}",
                "save it again with one of these",
            )
        return Spec(tuple(shape), _DTYPES[dtype])

    def _json(self, text: str) -> dict[str, Any]:
        try:
            if text.count("[") + text.count("{") > _MOST_LISTS:
                raise ValueError(f"it has more than {_MOST_LISTS} lists")
            values = json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
        except ValueError as error:
            raise self._not_one(f"its metadata cannot be used, {str(error)[:100]!r}") from error
        if not isinstance(values, dict):
            raise self._not_one("its metadata holds no named values")
        return values

    def _check_metadata(self) -> dict[str, Any]:
        metadata = self._json(self._text)
        number, version = metadata.get("format"), metadata.get("version")
        known = isinstance(version, str) and re.fullmatch(r"[\w.+-]{1,40}", version)
        self.version = str(version) if known else "of an unknown version"
        if type(number) is not int or number < 1:
            raise self.error(f"has the file format {number!r:.100}, expected a number from 1", "copy it again")
        if number > _FORMAT:
            raise self.error(
                f"was written by a newer sfumato ({self.version}, file format {number}); this is {__version__}, which "
                f"reads formats up to {_FORMAT}",
                "upgrade: pip install --upgrade sfumato",
            )
        if metadata.get("kind") != self._kind:
            wanted = "model.safetensors" if self._kind == "model" else "checkpoint"
            fault = f"holds a {metadata.get('kind')!s:.40}, expected a {self._kind}"
            raise self.error(fault, f"give the {wanted} of the run")
        return metadata


def layout(tensors: Mapping[str, Tensor]) -> dict[str, Spec]:
    """Return shapes and dtypes by name."""
    return {name: Spec(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def as_float32(specs: Mapping[str, Spec]) -> dict[str, Spec]:
    """Return the specs of the tensors once loaded: half precision becomes float32."""
    return {name: spec._replace(dtype=torch.float32) if spec.dtype in _HALF else spec for name, spec in specs.items()}


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors with weights that are not finite, which would make every restored pixel NaN."""
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()}
    # The minimum and maximum are NaN if any weight is, and need no memory.
    return [name for name, tensor in floats.items() if not bool(torch.stack(tensor.aminmax()).isfinite().all())]


def differences(found: Mapping[str, Spec], expected: Mapping[str, Spec]) -> str:
    """Describe up to five differences; empty if there are none."""
    lines = [f"{name!r} is missing" for name in expected if name not in found]
    lines += [f"{name!r:.100} should not be there" for name in found if name not in expected]
    lines += [
        f"{name!r} is {found[name]} instead of {spec}"
        for name, spec in expected.items()
        if name in found and found[name] != spec
    ]
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return "; ".join(lines[:5]) + more


@contextlib.contextmanager
def open_tensors(path: str | Path, kind: FileKind) -> Iterator[TensorFile]:
    """Open a file and check all of its header.

    Raises:
        ModelFileError: If it is not such a file, is damaged, or was written by a newer version.
    """
    path = Path(path)
    try:
        if not path.is_file():  # opening a pipe would block forever
            if path.is_dir():
                inside = path / "model.safetensors"
                known = inside if inside.is_file() else "the path of a model.safetensors"
                raise ModelFileError(f"{path} is a folder; expected a model file; give {known}")
            found = "is not a file" if path.exists() else "does not exist"
            raise ModelFileError(f"{path} {found}; give the path of a model.safetensors")
        with path.open("rb") as file:
            yield TensorFile(path, file, kind)
    except RecursionError as error:
        raise ModelFileError(f"{path} has a header that is nested too deeply; copy it again") from error
    except OSError as error:
        raise ModelFileError(
            f"cannot read {path}: {error.strerror or error}; check that you may read it, or copy it again"
        ) from error


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, kind: FileKind, untouched: str
) -> None:
    """Write a file whole or not at all; the same contents always give the same bytes.

    Args:
        path: Path of the file.
        tensors: Tensors by name.
        metadata: JSON values.
        kind: Kind of the file.
        untouched: What a failure leaves unchanged, for its message.

    Raises:
        RunError: If it cannot be written; no partial file is left, and ``path`` is unchanged.
    """
    values = {**metadata, "format": _FORMAT, "kind": kind, "version": __version__}
    try:
        text = json.dumps(values, allow_nan=False, sort_keys=True)
    except (ValueError, TypeError) as error:
        raise RunError(f"cannot write {path}: {error}; its metadata may have texts and finite numbers only") from error
    specs = dict(sorted(layout(tensors).items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    header = _header(specs, text, "00000000")
    if len(header) - 8 > _MOST_HEADER:
        raise RunError(
            f"cannot write {path}: its header would take {len(header)} bytes, of which {len(text)} are metadata, and "
            f"{_MOST_HEADER} is the most; shorten what is kept for the audit"
        )
    num_bytes = len(header) + sum(spec.num_bytes for spec in specs.values())
    with replacing(path, num_bytes=num_bytes, untouched=untouched) as file:
        file.write(header)
        parts = {name: (spec, _write(file, tensors[name])) for name, spec in specs.items()}
        file.seek(0)
        file.write(_header(specs, text, checksum(text, parts)))


def _header(specs: Mapping[str, Spec], text: str, check: str) -> bytes:
    """Encode length and JSON, padded so that tensors start at multiples of 8 bytes."""
    entries: dict[str, Any] = {"__metadata__": {"checksum": check, "sfumato": text}}
    end = 0
    for name, spec in specs.items():
        start, end = end, end + spec.num_bytes
        entries[name] = {"dtype": _NAMES[spec.dtype], "shape": spec.shape, "data_offsets": [start, end]}
    encoded = json.dumps(entries, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded


def _write(file: BinaryIO, tensor: Tensor) -> int:
    """Write a tensor's bytes in blocks, so that Ctrl-C works, and return their CRC-32."""
    data, crc = _bytes_of(tensor.detach().cpu()), 0
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        file.write(block)
        crc = zlib.crc32(block, crc)
    return crc


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a tensor on the CPU, or of a copy if it is not contiguous."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name is given twice")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def checksum(text: str, parts: Mapping[str, tuple[Spec, int]]) -> str:
    """Compute one checksum of the metadata and all tensors, each given as its spec and the CRC-32 of its bytes."""
    lines = [f"{name} {spec} {crc:08x}" for name, (spec, crc) in sorted(parts.items())]
    return f"{zlib.crc32(chr(10).join([text, *lines]).encode(errors='surrogatepass')):08x}"
