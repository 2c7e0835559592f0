"""Record which images a model has seen, as hashes of their pixels, and look images up before the model is judged.

A model looks better on images that it was trained on, and intervals fitted to them do not hold for other images. A pair
counts as seen if its input or its target was seen: newly simulated noise does not make a new image. The hashes come
from :mod:`sfumato.data.pixel_hash` and are stored in the model. If there are more than 100,000, a subset drawn with the
seed is kept, so some seen images are then not recognised.
"""

import base64
import binascii
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from sfumato.data.order import permute
from sfumato.data.pairs import file_of, named
from sfumato.data.pixel_hash import PairHashes
from sfumato.data.sources import PairSource
from sfumato.system.errors import CalibrationError, PairingError

__all__ = ["SeenImages", "look_at", "look_up", "refuse_seen"]

_MOST_HASHES = 100_000
_SPLITS = ("train", "validation")


@dataclass(frozen=True)
class SeenImages:
    """Hashes of the images of a training.

    Attributes:
        train: Hashes of the inputs and targets that the model was trained on.
        validation: Hashes of those used to choose its weights.
        num_pairs: Number of pairs.
        num_hashed: Number of pairs that were hashed.
    """

    train: frozenset[int]
    validation: frozenset[int]
    num_pairs: int
    num_hashed: int

    def __post_init__(self) -> None:
        if not 0 <= self.num_hashed <= self.num_pairs or len(self.train) + len(self.validation) > _MOST_HASHES:
            raise ValueError(
                f"{len(self.train) + len(self.validation)} hashes of {self.num_hashed} out of {self.num_pairs} pairs; "
                f"expected at most {_MOST_HASHES}, of no more pairs than there are"
            )

    def split(self, hashes: PairHashes) -> str:
        """Return `train` or `validation` if one of the two images was seen there, otherwise an empty text."""
        return next((split for split in _SPLITS if not getattr(self, split).isdisjoint(hashes)), "")

    def joined(self, others: "SeenImages") -> "SeenImages":
        """These images and others; the same object if it has all of the others already."""
        train, validation = self.train | others.train, self.validation | others.validation
        if (train, validation) == (self.train, self.validation):
            return self
        hashed = self.num_hashed + others.num_hashed
        return SeenImages(train, validation, self.num_pairs + others.num_pairs, hashed)

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and the hashes as text: sorted, 8 bytes each."""
        texts = {split: _text(getattr(self, split)) for split in _SPLITS}
        return {**texts, "num_pairs": self.num_pairs, "num_hashed": self.num_hashed}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Rebuild from the output of :meth:`to_json`; raises ValueError for anything else."""
        if not isinstance(values, dict) or set(values) != {*_SPLITS, "num_pairs", "num_hashed"}:
            raise ValueError("the hashes of seen images have unknown keys")
        numbers = [values[name] for name in ("num_pairs", "num_hashed")]
        if any(type(number) is not int for number in numbers):
            raise ValueError(f"the seen images have the counts {numbers!r:.100}; expected whole numbers")
        return cls(_hashes(values["train"]), _hashes(values["validation"]), *numbers)


def look_at(train: PairSource, validation: PairSource | None, *, seed: int) -> tuple[SeenImages, list[str]]:
    """Hash the images of a training and check that none is in both splits.

    Args:
        train: Pairs to learn from.
        validation: Pairs used to choose the weights.
        seed: Draws the subset if there are more images than can be kept.

    Returns:
        The hashes, and notes for the user.

    Raises:
        PairingError: If an image is in both splits.
    """
    sources = {"train": train} if validation is None else {"train": train, "validation": validation}
    num_pairs = sum(source.num_images for source in sources.values())
    found = {split: dict(_hashed(source, num_pairs, seed)) for split, source in sources.items()}
    where = {number: sample for sample, hashes in found["train"].items() for number in _numbers(hashes)}
    both = [
        f"{sources['validation'].name(sample)} of validation is {train.name(first)} of training"
        for sample, hashes in found.get("validation", {}).items()
        if (first := next((where[number] for number in _numbers(hashes) if number in where), None)) is not None
    ]
    if both:
        raise PairingError(
            f"{len(both)} of {len(found['validation'])} validation pairs are in training too, by the pixels of their "
            f"input or target: {named(both)}; expected different images, since a model may have "
            "memorised what it was trained on; remove one of each two, or mark both with the same split in a manifest"
        )
    kept = {split: frozenset(n for hashes in of.values() for n in _numbers(hashes)) for split, of in found.items()}
    seen = SeenImages(
        kept["train"], kept.get("validation", frozenset()), num_pairs, num_hashed=sum(map(len, found.values()))
    )
    return seen, list(_notes(seen, train, found["train"]))


