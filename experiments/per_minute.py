"""What restores best in the same minutes: all contenders on three problems at equal processor seconds of one core.

    python experiments/per_minute.py --list                          # cells and which of them are stored
    python experiments/per_minute.py --costs --work runs             # time a step of each contender in turn
    python experiments/per_minute.py --run --work runs --jobs 2      # train and measure what is missing; resumes
    python experiments/per_minute.py --run w2s/regression --work runs   # cells whose names start so
    python experiments/per_minute.py                                 # print the tables of what is stored
    python experiments/per_minute.py --calls                         # cost of a network call, today and in version 0.1
    python experiments/per_minute.py --check                         # the figures against their bars

Images are found through the environment variable SFUMATO_DATA. A cell is problem/contender/minutes/seed. Contenders get
the same pairs, fresh noise where noise is simulated, and the same test images. Minutes are processor time of training
steps on one core, data included; opening files and validation are not counted. Figures per test image are stored in
experiments/results/per_minute.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core each
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars

from yardstick.cells import Cell, cells
from yardstick.problems import Places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="cells and which of them are stored")
    parser.add_argument("--run", nargs="*", metavar="CELL", help="train and measure cells whose names start so, or all")
    parser.add_argument("--work", type=Path, default=Path("runs/per_minute"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time, one core each")
    parser.add_argument(
        "--costs", nargs="*", metavar="CELL", help="time a step of cells whose names start so, or of all"
    )
    parser.add_argument("--calls", action="store_true", help="time a network call, today and in version 0.1")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    from yardstick import running

    if arguments.cell:
        running.run_one(Cell.named(arguments.cell), Places.below(arguments.work))
    elif arguments.costs is not None:
        from yardstick.costs import measure_costs
        from yardstick.problems import make_data

        make_data(Places.below(arguments.work))
        measure_costs(_named(arguments.costs), Places.below(arguments.work))
    elif arguments.run is not None:
        try:
            sys.exit(min(1, running.run(_named(arguments.run), Places.below(arguments.work), jobs=arguments.jobs)))
        except KeyboardInterrupt:
            sys.exit(130)
    elif arguments.list:
        from yardstick.stored import is_stored

        for cell in cells():
            print(f"{cell.name:<42} {'stored' if is_stored(cell) else 'missing'}")
    else:
        from yardstick import tables

        if arguments.calls:
            tables.print_calls()
        else:
            tables.print_all(check=arguments.check)


def _named(starts: list[str]) -> list[Cell]:
    """Cells whose names start with one of some texts, or all."""
    found = [cell for cell in cells() if not starts or any(f"{cell.name}/".startswith(start) for start in starts)]
    if not found:
        sys.exit(f"no cell's name starts with {' or '.join(starts)}; --list shows all of them")
    return found


if __name__ == "__main__":
    main()
