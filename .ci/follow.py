"""Do what a document says: run its Python and shell blocks in order, in an empty folder, as a reader would.

    python follow.py [--in FOLDER] [--short] [--programs FOLDER] README.md ["Five minutes"]

With a title, only the blocks of the section whose heading starts with it. Blocks marked `<!-- not run: REASON -->` are
left out; with `--short`, `<!-- in tests: SHOWN => RUN -->` changes those that it marks. With `--in`, the folder is one
that has been prepared, and it stays. The programs are those of the Python that runs this, or come from `--programs`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from page_blocks import Block, blocks


def follow(found: list[Block], folder: Path, *, short: bool, programs: Path | None) -> None:
    first = [programs] if programs else []
    path = os.pathsep.join(map(str, [*first, Path(sys.executable).parent, os.environ["PATH"]]))
    python = str(programs / "python") if programs else sys.executable
    for block in found:
        code = block.in_tests() if short else block.code
        command = [python, "-c", code] if block.kind == "python" else ["bash", "-euo", "pipefail", "-c", code]
        subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, check=True)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix in (".png", ".safetensors") and "checkpoints" not in file.parts:
            print(f"left: {file.relative_to(folder)}, {file.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("document", type=Path)
    parser.add_argument("title", nargs="*")
    parser.add_argument("--in", dest="folder", type=Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--programs", type=Path)
    given = parser.parse_args()
    title = " ".join(given.title)
    found = [
        block
        for block in blocks(given.document.read_text(encoding="utf-8"))
        if block.kind in ("python", "sh") and block.is_run and block.section.startswith(title)
    ]
    if not found:
        sys.exit(f"{given.document.name} has no blocks to run under {title!r}")
    if given.folder:
        follow(found, given.folder, short=given.short, programs=given.programs)
    else:
        with tempfile.TemporaryDirectory() as folder:
            follow(found, Path(folder), short=given.short, programs=given.programs)


if __name__ == "__main__":
    main()