def look_up(seen: SeenImages | None, source: PairSource, samples: Sequence[int]) -> list[str]:
    """Look up the training split each sample was seen in; empty text if in none, or if the model has no record."""
    if seen is None:
        return [""] * len(samples)
    return [seen.split(source.hashes(sample)) for sample in samples]


def refuse_seen(splits: Sequence[str], names: Sequence[str], refused: Collection[str], *, whose: str = "model") -> None:
    """Refuse images that were in some splits of a training.

    Args:
        splits: Split of each image, from :func:`look_up`.
        names: Names of the images.
        refused: Splits to refuse.
        whose: What to call the model in the message.

    Raises:
        CalibrationError: If an image was in one of the refused splits.
    """
    for split, word in (("train", "trained"), ("validation", "validated")):
        inside = [name for name, of in zip(names, splits, strict=True) if of == split]
        if inside and split in refused:
            raise CalibrationError(
                f"the {whose} was {word} on {len(inside)} of these {len(names)} images, by their pixels (input or "
                f"target): {named(inside)}; expected images that it has not seen; give others, or allow seen ones "
                "(--allow-seen), which voids the guarantee"
            )


def _notes(seen: SeenImages, train: PairSource, found: dict[int, PairHashes]) -> Iterator[str]:
    if seen.num_hashed < seen.num_pairs:
        yield (
            f"{seen.num_hashed} of {seen.num_pairs} pairs, drawn with the seed, are recorded by their pixels; images "
            "of the others are not recognised in validation, nor later when the model is calibrated"
        )
    repeated = list(_repeated(train, found))
    if repeated:
        yield (
            f"{len(repeated)} training inputs are copies of others, by their pixels, such as {repeated[0][1]} of "
            f"{repeated[0][0]}; every copy counts"
        )


def _repeated(train: PairSource, found: dict[int, PairHashes]) -> Iterator[tuple[str, str]]:
    """Find inputs that occur in two files; frames of one file may be alike, and draws from one photograph are."""
    first: dict[int, str] = {}
    for sample, hashes in found.items():
        if hashes.condition is not None:
            name = train.name(sample)
            before = first.setdefault(hashes.condition, name)
            if file_of(before) != file_of(name):
                yield before, name


def _hashed(source: PairSource, num_pairs: int, seed: int) -> Iterator[tuple[int, PairHashes]]:
    """Hash all samples, or this source's share of as many as can be kept."""
    number = min(source.num_images, max(1, _MOST_HASHES // 2 * source.num_images // num_pairs))
    chosen = np.sort(permute(np.arange(number), source.num_images, seed=seed))
    return ((int(sample), source.hashes(int(sample))) for sample in chosen)


def _numbers(hashes: PairHashes) -> Iterator[int]:
    return (number for number in hashes if number is not None)


def _text(hashes: frozenset[int]) -> str:
    return base64.b64encode(np.array(sorted(hashes), "<u8").tobytes()).decode("ascii")


def _hashes(text: Any) -> frozenset[int]:
    try:
        return frozenset(np.frombuffer(base64.b64decode(text, validate=True), "<u8").tolist())
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError("the hashes of seen images are not texts of 8 bytes each") from error
