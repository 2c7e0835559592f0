"""Names of files, channels and models come from strangers: how they are written into tables and pages as mere text."""

import html

__all__ = ["in_markdown", "in_spreadsheet"]

_MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "|`[]\\"})
_FORMULA = ("=", "+", "-", "@")


def in_markdown(text: object, *, code: bool = False) -> str:
    """A text as one line of Markdown that holds no HTML, no link, no code and no end of a table's cell.

    Args:
        text: What a stranger wrote.
        code: Let words between backticks stand: for sentences, which are in no table and no code.

    Example:
        >>> in_markdown("a|b <script>")
        'a&#124;b &lt;script&gt;'
    """
    marks = {sign: entity for sign, entity in _MARKUP.items() if not (code and sign == ord("`"))}
    return html.escape(_line(text), quote=False).translate(marks)


def in_spreadsheet(text: object) -> str:
    """A text as a cell that no spreadsheet takes for a formula: one that looks like it begins with an apostrophe.

    Example:
        >>> in_spreadsheet("=1+1"), in_spreadsheet("cell_1.tif")
        ("'=1+1", 'cell_1.tif')
    """
    line = _line(text)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def _line(text: object) -> str:
    return "".join(character if character.isprintable() else " " for character in str(text))
