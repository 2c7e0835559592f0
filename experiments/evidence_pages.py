"""What the stored figures say, on the pages: tables, verdicts and drawings.

    python experiments/evidence_pages.py                             # print the claims and their verdicts
    python experiments/evidence_pages.py --write                     # put tables and drawings into README.md and docs
    python experiments/evidence_pages.py --check                     # see that the pages say what is stored; also in CI
    python experiments/evidence_pages.py --pictures --work runs/per_minute   # draw restored images of trained cells
    python experiments/evidence_pages.py --gallery --work runs/per_minute    # draw pictures of docs/gallery.md, w2s.md
    python experiments/evidence_pages.py --archive                   # print all that is kept of version 0.1's models

Figures come from experiments/per_minute.py, experiments/few_calls.py and, for version 0.1, from trainings that are not
repeated.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core each
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from bars import DOCS, write_table
from evidence.archive import archive_tables
from evidence.findings import findings, limits
from evidence.forest import draw_forest
from evidence.tables import full_tables, main_table, peers_table, readme_claims, w2s_table
from evidence.verdicts import claim_table

MADE: dict[tuple[str, str], Callable[[], Iterator[str]]] = {
    ("../README.md", "claims"): readme_claims,
    ("results.md", "table"): main_table,
    ("results.md", "findings"): findings,
    ("results.md", "claims"): claim_table,
    ("results.md", "limits"): limits,
    ("comparison.md", "peers"): peers_table,
    ("w2s.md", "table"): w2s_table,
    ("results/per_minute.md", "tables"): full_tables,
    ("results/version_0_1.md", "tables"): archive_tables,
}
"""What is made of the stored figures, by the page below docs/ and the mark on it."""
FOREST = "figures/results_forest.svg"


def write(docs: Path) -> None:
    """Renew every table of the pages below a folder, and the forest plot."""
    for (page, mark), lines in MADE.items():
        write_table(docs / page, list(lines()), mark)
    draw_forest(docs / FOREST)


def differing(docs: Path) -> list[str]:
    """Tables of the pages that do not say what is stored."""
    found = []
    for (page, mark), lines in MADE.items():
        shown = (docs / page).read_text(encoding="utf-8")
        if f"<!-- {mark} -->\n\n" + "\n".join(lines()) + f"\n\n<!-- end of {mark} -->\n" not in shown:
            found.append(f"{page}, {mark}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="renew tables and drawings")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a page does not say what is stored")
    parser.add_argument("--archive", action="store_true", help="print what is kept of version 0.1's models")
    parser.add_argument("--pictures", action="store_true", help="draw restored images and schedules of trained cells")
    parser.add_argument("--gallery", action="store_true", help="draw the pictures of docs/gallery.md and w2s.md")
    parser.add_argument("--work", type=Path, default=Path("runs/per_minute"), help="folder of the trained cells")
    arguments = parser.parse_args()
    if arguments.gallery:
        from evidence.gallery import draw_gallery, draw_real
        from yardstick.problems import Places

        draw_gallery(DOCS / "figures" / "gallery", Places.below(arguments.work))
        draw_real(DOCS / "figures" / "w2s_panel.png", Places.below(arguments.work))
    if arguments.pictures:
        from evidence.pictures import draw_first, draw_restored, draw_schedules
        from yardstick.problems import Places

        places = Places.below(arguments.work)
        draw_first(DOCS / "figures" / "readme.png", places)
        draw_restored(DOCS / "figures" / "results_restored.png", places)
        draw_schedules(DOCS / "figures" / "results_schedules.svg", places)
    if arguments.write:
        write(DOCS)
    print("\n".join(archive_tables() if arguments.archive else claim_table()))
    if arguments.check and (found := differing(DOCS)):
        sys.exit(f"not what is stored: {'; '.join(found)}; run python experiments/evidence_pages.py --write")


if __name__ == "__main__":
    main()
