"""Recognise the formats of microscope makers by their first bytes, and open them with the library of each."""

from pathlib import Path

from sfumato.data.images.image import Image

__all__ = ["open_vendor"]

_CZI, _ND2, _OLDER_ND2 = b"ZISRAWFILE", b"\xda\xce\xbe\x0a", b"\0\0\0\x0cjP  "
_LIF, _LIF_MARK, _LIF_MARK_AT = b"\x70\0\0\0", 0x2A, 8
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Of OIB and of any other compound document."""


def open_vendor(path: Path, start: bytes, *, memory_budget: int, scene: str | int | None = None) -> Image | None:
    """Open a CZI, ND2, LIF or OIB file; None if it is none of them.

    Args:
        path: The file.
        start: Its first bytes.
        memory_budget: Bytes that one call of ``read`` may take.
        scene: Name or number of the scene to open; the first by default.

    Raises:
        ImageError: If the library of the format is not installed, the scene is not there, or the file is damaged.
    """
    suffix = path.suffix.lower()
    if start.startswith(_CZI):
        from sfumato.data.images.zeiss_czi import open_czi as open_format
    elif start.startswith(_ND2) or (start.startswith(_OLDER_ND2) and suffix == ".nd2"):
        from sfumato.data.images.nikon_nd2 import open_nd2 as open_format
    elif start.startswith(_LIF) and start[_LIF_MARK_AT : _LIF_MARK_AT + 1] == bytes([_LIF_MARK]):
        from sfumato.data.images.leica_lif import open_lif as open_format
    elif start.startswith(_COMPOUND) and suffix == ".oib":
        from sfumato.data.images.olympus_oib import open_oib as open_format
    else:
        return None
    return open_format(path, memory_budget=memory_budget, scene=scene)
