"""The layout of the package: each folder may use those below it, and heavy libraries stay where they are needed."""

import ast
import graphlib
import runpy
import sys
from pathlib import Path

import pytest

import sfumato
from layout_rules import FOLDERS, folder_of, imports, violations

PACKAGE = Path(sfumato.__file__).parent
ROOT = Path(__file__).parents[1]
DOCS, BENCHMARKS, EXPERIMENTS = ROOT / "docs", ROOT / "benchmarks", ROOT / "experiments"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)

LIBRARIES = {
    "nn": {"torch"},
    "physics": {"torch", "numpy"},
    "system": {"torch", "rich", "yaml"},
    "diffusion": {"torch", "numpy"},
    "data": {"torch", "numpy", "numcodecs", "zarr", "tifffile", "imagecodecs", "mrcfile", "PIL"},
    "statistics": {"torch", "numpy"},
    "models": {"torch", "safetensors", "pydantic", "yaml"},
    "figures": {"torch", "numpy", "PIL"},
    "problems": {"torch", "numpy"},
    "training": {"torch", "numpy", "PIL"},
    "restoration": {"torch", "numpy"},
    "evaluation": {"torch", "numpy", "PIL"},
    "audit": {"torch", "numpy"},
    "export": {"torch", "numpy", "PIL", "yaml"},
    "cli": {"torch", "numpy", "PIL", "typer", "yaml"},
    "napari_plugin": {"torch", "numpy", "napari", "qtpy"},
}
"""Libraries outside the standard one that the modules of a folder may import at their top."""

INSIDE_FUNCTIONS = {
    "data": {"pylibCZIrw", "nd2", "liffile", "oiffile"},
    "statistics": {"torchmetrics", "scipy"},
    "figures": {"matplotlib"},
    "models": {"huggingface_hub"},
    "restoration": {"dask", "distributed"},
    "evaluation": {"matplotlib"},
    "audit": {"matplotlib", "scipy"},
    "export": {"onnx", "onnxruntime", "onnxscript", "bioimageio", "huggingface_hub"},
}
"""Libraries of an extra, which a module imports where it uses them and never at its top."""

FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}

by_place = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())


def test_the_layout_is_kept() -> None:
    assert list(violations(PACKAGE)) == []


def test_folders_are_those_of_the_layout() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found == set(FOLDERS)
    assert len(found) <= 16


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("stray.py", "", "stray.py lies at the root"),
        ("helpers/stray.py", "", "helpers, which has no level"),
        ("nn/stray.py", "from sfumato.diffusion.warp import Warp", "imports diffusion, which stands above nn"),
        ("data/stray.py", "import sfumato.cli.train", "imports cli, which stands above data"),
        ("data/images/stray.py", "def f():\n    from sfumato import cli", "imports cli, which stands above data"),
        ("training/stray.py", "from sfumato.restoration.job import Plan", "of the same level as training"),
        ("physics/stray.py", "from sfumato.system import errors", "of the same level as physics"),
        ("cli/stray.py", "from sfumato import __version__", "imports the package itself"),
        ("cli/stray.py", "import sfumato", "imports the package itself"),
        ("cli/stray.py", "from .train import train", "relative import"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, place: str, code: str, said: str) -> None:
    planted = tmp_path / "sfumato" / place
    planted.parent.mkdir(parents=True)
    planted.write_text(code)
    assert said in "\n".join(violations(tmp_path / "sfumato"))


def test_a_sound_module_has_no_fault(tmp_path: Path) -> None:
    sound = tmp_path / "sfumato" / "cli" / "sound.py"
    sound.parent.mkdir(parents=True)
    sound.write_text("import sfumato.models.recipe\nfrom sfumato.system import errors\nimport sfumato.cli.train")
    assert list(violations(tmp_path / "sfumato")) == []


@by_place
def test_libraries_stay_in_their_folders(path: Path) -> None:
    folder = folder_of(path, PACKAGE)
    foreign = {name.split(".")[0] for name in imports(path)} - {"sfumato", *sys.stdlib_module_names}
    late = INSIDE_FUNCTIONS.get(folder, set())
    assert foreign <= LIBRARIES[folder] | late
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & late


def test_nothing_imports_an_experiment() -> None:
    experiments = {path.stem for path in EXPERIMENTS.glob("*.py")} | {"evidence", "yardstick"}
    assert "per_minute" in experiments
    for path in [*FILES, *BENCHMARKS.glob("*.py")]:
        assert not {name.split(".")[0] for name in imports(path)} & experiments, path


def test_no_cycles() -> None:
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    graph = {name: (imports(path) & modules.keys()) - {name} for name, path in modules.items()}
    list(graphlib.TopologicalSorter(graph).static_order())


def test_names_say_what_a_module_knows() -> None:
    assert not {part for path in FILES for part in path.relative_to(PACKAGE).with_suffix("").parts} & FORBIDDEN_NAMES


@by_place
def test_modules_say_what_they_offer(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    if len(tree.body) == 1:
        return
    assert any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body)


def test_public_names() -> None:
    """A change here is a change of the public interface."""
    functions = ["calibrate", "evaluate", "load", "restore", "sample", "save"]
    assert sfumato.__all__ == ["CVDM", "LearnedSchedule", "Posterior", "__version__", *functions]
    for name in sfumato.__all__:
        assert getattr(sfumato, name) is not None
        assert name in dir(sfumato)
    with pytest.raises(AttributeError, match="public names: CVDM"):
        _ = sfumato.restorer


def test_the_table_of_folders_is_up_to_date() -> None:
    """If this fails: python docs/make_layout_table.py; lines of code may differ, since every change moves them."""
    made = runpy.run_path(str(DOCS / "make_layout_table.py"))
    page = (DOCS / "contributing.md").read_text(encoding="utf-8")
    assert made["without_lines"](made["table"]()) == made["without_lines"](made["table_of"](page))
