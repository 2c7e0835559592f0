"""Damaged and hostile model files: nothing but a ModelFileError may escape, quickly and in little memory.

Each file is a small real model with one mutation drawn from a seed: bytes flipped, cut, moved or added; values of the
header or of the metadata replaced by hostile ones, with lengths and checksum made right again so that the change gets
past the first checks; files of other kinds. How deep the mutants go is reported as the number of different places in
the code that refused one.
"""

import copy
import io
import json
import pickle
import random
import re
import resource
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, load, save_model
from sfumato.models.recipe import ModelRecipe, Recipe
from sfumato.models.safetensors_file import Spec, checksum
from sfumato.system.errors import ModelFileError

__all__ = ["MOST_MEGABYTES", "MOST_SECONDS", "Outcome", "Parts", "fuzz", "mutants", "small_model"]

MOST_SECONDS, MOST_MEGABYTES = 2.0, 500.0
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def small_model(folder: Path) -> bytes:
    """The bytes of a real model file."""
    recipe = Recipe(model=ModelRecipe(base=2, rate_base=2, num_scales=2), forward={"pixel_um": 0.1})
    one, two = Normalization((0.5,), (2.0,)), Normalization((0.0, 1.0), (1.0, 3.0))
    audit: dict[str, Any] = {"quantiles": [0.1, 0.9], "problem": "pairs", "spectrum": {"mean": [1.0], "spread": [0.1]}}
    info = ModelInfo(recipe, 1, 2, one, two, audit, {"step": 10, "validation": 0.5})
    path = folder / "model.safetensors"
    save_model(path, build_model(recipe.model, 1, 2, seed=0).state_dict(), info)
    return path.read_bytes()


class Parts(NamedTuple):
    """A model file taken apart."""

    entries: dict[str, Any]
    info: dict[str, Any]
    data: bytes

    @classmethod
    def of(cls, original: bytes) -> "Parts":
        """Take a valid file apart."""
        length = int.from_bytes(original[:8], "little")
        entries = json.loads(original[8 : 8 + length])
        return cls(entries, json.loads(entries.pop("__metadata__")["sfumato"]), original[8 + length :])

    def join(self, *, more: dict[str, str] | None = None) -> bytes:
        """Put it together again, with the right checksum wherever there is one."""
        text = encoded(self.info)
        held = {"sfumato": text, "checksum": self._checksum(text), **(more or {})}
        return framed(encoded({"__metadata__": held, **self.entries}).encode(), self.data)

    def _checksum(self, text: str) -> str:
        try:
            parts = {}
            for name, entry in self.entries.items():
                start, end = entry["data_offsets"]
                spec = Spec(tuple(entry["shape"]), DTYPES[entry["dtype"]])
                parts[name] = (spec, zlib.crc32(self.data[start:end]))
            return checksum(text, parts)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            return "00000000"


def framed(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def encoded(value: Any) -> str:
    """JSON, with lists inside lists where a text asks for them: deep ones cannot be copied as values."""
    return re.sub(r'"nested (\d+)"', lambda match: "[" * int(match[1]) + "]" * int(match[1]), json.dumps(value))


HOSTILE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 11, 64, 2**31, 2**63, 10**9, 10**30, 10**4000, -(10**4000)),
    *(0.0, -0.5, 0.5, 1e-320, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "x" * 5000,
        "\ud800",
        "\x1b[31m",
        "F16",
        "F64",
        "I64",
        "Q8",
        "sr3",
        "cosine",
        "global",
        "instance",
        "0" * 9,
    ),
    *([], {}, [[]], [1], [0, 0], [2, 2], [1.0, 2.0], [-1, 4], [2**60] * 30, [10**4000] * 50, ["a"], {"": {}}, {"a": 1}),
    *("nested 200", "nested 980", "nested 100000", {"x" * 9: "y"}, dict.fromkeys(map(str, range(300)), 0), [0] * 5000),
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a tree of JSON values."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from places(value[key])


