"""Errors that tell a user what was got, what was expected and what to do.

All are :class:`ValueError` underneath, so code that knows nothing of this package can still catch them.
"""

__all__ = [
    "CalibrationError",
    "ImageError",
    "ModelFileError",
    "OverwriteError",
    "PairingError",
    "RecipeError",
    "RunError",
    "SfumatoError",
    "StorageError",
    "UnknownFormatError",
]


class SfumatoError(ValueError):
    """Base of all errors whose text says what was got, what was expected and what to do."""


class ImageError(SfumatoError):
    """An image cannot be read or written as asked."""


class UnknownFormatError(ImageError):
    """A file is of no format that can be read."""


class StorageError(ImageError):
    """The place of an image takes no more: it is full, read-only, gone or out of reach. What it held is as before."""


class PairingError(SfumatoError):
    """Conditions and targets cannot be brought together."""


class RecipeError(SfumatoError):
    """A recipe has an unknown key, a wrong value or parts that contradict each other."""


class ModelFileError(SfumatoError):
    """A model file is not one, is damaged or does not fit."""


class CalibrationError(SfumatoError):
    """Held-out images cannot carry what was asked of them."""


class OverwriteError(SfumatoError):
    """A file that is there would be lost: an input of the command, or one that sfumato did not write."""


class RunError(SfumatoError):
    """A run folder cannot be started, resumed or read."""
