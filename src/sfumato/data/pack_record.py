"""Record which files and settings a packed store was made from, and check them before packing into it again.

Files are recorded as tables in the group `files` of the store. Packing into an existing store is refused if files or
settings differ, and the error names the differences.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zarr

from sfumato.data.images.image import DEFAULT_MEMORY_BUDGET, DamageError, reading
from sfumato.data.images.zarr_array import open_checked, store_at
from sfumato.data.images.zarr_documents import read_document
from sfumato.data.packed import ATTRIBUTE
from sfumato.data.source_files import FileRecord, SourceFile
from sfumato.data.tables import read_texts, text_tables, write_tables
from sfumato.system.errors import PairingError

__all__ = ["check_files", "check_settings", "description_of", "record_files"]

_GROUP = "files"
_ADVICE = "choose another --out, or remove the store to pack it again"


def description_of(path: Path) -> dict[str, Any] | None:
    """Read the description of a packed store; None if the store is not one."""
    with reading(path, "packed"):
        held = read_document(store_at(path), "zarr.json").get("attributes", {}).get(ATTRIBUTE)
    return held if isinstance(held, dict) else None


def record_files(root: zarr.Group, files: Sequence[SourceFile]) -> None:
    """Write the tables of files, then their digest; tables without a digest are ignored."""
    record = FileRecord.of(files)
    if files:
        tables = {"facts": record.facts, **text_tables("label", record.labels)}
        write_tables(root.require_group(_GROUP), tables)
    said: Any = root.attrs.asdict()[ATTRIBUTE]
    root.attrs[ATTRIBUTE] = {**said, "files": record.digest()}


def check_files(path: Path, held: Mapping[str, Any], files: Sequence[SourceFile]) -> bool:
    """Check that a store was made from these files; returns False if the store has no record of its files.

    Args:
        path: The store.
        held: The description of the store.
        files: The files to pack.

    Raises:
        PairingError: If the recorded files differ; the message names them.
    """
    record = _held(path, held.get("files"))
    differences = record.differences(files) if record is not None else ""
    if differences:
        raise PairingError(
            f"{path} is a store of other files ({differences}); expected the same ones; put them back, {_ADVICE}"
        )
    return record is not None


def check_settings(path: Path, held: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Check that a store was packed with these settings; stores of version 0.1 have no record of them.

    Raises:
        PairingError: If a setting differs.
    """
    before = held.get("settings")
    if not isinstance(before, dict):
        return
    for name in sorted(before.keys() | settings.keys()):
        if before.get(name) != settings.get(name):
            raise PairingError(
                f"{path} was packed with {name} {before.get(name)!r}, and now it is {settings.get(name)!r}; "
                f"expected the same; give it as it was, {_ADVICE}"
            )


def _held(path: Path, digest: Any) -> FileRecord | None:
    """Read the file record of a store; None for stores of version 0.1 and for incomplete records."""
    nothing = FileRecord.of([])
    if digest == nothing.digest():
        return nothing
    try:
        store = store_at(path)
        tables = [open_checked(store, f"{_GROUP}/{name}") for name in ("facts", "label_ends", "label_text")]
        facts, ends, text = (
            table.read([0] * len(table.shape), table.shape, memory_budget=DEFAULT_MEMORY_BUDGET) for table in tables
        )
        labels = read_texts(ends, text)
        record = FileRecord(len(labels), labels, facts)
        return record if digest is not None and record.digest() == digest else None
    except (DamageError, KeyError, ValueError, TypeError, IndexError):
        return None