def disturb(tree: Any, draw: random.Random) -> None:
    """Replace, remove, copy or add a value somewhere in a tree."""
    everywhere = list(places(tree))
    container, key = draw.choice(everywhere)
    action = draw.random()
    if action < 0.6:
        container[key] = copy.deepcopy(draw.choice(HOSTILE))
    elif action < 0.75:
        del container[key]
    elif action < 0.9:
        other, place = draw.choice(everywhere)
        container[key] = copy.deepcopy(other[place])
    elif isinstance(container, dict):
        container[draw.choice(["", "x", "base", "format", "model.x", "\ud800"])] = copy.deepcopy(draw.choice(HOSTILE))
    else:
        container.append(copy.deepcopy(draw.choice(HOSTILE)))


def flip(original: bytes, draw: random.Random) -> bytes:
    changed = bytearray(original)
    length = int.from_bytes(original[:8], "little") + 8
    reach = draw.choice([8, length, len(original)])
    for _ in range(draw.choice([1, 1, 2, 8, 64])):
        changed[draw.randrange(reach)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(original: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(original) + 1) for _ in range(2))
    return draw.choice([original[:start], original[start:], original[:start] + original[end:], original[:end] * 2])


def insert(original: bytes, draw: random.Random) -> bytes:
    start = draw.choice([0, 8, draw.randrange(len(original)), len(original)])
    return original[:start] + draw.randbytes(draw.choice([1, 8, 100, 5000])) + original[start:]


def resize(original: bytes, draw: random.Random) -> bytes:
    length = int.from_bytes(original[:8], "little")
    claimed = draw.choice([0, 1, length - 1, length + 1, length * 2, 2**31, 2**63 - 1, 2**64 - 1, draw.getrandbits(64)])
    return claimed.to_bytes(8, "little") + original[8:]


def change_entries(original: bytes, draw: random.Random) -> bytes:
    parts = Parts.of(original)
    for _ in range(draw.choice([1, 1, 2])):
        disturb(parts.entries, draw)
    return parts.join()


def change_info(original: bytes, draw: random.Random) -> bytes:
    parts = Parts.of(original)
    for _ in range(draw.choice([1, 1, 1, 3])):
        disturb(parts.info, draw)
    return parts.join()


def change_network(original: bytes, draw: random.Random) -> bytes:
    parts = Parts.of(original)
    for name in draw.sample(sorted(parts.info["recipe"]["model"]), draw.choice([1, 1, 2])):
        sizes = [1, 2, 3, 4, 9, 10, 11, 1000, 10**6, 10**9, 10**19, 10**4000]
        parts.info["recipe"]["model"][name] = draw.choice(sizes) if draw.random() < 0.5 else draw.choice(HOSTILE)
    for name in draw.sample(["condition_channels", "target_channels"], draw.choice([0, 0, 1])):
        parts.info[name] = draw.choice([0, 2, 10**6, 10**12])
    return parts.join()


