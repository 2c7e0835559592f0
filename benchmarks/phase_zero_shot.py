"""Phases of real specimens by a model that has seen none: trained on simulated pairs, measured against physics.

    python benchmarks/phase_zero_shot.py --train runs/phase                # on one thread, 15 minutes; resumes
    python benchmarks/phase_zero_shot.py --measure runs/phase --write      # figures, and the picture of the docs
    python benchmarks/phase_zero_shot.py --check                           # the stored figures against their bars

The images are found through the environment variable SFUMATO_DATA. The model, that of
recipes/small/qpi_in_focus.yaml, learns from photographs of `natural_imagenet100` that stand for phases.
"""

import argparse
import os
from pathlib import Path

import torch

from real_phases import data
from sfumato import recipe as recipes
from sfumato.train import train

RECIPE = Path(__file__).parents[1] / "recipes" / "small" / "qpi_in_focus.yaml"


def train_model(folder: Path, minutes: float) -> None:
    recipe = recipes.load(RECIPE)
    place = recipe.data.model_copy(update={"folder": str(data("natural_imagenet100"))})
    train(recipe.model_copy(update={"data": place}), folder, minutes=minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path, help="folder of the run")
    parser.add_argument("--minutes", type=float, default=15, help="with --train: how long")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if arguments.train:
        train_model(arguments.train, arguments.minutes)


if __name__ == "__main__":
    main()
