"""The paper's claims on models trained here: run, resume and report a matrix of cells (problem, method, seed).

    python experiments/paper_small.py --list                                # cells, their state, expected minutes
    python experiments/paper_small.py --run --tier 1 --work runs --jobs 2   # train and measure what is missing; resumes
    python experiments/paper_small.py --run qpi/cvdm_0_1/0 --work runs      # one cell
    python experiments/paper_small.py --rerun qpi/cvdm_0_1/0 --work new     # does it give what is stored?
    python experiments/paper_small.py --report                              # tables and figures of docs/results.md
    python experiments/paper_small.py --pictures --work runs                # restorations and schedules of models
    python experiments/paper_small.py --check                               # the page says what the figures say

Images are found through the environment variable SFUMATO_DATA. Figures per test image are stored in
experiments/results/paper_small, and the page is made of them alone. Cells that are not measured yet are shown as such.
What is compared, and on how many images of what size, is in experiments/paper/matrix.py.
"""

import argparse
import sys
from pathlib import Path

from paper.matrix import CELLS, cell_named
from paper.stored import RESULTS, Places, data_folder

PAGE = Path(__file__).parents[1] / "docs" / "results.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="cells, their state and expected minutes")
    parser.add_argument("--run", nargs="*", metavar="CELL", help="train and measure cells, or all of --tier")
    parser.add_argument("--rerun", metavar="CELL", help="train a cell again and compare it with the stored result")
    parser.add_argument("--tier", type=int, help="only cells of this tier")
    parser.add_argument("--work", type=Path, default=Path("runs/paper_small"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time, one core each")
    parser.add_argument("--report", action="store_true", help="write the page's tables and figures")
    parser.add_argument("--pictures", nargs="*", metavar="NAME", help="draw what models restore and learned")
    parser.add_argument("--check", action="store_true", help="exit non-zero if the page does not say what is stored")
    parser.add_argument("--time", action="store_true", help="time a few steps of each kind and store the costs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the stored figures")
    parser.add_argument("--page", type=Path, default=PAGE, help="the document")
    parser.add_argument("--samples", type=int, default=0, help="draws, for a trial of the harness")
    parser.add_argument("--images", type=int, default=99, help="images per set, for a trial of the harness")
    parser.add_argument("--crop", type=int, default=0, help="side of test images, for a trial of the harness")
    parser.add_argument("--set", action="append", default=[], help="any field of all recipes, for a trial")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cells = [cell for cell in CELLS if arguments.tier in (None, cell.tier)]
    if arguments.report or arguments.check:
        from paper.page import check, write

        (check if arguments.check else write)(arguments.page, arguments.results)
        return
    places = Places(
        arguments.work.resolve(),
        data_folder(),
        arguments.results.resolve(),
        tuple(arguments.set),
        arguments.samples,
        arguments.images,
        arguments.crop,
    )
    if arguments.pictures is not None:
        from paper.pictures import draw_all

        draw_all(places, arguments.page.parent / "figures", arguments.pictures)
        return
    from paper import running

    if arguments.one:
        running.run_one(arguments.one, places)
    elif arguments.rerun:
        sys.exit(0 if running.rerun(arguments.rerun, places) else 1)
    elif arguments.time:
        running.time_cells(cells, places)
    elif arguments.run is not None:
        try:
            sys.exit(min(1, running.run([*map(cell_named, arguments.run)] or cells, places, jobs=arguments.jobs)))
        except KeyboardInterrupt:
            sys.exit(130)
    else:
        print("\n".join(running.list_cells(cells, places)))


if __name__ == "__main__":
    main()
