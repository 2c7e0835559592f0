"""Each tutorial is a notebook too: made from its page, valid, linked from it, and some are run in a real kernel."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from make_notebooks import DOCS, TUTORIALS, notebook, path_of
from page_blocks import blocks
from test_site import configuration, pages_of

RUN = ("audit", "restore_a_terabyte")
"""As notebooks only by the slow tests: their cells are the blocks of pages, which are followed in any case."""
STARTED = "train_on_a_cluster"
"""Run until its first commands, which pack images."""
WITHOUT = {"napari.md", "facilities.md"}
"""Tutorials that no notebook can run: about buttons, and about other programs."""


def test_every_tutorial_is_a_notebook_and_nothing_else() -> None:
    navigation = configuration()["nav"]
    assert isinstance(navigation, list)
    (tutorials,) = (part["Tutorials"] for part in navigation if "Tutorials" in part)
    listed = set(pages_of(tutorials))
    assert listed
    assert listed - WITHOUT <= {f"{name}.md" for name in TUTORIALS} | {"w2s.md"}
    assert sorted(path_of(name) for name in TUTORIALS) == sorted((DOCS / "notebooks").iterdir())


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_notebook_is_what_its_page_says(page: str) -> None:
    """If this fails: python docs/make_notebooks.py"""
    text = path_of(page).read_text(encoding="utf-8")
    assert text == notebook(page)
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (extra `dev`)")
    read = nbformat.reads(text, as_version=4)
    nbformat.validate(read)
    source = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = [block for block in blocks(source) if block.kind in ("python", "sh")]
    run = [block for block in found if block.is_run and not block.needs]
    cells = [cell for cell in read.cells if cell.cell_type == "code"]
    assert [cell.source.removeprefix("%%bash -e\n") for cell in cells[1:]] == [block.code.strip() for block in run]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    (link,) = re.findall(r"^\[This page as a notebook\]\((.*)\)\.$", source, re.MULTILINE)
    assert (DOCS / page).parent.joinpath(link).resolve() == path_of(page)


@pytest.mark.parametrize("page", TUTORIALS)
def test_links_of_a_notebook_point_to_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path_of(page).read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (DOCS / "notebooks" / target).exists(), f"{page}.ipynb links to {target}"


@pytest.fixture
def run_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Run the cells of a page's notebook in a kernel, all or the first ones, and return the folder they leave."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (extra `dev`)")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (extra `dev`)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (extra `dev`)")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(page: str, *, most: int | None = None) -> Path:
        read = nbformat.read(path_of(page), as_version=4)
        read.cells = [cell for cell in read.cells if cell.cell_type == "code"][:most]
        place = {"metadata": {"path": str(DOCS / "notebooks")}}
        done = nbclient.NotebookClient(read, timeout=600, kernel_name="python3", resources=place).execute()
        assert [cell.execution_count for cell in done.cells] == list(range(1, len(done.cells) + 1))
        (folder,) = tmp_path.glob("sfumato-*")
        return folder

    return run


@pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages
def test_a_notebook_starts_in_a_kernel(run_cells: Callable[..., Path]) -> None:
    """Cells of Python and of bash, with the programs of the kernel."""
    assert (run_cells(STARTED, most=3) / "pairs.zarr" / "zarr.json").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", RUN)
def test_a_notebook_runs_in_a_kernel(page: str, run_cells: Callable[..., Path]) -> None:
    """As someone who opened it and pressed "run all"."""
    assert (run_cells(page) / "run" / "model.safetensors").is_file()
