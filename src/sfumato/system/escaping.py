"""Escape untrusted names of files, channels and models for tables and pages."""

import html

__all__ = ["in_markdown", "in_spreadsheet"]

_MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "|`[]\\"})
_FORMULA = ("=", "+", "-", "@")


def in_markdown(text: object, *, code: bool = False) -> str:
    """Escape a text to one line of Markdown without HTML, links, code or the end of a table cell.

    Args:
        text: The untrusted text.
        code: Keep words between backticks, for sentences outside of tables and code.

    Example:
        >>> in_markdown("a|b <script>")
        'a&#124;b &lt;script&gt;'
    """
    marks = {sign: entity for sign, entity in _MARKUP.items() if not (code and sign == ord("`"))}
    return html.escape(_line(text), quote=False).translate(marks)


def in_spreadsheet(text: object) -> str:
    """Escape a text for a spreadsheet cell: text that looks like a formula gets a leading apostrophe.

    Example:
        >>> in_spreadsheet("=1+1"), in_spreadsheet("cell_1.tif")
        ("'=1+1", 'cell_1.tif')
    """
    line = _line(text)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def _line(text: object) -> str:
    return "".join(character if character.isprintable() else " " for character in str(text))
