"""Give command lines, a JSON list on standard input, to the scripts' own parsers, and end each script right after."""

import argparse
import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any


class Parsed(Exception):  # noqa: N818 (it is no error)
    """The options were understood."""


def main() -> None:
    understand = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        understand(self, *given, **named)
        raise Parsed

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[assignment]
    for command in json.load(sys.stdin):
        sys.argv, said = command, io.StringIO()
        sys.path[0] = str(Path(command[0]).parent)
        try:
            with contextlib.redirect_stderr(said):
                runpy.run_path(command[0], run_name="__main__")
            print(f"{' '.join(command)}: has no parser")
        except Parsed:
            pass
        except SystemExit:
            print(f"{' '.join(command)}: {said.getvalue().splitlines()[-1]}")


if __name__ == "__main__":
    main()
