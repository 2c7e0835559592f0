"""Say below the title of pages whose figures are of version 0.1's models that they are, until they are measured again.

python docs/make_version_notes.py
"""

from pathlib import Path

__all__ = ["NOTE", "OF_0_1", "with_note"]

DOCS = Path(__file__).parent

OF_0_1 = ("problems/phase",)
"""Pages with figures of version 0.1's models; one that is measured again leaves this list."""

NOTE = (
    "*Figures on this page were measured with version 0.1's model (`cvdm_0_1`); `experiments/per_minute.py` measures "
    "today's default.*"
)


def with_note(text: str, *, is_of_0_1: bool) -> str:
    """The text of a page, with the note as the first line below its title, or without any."""
    plain = text.replace(f"{NOTE}\n\n", "")
    title, gap, rest = plain.partition("\n\n")
    return f"{title}{gap}{NOTE}\n\n{rest}" if is_of_0_1 else plain


def main() -> None:
    """Write all pages."""
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        before = path.read_text(encoding="utf-8")
        after = with_note(before, is_of_0_1=name in OF_0_1)
        if after != before:
            path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
