"""CARE by the package CAREamics, in an environment of its own, on the same pairs and for the same seconds.

The environment is named by CAREAMICS_PYTHON, the path of its interpreter. Pairs are handed over as arrays: what the
other contenders draw patch by patch is drawn once, as whole images with noise of their own.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.models.recipe import Recipe
from sfumato.training.preparation import Prepared
from yardstick.problems import Held
from yardstick.scores import Restored

__all__ = ["care_of"]

PEER = Path(__file__).with_name("care_peer.py")
_EXPOSURES = 4
"""Of each image with simulated noise: fresh noise, as far as arrays go."""
_ANSWER = "restored in"
"""Begins the line with which the peer says how long an image took."""


def care_of(recipe: Recipe, data: Prepared, seconds: float, folder: Path) -> Callable[[Held, int], Restored]:
    """Train in the other environment, and return what restores an image there."""
    if "CAREAMICS_PYTHON" not in os.environ:
        raise SystemExit("set CAREAMICS_PYTHON to the interpreter of an environment with careamics 0.3.5")
    if not (folder / "pairs.npz").exists():
        _write_pairs(data, folder / "pairs.npz")
    if not (folder / "trained.json").exists():
        subprocess.run([*_peer("train", folder), str(seconds)], check=True)
    spent = json.loads((folder / "trained.json").read_text(encoding="utf-8"))["seconds"]
    (folder / "seconds.json").write_text(json.dumps({"train": spent}), encoding="utf-8")
    peer = subprocess.Popen(_peer("restore", folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def restore(image: Held, number: int) -> Restored:
        np.save(folder / "input.npy", data.condition.of_pixels(image.condition[None]).numpy())
        assert peer.stdin is not None
        assert peer.stdout is not None
        peer.stdin.write(f"{number}\n")
        peer.stdin.flush()
        answer = next((line for line in peer.stdout if line.startswith(_ANSWER)), None)
        if answer is None:
            raise SystemExit(f"CAREamics stopped at {image.name}; what it printed says why")
        mean = torch.from_numpy(np.load(folder / "output.npy"))
        return Restored(data.target.invert(mean.double(), axis=0), None, float(answer.removeprefix(_ANSWER)))

    return restore


def _write_pairs(data: Prepared, path: Path) -> None:
    arrays: dict[str, Any] = {}
    for split, source in data.sources.items():
        draws = _EXPOSURES if split == "train" and len(source) > source.num_images else 1
        pairs = [source.read(sample, [0, 0], source.spatial(sample)) for sample in range(draws * source.num_images)]
        for place, (side, scale) in enumerate((("condition", data.condition), ("target", data.target))):
            arrays[f"{split}_{side}"] = np.stack([scale.of_pixels(pair[place][None])[0].numpy() for pair in pairs])
    np.savez(path, **arrays)


def _peer(what: str, folder: Path) -> list[str]:
    return [os.environ["CAREAMICS_PYTHON"], str(PEER), what, str(folder)]
