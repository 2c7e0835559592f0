"""The documentation site: every page is in its navigation, nothing is dead, nothing comes from the network."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "sfumato"
SHELLS = {"cli", "napari_plugin", "__main__", "__init__"}
"""Described by pages of their own, not by their modules."""

CAN_BUILD = all(
    importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")
)


def pages_of(navigation: object) -> Iterator[str]:
    """Paths of all pages in a part of the navigation."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        for part in navigation.values():
            yield from pages_of(part)
    elif isinstance(navigation, list):
        for part in navigation:
            yield from pages_of(part)


@cache
def configuration() -> dict[str, object]:
    found = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages_of(configuration()["nav"]))
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_reference_of_commands_is_up_to_date() -> None:
    """If this fails: python docs/make_cli_reference.py"""
    made = runpy.run_path(str(DOCS / "make_cli_reference.py"))["reference"]()
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made


def test_every_module_is_in_the_reference_once() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md"))]
    described = [name for text in texts for name in re.findall(r"^::: sfumato\.(\S+)$", text, re.MULTILINE)]
    modules = []
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] not in SHELLS and parts[-1] != "__init__":
            modules.append(".".join(parts))
    assert sorted(described) == sorted(modules)


def test_what_the_site_loads_lies_in_the_repository() -> None:
    for key in ("extra_css", "extra_javascript"):
        for name in pages_of(configuration()[key]):
            assert (DOCS / name).is_file()
    extra, theme = configuration()["extra"], configuration()["theme"]
    assert isinstance(extra, dict)
    assert isinstance(theme, dict)
    assert all((DOCS / name).is_file() for name in extra["polyfills"])
    assert theme["font"] is False, "the theme would load fonts from Google"
    for sheet in (DOCS / "assets").rglob("*.css"):
        for target in re.findall(r"url\(([^)]+)\)", sheet.read_text(encoding="utf-8")):
            assert (sheet.parent / target.strip("'\"")).is_file(), f"{sheet.name} loads {target}"


def test_what_others_wrote_has_its_licence() -> None:
    for folder in (path for path in (DOCS / "assets").iterdir() if path.is_dir()):
        assert "MIT" in (folder / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        (
            r"The :math:`\gamma` of :class:`~sfumato.diffusion.schedule.Schedule`.",
            r"The $\gamma$ of `diffusion.schedule.Schedule`.",
        ),
        (".. math:: a = b,\n          c = d\n\nAfter.", "$$a = b, c = d$$\n\nAfter."),
        ("Of [CVDM Eq. 1] and ``x``.", r"Of \[CVDM Eq. 1\] and `x`."),
        ("==  ==\na   b\n==  ==\n1   2\n==  ==", "| a | b |\n|---|---|\n| 1 | 2 |"),
        (".. code-block:: python\n\n    f(1)\n\nAfter.", "```python\nf(1)\n```\n\nAfter."),
    ],
)
def test_docstrings_become_markdown(docstring: str, markdown: str) -> None:
    pytest.importorskip("griffe", reason="extra docs is not installed")
    made = runpy.run_path(str(DOCS / "site" / "docstrings.py"))["as_markdown"](docstring)
    assert made == markdown


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {value for key in ("id", "name") if (value := found.get(key))}
        for key in ("href", "src"):
            if (target := found.get(key)) is not None:
                (self.links if tag == "a" else self.loads).append(target)


@pytest.mark.skipif(not CAN_BUILD, reason="extra docs is not installed")
def test_the_site_builds_without_a_dead_link_or_a_thing_from_the_network(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        check=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.html")}
    assert len(pages) > 30
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses are those of the server's root
            continue
        for target in page.loads:
            assert not urlsplit(target).netloc, f"{path.name} loads {target}"
        for target in [*page.loads, *page.links]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert place.exists(), f"{path.relative_to(tmp_path)} links to {target}"
            if parts.fragment and place in pages and parts.fragment != "__skip":
                assert unquote(parts.fragment) in pages[place].places, f"{path.relative_to(tmp_path)}: {target}"
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text(encoding="utf-8"))
