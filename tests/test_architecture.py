"""Imports run one way: each layer may use the ones below it, and heavy libraries stay where they are needed."""

import ast
import graphlib
import sys
from pathlib import Path

import pytest

import sfumato

PACKAGE = Path(sfumato.__file__).parent

LAYERS: dict[str, int] = {
    # 0, mathematics, the errors that all may raise, and how a file is made to last
    "errors": 0,
    "version": 0,
    "bounds": 0,
    "durable": 0,
    "escaping": 0,
    "lock": 0,
    "device": 0,
    "allocation": 0,
    "subnormals": 0,
    "warp": 0,
    "schedule": 0,
    "diffusion": 0,
    "noise": 0,
    "nn": 0,
    "posterior": 0,
    "physics": 0,
    "metrics": 0,
    "resolution": 0,
    "significance": 0,
    "uncertainty": 0,
    "calibration": 0,
    # 1, method
    "losses": 1,
    "elbo": 1,
    "model": 1,
    "sampling": 1,
    "baselines": 1,
    "step_choice": 1,
    # 2, data
    "data": 2,
    "problems": 2,
    # 3, runs
    "strict_yaml": 3,
    "recipe": 3,
    "assembly": 3,
    "tensor_layout": 3,
    "tensor_file": 3,
    "hub": 3,
    "marks": 3,
    "ownership": 3,
    "model_file": 3,
    "checkpoint": 3,
    "runfolder": 3,
    "run_inputs": 3,
    "ranks": 3,
    "progress": 3,
    "panels": 3,
    "dashboard": 3,
    "preparation": 3,
    "validation": 3,
    "train": 3,
    "restoration": 3,
    "methods": 3,
    "phase_methods": 3,
    "evaluate": 3,
    "report": 3,
    "sweep": 3,
    "plotting": 3,
    "audit": 3,
    "figures": 3,
    "held_out": 3,
    "calibrate": 3,
    "calibration_figures": 3,
    "diagram": 3,
    "step_report": 3,
    "inspection": 3,
    "export": 3,
    "clinical": 3,
    "doctor": 3,
    "demo": 3,
    # 4, shells
    "cli": 4,
    "napari_plugin": 4,
    "__main__": 4,
}
READERS = {"torch", "numpy", "numcodecs", "zarr", "tifffile", "PIL"}
ALLOWED = {
    0: {"torch", "numpy"},
    1: {"torch", "numpy"},
    2: READERS,
    3: {"torch", "numpy", "PIL", "pydantic", "yaml", "rich"},
    4: {"torch", "numpy", "typer", "rich", "yaml"},
}
"""Libraries outside the standard one that the modules of a layer may import at their top."""

SHELLS = {"napari_plugin": {"napari", "qtpy"}}
"""Libraries that a shell is made for, which only it may import."""

INSIDE_FUNCTIONS = {
    "metrics": {"torchmetrics"},
    "significance": {"scipy"},
    "restoration": {"dask", "distributed"},
    "hub": {"huggingface_hub"},
    "export": {"onnx", "onnxruntime", "onnxscript", "bioimageio", "huggingface_hub"},
    "plotting": {"matplotlib"},
    "figures": {"matplotlib"},
    "audit": {"matplotlib", "scipy"},
    "diagram": {"matplotlib"},
    "calibration_figures": {"matplotlib"},
    "step_report": {"matplotlib"},
}
"""Libraries of an extra, which a unit imports where it uses them and never at its top."""

FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}


def unit(path: Path) -> str:
    """The part of the package a file belongs to: its module, or the folder it is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Full names of all modules a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide where things come from"
            module = node.module or ""
            submodules = {f"{module}.{alias.name}" for alias in node.names}
            names |= {name for name in submodules if is_module(name)} or {module}
    return names


def is_module(name: str) -> bool:
    place = PACKAGE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def own_units(path: Path) -> set[str]:
    """Units of this package that a file imports."""
    inside = {name.removeprefix("sfumato.") for name in imports(path) if name.startswith("sfumato.")}
    return {name.split(".")[0] for name in inside} - {unit(path)}


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    layer = LAYERS[unit(path)]
    for other in own_units(path):
        assert LAYERS[other] <= layer, f"{unit(path)} (layer {layer}) imports {other} (layer {LAYERS[other]})"
        assert LAYERS[other] < 4 or unit(path) == "__main__", f"{unit(path)} imports the shell {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_libraries_stay_in_their_layers(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)} - {"sfumato", ""}
    foreign = roots - set(sys.stdlib_module_names)
    late = INSIDE_FUNCTIONS.get(unit(path), set())
    assert foreign <= ALLOWED[LAYERS[unit(path)]] | late | SHELLS.get(unit(path), set())
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        assert not (late and isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in late)


def test_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        graph.setdefault(unit(path), set()).update(own_units(path))
    list(graphlib.TopologicalSorter(graph).static_order())


def test_networks_know_nothing_of_diffusion() -> None:
    for path in (PACKAGE / "nn").glob("*.py"):
        assert own_units(path) == set()


def test_every_unit_has_a_layer_and_a_name_that_says_what_it_knows() -> None:
    units = {unit(path) for path in FILES}
    assert units == set(LAYERS)
    assert not units & FORBIDDEN_NAMES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_say_what_they_offer(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    if path.name == "__main__.py" or len(tree.body) == 1:
        return
    assert any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body)


def test_public_names() -> None:
    """A change here is a change of the public interface."""
    assert sfumato.__all__ == ["CVDM", "LearnedSchedule", "Posterior", "__version__", "load", "restore", "sample"]
    for name in sfumato.__all__:
        assert getattr(sfumato, name) is not None
        assert name in dir(sfumato)
    with pytest.raises(AttributeError, match="public names: CVDM"):
        _ = sfumato.restorer
