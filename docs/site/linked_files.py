"""A hook of mkdocs: pages may link to any file of the repository; those outside `docs` are shown as plain text.

So the same link works on GitHub, on a server and on a disk without a network.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)(\))")


def outside(source: str, target: str) -> Path | None:
    """The file that a link of the page ``source``, a path in `docs`, means; None for pages and figures of the site."""
    path = (ROOT / "docs" / source).parent.joinpath(target).resolve()
    is_ours = path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "docs")
    return path if is_ours and path.is_file() else None


def shown_at(path: Path) -> str:
    """Where in the site a file of the repository is found; `.txt`, so that browsers show and do not save it."""
    return f"files/{path.relative_to(ROOT).as_posix()}.txt"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add each file that a page links to."""
    for page in list(files.documentation_pages()):
        for _, target, _ in LINK.findall(page.content_string):
            path = outside(page.src_uri, target)
            if path is not None and files.get_file_from_path(shown_at(path)) is None:
                files.append(File.generated(config, shown_at(path), content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Point the links there."""

    def point(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        up = "../" * (len(PurePosixPath(page.file.src_uri).parts) - 1)
        return f"{match[1]}{up}{shown_at(path)}{match[3]}"

    return LINK.sub(point, markdown)
