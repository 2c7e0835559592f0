"""Do what a document says: run its Python and shell blocks in order, in an empty folder, as a reader would.

    python follow.py README.md "Five minutes"

With a title, only the blocks of the section whose heading starts with it. Blocks after `<!-- not run -->` are left out.
The programs are those of the Python that runs this.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"(<!-- not run -->\s*)?```(python|sh)\n(.*?)```", re.DOTALL)


def blocks(text: str, title: str) -> list[tuple[str, str]]:
    """Kind and text of the blocks to run, of one section or of all."""
    if title:
        sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
        text = next(section for section in sections if section.startswith(f"## {title}"))
    return [(kind, code) for left_out, kind, code in BLOCK.findall(text) if not left_out]


def main() -> None:
    """Run them."""
    document, title = Path(sys.argv[1]).resolve(), " ".join(sys.argv[2:])
    found = blocks(document.read_text(encoding="utf-8"), title)
    if not found:
        sys.exit(f"{document.name} has no blocks to run under {title!r}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        for kind, code in found:
            command = [sys.executable, "-c", code] if kind == "python" else ["bash", "-euo", "pipefail", "-c", code]
            subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, check=True)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file() and file.suffix in (".png", ".safetensors") and "checkpoints" not in file.parts:
                print(f"left: {file.relative_to(folder)}, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
