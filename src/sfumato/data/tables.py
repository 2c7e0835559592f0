"""Write and read the small tables of a packed store, each one raw chunk that can be mapped into memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

__all__ = ["read_texts", "text_tables", "write_tables"]


def write_tables(group: zarr.Group, tables: Mapping[str, NDArray[Any]]) -> None:
    """Write each table as an array of its name, replacing an existing one."""
    for name, values in tables.items():
        raw: dict[str, Any] = {"chunks": values.shape, "compressors": None, "filters": None, "overwrite": True}
        group.create_array(name, shape=values.shape, dtype=values.dtype, **raw)[...] = values


def text_tables(what: str, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Encode texts as two tables: all texts in UTF-8, and the end of each."""
    coded = [text.encode() for text in texts]
    return {
        f"{what}_ends": np.cumsum([len(text) for text in coded], dtype="<i8"),
        f"{what}_text": np.frombuffer(b"".join(coded) or b"\0", "u1"),
    }


def read_texts(ends: NDArray[Any], text: NDArray[Any]) -> list[str]:
    """The reverse of :func:`text_tables`.

    Example:
        >>> read_texts(*text_tables("name", ["a", "", "b c"]).values())
        ['a', '', 'b c']
    """
    whole, last = text.tobytes(), ends.tolist()
    return [whole[start:end].decode() for start, end in zip([0, *last], last, strict=False)]
