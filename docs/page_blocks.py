"""The code blocks of a page, and the marks that may stand before one in its source.

    <!-- not run: REASON -->          nobody runs it here; the tests only see whether it could be
    <!-- needs: WHAT -->              only the tests run it, with something in place of that; in a notebook it is text
    <!-- in tests: SHOWN => RUN -->   the tests run it with this text replaced, so that minutes become seconds

Several of the last kind may stand on lines of their own. `TINY` in them stands for settings that train in a moment.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["KINDS", "Block", "blocks", "parts", "prose"]

KINDS = ("python", "sh", "text", "yaml")
"""Words that may stand behind the fence: what is run, what is printed, and recipes."""

TINY = (
    "train.steps=2 train.batch_size=2 data.patch=32 model.base=4 model.rate_base=4 model.num_scales=3 "
    "sample.steps=2 sample.samples=2"
)

_FENCE = re.compile(
    r"^(?P<marks>(?:<!--(?:(?!-->)[\s\S])*-->\s*)*)^```(?P<kind>.*)\n(?P<code>(?:.*\n)*?)^```$", re.MULTILINE
)
_MARK = re.compile(r"<!--\s*(not run|needs|in tests)\b:?\s*(.*?)\s*-->", re.DOTALL)


class Block(NamedTuple):
    """A fenced block."""

    kind: str
    code: str
    section: str
    """Title of the `##` section it stands in, or nothing above the first."""
    line: int
    """Of its fence, from 1."""
    is_run: bool
    """False after a mark that says so."""
    reason: str
    """Why it is not run."""
    needs: str
    """What a reader must bring to run it."""
    changes: tuple[tuple[str, str], ...]
    """What the tests replace, and by what."""

    def in_tests(self) -> str:
        """The code as the tests run it."""
        code = self.code
        for shown, run in self.changes:
            if shown not in code:
                raise ValueError(f"the block of line {self.line} has no {shown!r}, which its mark wants to replace")
            code = code.replace(shown, run.replace("TINY", " ".join(f"--set {word}" for word in TINY.split())))
        return code


def parts(text: str) -> Iterator[str | Block]:
    """The text of a page, in order: blocks, and what stands between them without their marks."""
    done = 0
    for found in _FENCE.finditer(text):
        before = text[: found.start("kind")]
        titles = re.findall(r"^## (.*)$", prose(before), re.MULTILINE)
        marks = _MARK.findall(found["marks"])
        changes = (tuple(rest.split(" => ")) for word, rest in marks if word == "in tests")
        left_out = [rest for word, rest in marks if word == "not run"]
        yield text[done : found.start()] + _MARK.sub("", found["marks"])
        yield Block(
            found["kind"],
            found["code"],
            titles[-1] if titles else "",
            before.count("\n") + 1,
            not left_out,
            " ".join(" ".join(left_out).split()),
            " ".join(rest for word, rest in marks if word == "needs"),
            tuple((shown, run) for shown, run in changes),
        )
        done = found.end()
    yield text[done:]


def blocks(text: str) -> list[Block]:
    """The blocks alone."""
    return [part for part in parts(text) if isinstance(part, Block)]


def prose(text: str) -> str:
    """The page without its blocks; marks stay."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
