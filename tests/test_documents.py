"""Documents keep their word: what they name exists, what they link to is there, and the Python example runs."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "node_modules" not in path.parts]


def names_in_notation() -> list[str]:
    text = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"`(\w+(?:\.\w+)+)`", text)))


@pytest.mark.parametrize("name", names_in_notation())
def test_every_name_of_the_notation_exists(name: str) -> None:
    module, *attributes = name.split(".")
    found: object = importlib.import_module("sfumato.nn" if module == "nn" else f"sfumato.diffusion.{module}")
    for attribute in attributes:
        fields = getattr(found, "__dataclass_fields__", {})
        assert hasattr(found, attribute) or attribute in fields, f"{name} is in docs/notation.md but not in the package"
        found = getattr(found, attribute, None)


def test_every_public_function_of_the_method_is_in_the_notation() -> None:
    """The functions that carry the paper's equations, by module."""
    text = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    for module in ("losses", "bound"):
        offered = importlib.import_module(f"sfumato.diffusion.{module}").__all__
        for name in offered:
            if name.islower() and name != "times":
                assert f"`{module}.{name}`" in text, f"{module}.{name} is missing from docs/notation.md"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_point_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize(
    ("options", "remaining", "off"),
    [
        pytest.param((), 0.6, 1.5, marks=pytest.mark.slow, id="as written"),
        pytest.param(("--short",), 0.75, 2.0, id="fewer steps"),
    ],
)
def test_the_first_example_restores_and_predicts_its_error(
    options: tuple[str, ...], remaining: float, off: float
) -> None:
    """The Python example takes off its share of the error, and says how much is left within a factor."""
    result = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "follow.py"), *options, str(ROOT / "docs" / "in_python.md")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    before, after, predicted = (float(line.split()[-1]) for line in result.stdout.splitlines()[:3])
    assert after < remaining * before
    assert 1 / off < predicted / after < off
    coverage = int(result.stdout.split()[-1].rstrip("%"))
    assert 80 <= coverage <= 99


def words_of(text: str) -> int:
    """Words outside of code and of what a reader does not see."""
    return len(re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL).split())


def test_the_first_page_is_short() -> None:
    assert words_of((ROOT / "README.md").read_text(encoding="utf-8")) <= 600


def test_the_results_can_be_read_to_the_end() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert words_of(text) <= 1800


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_only_references_are_long(page: Path) -> None:
    name = page.relative_to(ROOT / "docs").as_posix()
    assert name in ("cli.md", "recipe.md") or name.startswith("api/") or len(page.read_text().splitlines()) <= 400


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 80
