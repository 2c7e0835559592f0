"""Run the attacks of `tests/attack` against an earlier commit: those that are not guards must fail there.

    python benchmarks/attack_before.py 66781c6

Prints the cases that passed on that commit without being marked as guards, and counts all. The commit's package is
checked out into a temporary folder and imported in place of this one; the tests are today's.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="on which the attacks should succeed")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "before")
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), commit], check=True)
        try:
            passed, failed = run_attacks(folder / "src")
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], check=True)
    for name in passed:
        print(f"passes on {commit}, and is no guard: {name}")
    print(f"attacks: {len(passed) + len(failed)} that are no guards; {len(failed)} fail on {commit}")
    return 1 if passed or not failed else 0


def run_attacks(source: Path) -> tuple[list[str], list[str]]:
    """Names of the attacks that passed and failed with the package of that folder."""
    command = [sys.executable, "-m", "pytest", "tests/attack", "-m", "not guard and not slow", "-q", "-rA", "--tb=no"]
    # Old code warns where today's does not; that alone is no failure.
    command += ["-W", "default", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    lines = found.stdout.splitlines()
    passed = [line.split()[1] for line in lines if line.startswith("PASSED ")]
    failed = [line.split()[1] for line in lines if re.match("(FAILED|ERROR) ", line)]
    if not passed and not failed:
        raise SystemExit(f"no attack ran:\n{found.stdout[-3000:]}{found.stderr[-3000:]}")
    return passed, failed


if __name__ == "__main__":
    sys.exit(main())
