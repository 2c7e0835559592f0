"""Run the attacks of `tests/attack` against an earlier commit: those that are not guards must fail there.

    python benchmarks/attack_before.py 66781c6
    python benchmarks/attack_before.py 66781c6 test_leaks.py test_names.py

Prints the cases that passed on that commit without being marked as guards, and counts all. The commit's package and the
tests of another commit are checked out into temporary folders. The tests must import what the package has, so they come
from the last commit before the modules were moved into folders, unless `--tests` names another one.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="on which the attacks should succeed")
    parser.add_argument("files", nargs="*", help="of tests/attack; all by default")
    parser.add_argument("--tests", default="5580c4b", metavar="COMMIT", help="whose attacks to run [%(default)s]")
    arguments = parser.parse_args()
    commit = arguments.commit
    with checked_out(commit) as before, checked_out(arguments.tests) as tests:
        passed, failed = run_attacks(before / "src", tests, arguments.files)
    for name in passed:
        print(f"passes on {commit}, and is no guard: {name}")
    print(f"attacks: {len(passed) + len(failed)} that are no guards; {len(failed)} fail on {commit}")
    return 1 if passed or not failed else 0


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A temporary folder with the files of a commit."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "files")
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), commit], check=True)
        try:
            yield folder
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], check=True)


def run_attacks(source: Path, tests: Path, files: list[str]) -> tuple[list[str], list[str]]:
    """Names of the attacks that passed and failed, with the package of one folder and the tests of another."""
    places = [f"tests/attack/{name}" for name in files] or ["tests/attack"]
    command = [sys.executable, "-m", "pytest", *places, "-m", "not guard and not slow", "-q", "-rA", "--tb=no"]
    # Old code warns where today's does not; that alone is no failure.
    command += ["-W", "default", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(source)}
    found = subprocess.run(command, cwd=tests, env=env, capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    passed = [line.split()[1] for line in lines if line.startswith("PASSED ")]
    failed = [line.split()[1] for line in lines if re.match("(FAILED|ERROR) ", line)]
    if not passed and not failed:
        raise SystemExit(f"no attack ran:\n{found.stdout[-3000:]}{found.stderr[-3000:]}")
    return passed, failed


if __name__ == "__main__":
    sys.exit(main())
