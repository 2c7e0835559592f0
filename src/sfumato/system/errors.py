"""Errors that tell a user what was got, what was expected and what to do.

All derive from :class:`ValueError`, so code that does not know this package can still catch them.
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
    """A file has no format that can be read."""


class StorageError(ImageError):
    """The storage of an image is full, read-only, gone or unreachable. Its previous contents are unchanged."""


class PairingError(SfumatoError):
    """Conditions and targets cannot be paired."""


class RecipeError(SfumatoError):
    """A recipe has an unknown key, an invalid value or parts that contradict each other."""


class ModelFileError(SfumatoError):
    """A file is not a model file, is damaged or does not fit."""


class CalibrationError(SfumatoError):
    """Held-out images do not allow the requested calibration, for example because they are too few."""


class OverwriteError(SfumatoError):
    """An existing file would be lost: an input of the command, or a file that sfumato did not write."""


class RunError(SfumatoError):
    """A run folder cannot be started, resumed or read."""