def change_tensor(original: bytes, draw: random.Random) -> bytes:
    """A consistent file of other tensors: renamed, reshaped, of another dtype, left out, added."""
    parts = Parts.of(original)
    name = draw.choice(sorted(parts.entries))
    entry = parts.entries[name]
    action = draw.randrange(5)
    if action == 0:
        parts.entries[draw.choice(["x", "", name + "x", "network.head.weight", "\ud800"])] = parts.entries.pop(name)
    elif action == 1:
        entry["shape"] = draw.choice([entry["shape"][::-1], [*entry["shape"], 1], [1, *entry["shape"]]])
    elif action == 2:
        others = [key for key in parts.entries if parts.entries[key]["shape"] == entry["shape"]]
        other = draw.choice(others)
        parts.entries[name], parts.entries[other] = parts.entries[other], parts.entries[name]
    elif action == 3:
        end = len(parts.data)
        parts.entries["added"] = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
    else:
        kind, share = draw.choice([("F16", 2), ("BF16", 2), ("F64", 1)])
        for each in parts.entries.values():
            start, stop = (offset // share for offset in each["data_offsets"])
            each.update(dtype=kind, data_offsets=[start, stop])
        return Parts(parts.entries, parts.info, parts.data[: len(parts.data) // share]).join()
    return parts.join()


def change_text(original: bytes, draw: random.Random) -> bytes:
    """The header's text rather than its values: broken, nested, given twice, padded."""
    length = int.from_bytes(original[:8], "little")
    text = original[8 : 8 + length].decode()
    at = draw.randrange(len(text))
    odd = draw.choice(
        ['"', "{", "}", "[" * 10**5, '{"a":' * 10**5, "\\", "\\ud800", "NaN", "1e999", "9" * 5000, " " * 10**6, "\0"]
    )
    choices = [text[:at] + odd + text[at:], odd, "{" + text[1:-1] + "," + text[1:], text + odd, odd + text]
    return framed(draw.choice(choices).encode(errors="replace"), original[8 + length :])


def foreign(original: bytes, draw: random.Random) -> bytes:
    saved = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, saved)
    kinds = [b"", b"\0", b"\x89PNG\r\n\x1a\n" + bytes(40), b"\x93NUMPY\x01\0" + bytes(40), b"II*\0" + bytes(40)]
    kinds += [pickle.dumps({"a": [1] * 9}, protocol) for protocol in (0, 2, 4, 5)]
    kinds += [saved.getvalue(), framed(b"{}", b""), framed(b'{"__metadata__":{"format":"pt"}}', b"")]
    return draw.choice([*kinds, draw.randbytes(draw.choice([1, 7, 8, 9, 100, 10**5]))])


def bulky(original: bytes, draw: random.Random) -> bytes:
    """A header as large as is allowed, of many small values."""
    many = 2**21 - 2000
    kind = draw.randrange(6)
    if kind == 0:
        text = '{"a":[' + "[]," * (many // 3) + "0]}"
    elif kind == 1:
        text = '{"a":[' + '{"b":0},' * (many // 8) + "0]}"
    elif kind == 2:
        text = '{"a":[' + ("9" * 4000 + ",") * (many // 4001) + "0]}"
    elif kind == 3:
        zero = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
        text = "{" + ",".join(f'"{key:x}":{zero}' for key in range(many // 60)) + "}"
    else:
        text = "{" + ",".join(f'"{key:x}":0' for key in range(many // 14)) + "}"
    if kind < 5:
        return framed(text.encode(), b"")
    parts = Parts.of(original)
    parts.info[draw.choice(["recipe", "audit", "condition"])] = json.loads(text)
    return parts.join()


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(flip, cut, insert, resize, change_entries, change_entries, change_info, change_info),
    *(change_network, change_network, change_tensor, change_text, foreign),
)


def mutants(original: bytes, number: int, *, seed: int) -> Iterator[tuple[str, bytes]]:
    """Mutated files, each with the name of its mutation; the same for the same seed."""
    for index in range(number):
        draw = random.Random(f"{seed} {index}")
        mutation = bulky if draw.random() < 0.005 else draw.choice(MUTATIONS)
        yield f"{mutation.__name__} {seed}/{index}", mutation(original, draw)


class Outcome(NamedTuple):
    """What became of the files."""

    loaded: int
    refusals: Counter[str]
    """How many files each place in the code refused."""
    escaped: list[str]
    """Mutation and error of each file where something else than a ModelFileError came out."""
    slowest: float
    """Seconds of the slowest file."""
    megabytes: float
    """Growth of the peak memory of the process over all files."""


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def fuzz(number: int, *, seed: int, folder: Path) -> Outcome:
    """Load mutated files and see what happens."""
    original, path = small_model(folder), folder / "mutant.safetensors"
    load(folder / "model.safetensors")  # what is imported on first use is not the files' doing
    loaded, refusals, escaped, slowest, before = 0, Counter[str](), [], 0.0, peak_megabytes()
    for name, content in mutants(original, number, seed=seed):
        path.write_bytes(content)
        start = time.perf_counter()
        try:
            load(path)
            loaded += 1
        except ModelFileError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            refusals[f"{Path(frame.filename).name}:{frame.lineno}"] += 1
            str(error).encode()  # can be printed
        except Exception as error:
            escaped.append(f"{name}: {type(error).__name__}: {error!s:.200}")
        slowest = max(slowest, time.perf_counter() - start)
    return Outcome(loaded, refusals, escaped, slowest, peak_megabytes() - before)
