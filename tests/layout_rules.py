"""What the folders of the package are for, and what each may import."""

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FOLDERS", "ROOT_MODULES", "folder_of", "imports", "level", "may_import", "violations"]

LEVELS: list[dict[str, str]] = [
    {
        "system": "errors, files that survive a crash, device, progress, version",
        "physics": "forward models and classical solvers: pure functions of tensors",
        "nn": "networks from images to images; they know nothing of diffusion",
    },
    {
        "diffusion": "the method: warp, schedule, losses, model, sampling, noise, posterior, bound",
        "data": "pairs, order, normalisation, batches, packed stores; `data/images`: file formats",
        "statistics": "metrics, resolution, significance, calibration: pure functions of arrays",
    },
    {
        "models": "the recipe, the networks built from it, the model file",
        "problems": "what turns files or a simulator into pairs",
        "figures": "what is drawn from arrays and models",
    },
    {
        "training": "the loop, its data, its checkpoints, its ranks",
        "restoration": "from a measured image to its posterior, of any size, on any engine",
    },
    {
        "evaluation": "what compares and judges models",
        "audit": "is a restored image supported by its measurement?",
        "export": "BioImage.IO, ONNX, the Hugging Face Hub",
    },
    {
        "cli": "parses, calls, prints; no science",
        "napari_plugin": "training, calibrating and restoring by clicking",
    },
]
"""From the bottom to the top; a folder may import those of lower levels, and no other."""

FOLDERS = {folder: purpose for group in LEVELS for folder, purpose in group.items()}
ROOT_MODULES = {"__init__.py", "__main__.py"}
"""The doors: they may import what they open."""


def level(folder: str) -> int:
    """How high a folder stands."""
    return next(number for number, group in enumerate(LEVELS) if folder in group)


def may_import(folder: str) -> list[str]:
    """The folders of lower levels."""
    return [lower for group in LEVELS[: level(folder)] for lower in group]


def folder_of(path: Path, package: Path) -> str:
    """The folder directly under the package that a file is in; its own name at the root."""
    return path.relative_to(package).parts[0]


def imports(path: Path) -> set[str]:
    """Full names of what a file imports, wherever in it; `from a import b` counts as `a` and as `a.b`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


def violations(package: Path) -> Iterator[str]:
    """Each break of the rules, in words."""
    for path in sorted(package.rglob("*.py")):
        place, folder = path.relative_to(package).as_posix(), folder_of(path, package)
        if path.parent == package:
            if path.name not in ROOT_MODULES:
                yield f"{place} lies at the root; expected a folder"
            continue
        if folder not in FOLDERS:
            yield f"{place} is in {folder}, which has no level"
            continue
        names = imports(path)
        if any(name.startswith(".") for name in names):
            yield f"{place} has a relative import, which hides where things come from"
        inside = [name.split(".") for name in names if name.split(".")[0] == package.name]
        if any(len(parts) == 2 and parts[1] not in FOLDERS for parts in inside) or _imports_root(path, package.name):
            yield f"{place} imports the package itself; expected a module of it"
        for other in sorted({parts[1] for parts in inside if len(parts) > 1} & FOLDERS.keys() - {folder}):
            if level(other) > level(folder):
                yield f"{place} imports {other}, which stands above {folder}"
            elif level(other) == level(folder):
                yield f"{place} imports {other}, which is of the same level as {folder}"


def _imports_root(path: Path, package: str) -> bool:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(isinstance(node, ast.Import) and package in {alias.name for alias in node.names} for node in nodes)
