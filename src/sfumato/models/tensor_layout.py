"""What is known of named tensors without reading them: shapes, dtypes, and a checksum over all of them."""

import math
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Spec", "checksum", "differences", "layout"]


class Spec(NamedTuple):
    """What is known of a tensor before it is read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"


def layout(tensors: Mapping[str, Tensor]) -> dict[str, Spec]:
    """Shapes and dtypes by name."""
    return {name: Spec(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def differences(found: Mapping[str, Spec], expected: Mapping[str, Spec]) -> str:
    """Up to five differences in words, empty if there are none."""
    lines = [f"{name!r} is missing" for name in expected if name not in found]
    lines += [f"{name!r:.100} should not be there" for name in found if name not in expected]
    lines += [
        f"{name!r} is {found[name]} instead of {spec}"
        for name, spec in expected.items()
        if name in found and found[name] != spec
    ]
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return "; ".join(lines[:5]) + more


def checksum(text: str, parts: Mapping[str, tuple[Spec, int]]) -> str:
    """One checksum for the metadata and all tensors, each given as its spec and the CRC-32 of its bytes."""
    lines = [f"{name} {spec} {crc:08x}" for name, (spec, crc) in sorted(parts.items())]
    return f"{zlib.crc32(chr(10).join([text, *lines]).encode(errors='surrogatepass')):08x}"
