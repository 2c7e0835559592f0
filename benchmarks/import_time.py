"""What importing costs, in fresh processes.

    python benchmarks/import_time.py --check

The library is compared with ``import torch`` in the same run; the command line must answer without torch at all.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bars import Bars

EVERY_NAME = "import sfumato; [getattr(sfumato, name) for name in sfumato.__all__]"


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes per figure")
    arguments = parser.parse_args()
    bars, rounds = Bars(), range(arguments.rounds)
    python = [sys.executable, "-c"]
    command = shutil.which("sfumato", path=str(Path(sys.executable).parent)) or "sfumato"
    for work in ([*python, EVERY_NAME], [command, "--help"]):
        seconds(work)  # once, so that every file is in the cache
    torch = [seconds([*python, "import torch"]) for _ in rounds]
    names = [seconds([*python, EVERY_NAME]) for _ in rounds]
    bars.report("every public name / import torch", min(names) / min(torch), high=1.2)
    for flag in ("--help", "--version"):
        times = [seconds([command, flag]) for _ in rounds]
        bars.report(f"sfumato {flag}, seconds", min(times), high=0.5)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
