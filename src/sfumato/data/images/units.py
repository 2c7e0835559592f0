"""Convert the units of length and time found in files to the spelling of OME-Zarr (``micrometer``)."""

__all__ = ["LENGTHS", "SYMBOLS", "TIMES", "ratio", "unit_from"]

_PREFIXES = {
    "yotta": ("Y", 24),
    "zetta": ("Z", 21),
    "exa": ("E", 18),
    "peta": ("P", 15),
    "tera": ("T", 12),
    "giga": ("G", 9),
    "mega": ("M", 6),
    "kilo": ("k", 3),
    "hecto": ("h", 2),
    "": ("", 0),
    "deci": ("d", -1),
    "centi": ("c", -2),
    "milli": ("m", -3),
    "micro": ("\u00b5", -6),
    "nano": ("n", -9),
    "pico": ("p", -12),
    "femto": ("f", -15),
    "atto": ("a", -18),
    "zepto": ("z", -21),
    "yocto": ("y", -24),
}
LENGTHS = {f"{prefix}meter": 10.0**power for prefix, (_, power) in _PREFIXES.items()} | {
    "angstrom": 1e-10,
    "inch": 0.0254,
    "foot": 0.3048,
    "yard": 0.9144,
    "mile": 1609.344,
}
"""Metres in each unit of length."""
TIMES = {f"{prefix}second": 10.0**power for prefix, (_, power) in _PREFIXES.items()} | {
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
}
"""Seconds in each unit of time."""

SYMBOLS = (
    {f"{prefix}meter": f"{symbol}m" for prefix, (symbol, _) in _PREFIXES.items()}
    | {f"{prefix}second": f"{symbol}s" for prefix, (symbol, _) in _PREFIXES.items()}
    | {"angstrom": "\u00c5", "inch": "in", "foot": "ft", "yard": "yd", "mile": "mi"}
    | {"minute": "min", "hour": "h", "day": "d"}
)
"""Symbol of each unit, as OME-XML writes it."""

_WORDS = {symbol: word for word, symbol in SYMBOLS.items()} | {
    "um": "micrometer",
    "\u03bcm": "micrometer",
    "\\u00B5m": "micrometer",
    "micron": "micrometer",
    "microns": "micrometer",
    "us": "microsecond",
    "sec": "second",
    "A": "angstrom",
    "\u212b": "angstrom",
}


def unit_from(text: str) -> str | None:
    """Find the unit that a word or symbol in a file stands for, or None if it is not a unit.

    Example:
        >>> unit_from("micron"), unit_from("nm"), unit_from("pixel")
        ('micrometer', 'nanometer', None)
    """
    text = text.strip()
    word = _WORDS.get(text, text.lower().replace("metre", "meter"))
    word = _WORDS.get(word, word)
    return word if word in SYMBOLS else None


def ratio(unit: str, other: str) -> float | None:
    """Number of other units per unit, or None if one is a length and the other a time.

    Example:
        >>> ratio("minute", "second")
        60.0
    """
    for family in (LENGTHS, TIMES):
        if unit in family and other in family:
            return family[unit] / family[other]
    return None
