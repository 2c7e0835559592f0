"""How much `pip install sfumato` adds to a disk that has torch and numpy, in a fresh environment; and the wheel's size.

    python benchmarks/install_size.py --check

Takes minutes: torch is installed anew.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bars import Bars

ROOT = Path(__file__).parents[1]
MEGABYTE = 1e6


def size_of(folder: Path, *, compiled: bool = False) -> int:
    """Bytes of all files, or of byte code alone, which Python makes of them and pip makes beforehand."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return sum(file.stat().st_size for file in files if ("__pycache__" in file.parts) == compiled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    parser.add_argument("--torch", default="torch==2.13.0", help="what to install first")
    arguments = parser.parse_args()
    bars = Bars()
    with tempfile.TemporaryDirectory() as place:
        environment = Path(place) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"

        def pip(*words: str) -> None:
            subprocess.run([str(python), "-m", "pip", *words, "--quiet", "--disable-pip-version-check"], check=True)

        pip("install", "--upgrade", "pip", "setuptools")
        pip("install", arguments.torch, "numpy")
        before, compiled = size_of(environment), size_of(environment, compiled=True)
        pip("wheel", "--no-deps", "--wheel-dir", place, str(ROOT))
        wheel = next(Path(place).glob("sfumato-*.whl"))
        constraints = Path(place) / "constraints.txt"
        constraints.write_text(arguments.torch + "\n")
        pip("install", "--constraint", str(constraints), str(wheel))
        bars.report("wheel, MB", wheel.stat().st_size / MEGABYTE, high=6)
        bars.report("torch and numpy, MB", before / MEGABYTE)
        bars.report("added by sfumato, MB", (size_of(environment) - before) / MEGABYTE, high=80)
        bars.report("byte code on top, MB", (size_of(environment, compiled=True) - compiled) / MEGABYTE)
        packages = [path for path in next(environment.rglob("site-packages")).iterdir() if path.is_dir()]
        largest = sorted(((size_of(path), path.name) for path in packages), reverse=True)[:12]
        print("largest: " + ", ".join(f"{name} {size / MEGABYTE:.1f}" for size, name in largest))
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
