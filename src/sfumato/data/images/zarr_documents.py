"""Read and check the metadata documents of a Zarr store before Zarr uses them.

Only codecs that turn bytes into bytes or numbers are accepted (one of the others unpickles), only numeric types, and
only valid grids. Consolidated copies of the documents are never read, so the checked documents are the ones used.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from zarr.abc.store import RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from sfumato.data.images.image import DamageError

__all__ = ["check_array", "get_at_most", "is_array", "read_document"]

_LONGEST_DOCUMENT = 2**24
_CODECS = {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed"}
_CODECS_V2 = {"zlib", "gzip", "bz2", "lzma", "lz4", "zstd", "blosc", "delta", "shuffle", "bitround", "fixedscaleoffset"}
_KEYS = {"default", "v2"}
_NUMBERS = re.compile(r"[<>|][biufc]\d{1,2}|bool|(u?int|float|complex)\d{1,3}")
_LZMA_RAW = 3


def read_document(store: Store, key: str) -> dict[str, Any]:
    """Read a metadata document; empty if there is none."""
    content = sync(get_at_most(store, key, default_buffer_prototype(), _LONGEST_DOCUMENT))
    if content is None:
        return {}
    document = json.loads(content.to_bytes())
    if not isinstance(document, dict):
        name = key.rpartition("/")[2]
        raise DamageError(f"{name} holds a {type(document).__name__}", expected="a JSON object")
    return document


async def get_at_most(store: Store, key: str, prototype: BufferPrototype, most: int) -> Buffer | None:
    """Read a file, or None if there is none; raises DamageError, without reading on, if it exceeds ``most`` bytes."""
    if isinstance(store, LocalStore):
        file = store.root / key
        if not file.is_file():  # opening a pipe would block forever
            return None
        is_longer = file.stat().st_size > most
        content = None if is_longer else await store.get(key, prototype)
    else:
        content = await store.get(key, prototype, RangeByteRequest(0, most + 1))
        is_longer = content is not None and len(content) > most
    if is_longer:
        raise DamageError(f"{key} has more than {most:,} bytes", expected="no more than that")
    return content


def is_array(document: Mapping[str, Any]) -> bool:
    """Whether a document describes an array, not a group."""
    return "shape" in document


def check_array(document: Mapping[str, Any]) -> None:
    """Raise DamageError unless an array has a numeric type, plain codecs and a valid grid."""
    if document.get("zarr_format") == 2:
        codecs = [codec for codec in [document["compressor"], *(document.get("filters") or [])] if codec is not None]
        unknown = {str(codec["id"]) for codec in codecs} - _CODECS_V2
        types = [document["dtype"], *(codec[key] for codec in codecs for key in ("dtype", "astype") if codec.get(key))]
        chunks = document["chunks"]
        for codec in codecs:
            _check_settings(codec)
    else:
        grid, keys = document["chunk_grid"], document["chunk_key_encoding"]["name"]
        if grid["name"] != "regular" or keys not in _KEYS:
            raise DamageError(f"its chunks have the grid {grid['name']!r:.50} and the names {keys!r:.50}")
        unknown = _codec_names(document["codecs"]) - _CODECS
        types, chunks = [document["data_type"]], grid["configuration"]["chunk_shape"]
    if unknown:
        raise DamageError(f"it is packed with {sorted(unknown)}", expected=f"only {sorted(_CODECS | _CODECS_V2)}")
    for dtype in types:
        if not (isinstance(dtype, str) and _NUMBERS.fullmatch(dtype)):
            raise DamageError(f"its type is {dtype!r:.100}", expected="a type of numbers")
    _check_grid(document["shape"], chunks)


def _check_settings(codec: Mapping[str, Any]) -> None:
    if codec["id"] == "lzma" and codec.get("format") == _LZMA_RAW:
        raise DamageError("it is packed with LZMA without its headers", expected="the format .xz")
    if any(not isinstance(codec.get(key, 0), int | float) for key in ("scale", "offset", "keepbits", "elementsize")):
        raise DamageError(f"its codec {codec['id']} has settings that are no numbers")


def _check_grid(shape: Any, chunks: Any) -> None:
    if len(shape) != len(chunks) or not all(isinstance(n, int) and n > 0 for n in [*shape, *chunks]):
        raise DamageError(
            f"its shape is {shape!s:.100} in chunks of {chunks!s:.100}", expected="as many positive whole numbers"
        )


def _codec_names(codecs: Sequence[Any]) -> set[str]:
    """Names of the codecs, including those inside shards."""
    names: set[str] = set()
    for codec in codecs:
        name = codec if isinstance(codec, str) else codec["name"]
        inside = {} if isinstance(codec, str) else codec.get("configuration", {})
        names |= {str(name)} | _codec_names([*inside.get("codecs", []), *inside.get("index_codecs", [])])
        if "chunk_shape" in inside:
            _check_grid(inside["chunk_shape"], inside["chunk_shape"])
    return names
