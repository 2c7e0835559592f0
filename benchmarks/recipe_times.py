"""How long the small recipes train: the time of a step, times their number of steps.

    python benchmarks/recipe_times.py --check

Steps are those of the recipe's networks, patch, batch and optimizer, on random pixels: reading data costs at most a
twentieth of a step (benchmarks/data_loading.py), and validation is left out. The recipe of W2S says half an hour, all
others a quarter.
"""

import argparse
import time
from pathlib import Path

import torch

from bars import Bars
from sfumato.models.build import build_model
from sfumato.models.recipe import Recipe, load

RECIPES = Path(__file__).parents[1] / "recipes" / "small"
CHANNELS = {"phase": (2, 1), "natural": (3, 3)}
"""Of condition and target, by problem; one of each elsewhere."""


def seconds_of_a_step(recipe: Recipe, repeats: int) -> float:
    condition_channels, target_channels = CHANNELS.get(recipe.problem, (1, 1))
    model = build_model(recipe.model, condition_channels, target_channels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.train.learning_rate)
    spatial, batch = [recipe.data.patch] * recipe.model.ndim, recipe.train.batch_size
    generator = torch.Generator().manual_seed(0)
    condition = torch.randn(batch, condition_channels, *spatial, generator=generator)
    target, eps = torch.randn(2, batch, target_channels, *spatial, generator=generator)
    times = []
    for _ in range(repeats + 2):
        started = time.monotonic()
        optimizer.zero_grad()
        model.loss(condition, target, t=torch.rand(batch, generator=generator), eps=eps).total.backward()
        optimizer.step()
        times.append(time.monotonic() - started)
    return min(times[2:])  # a busy machine can only add to it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10, help="steps that are timed, per recipe")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    bars = Bars()
    for path in sorted(RECIPES.glob("*.yaml")):
        recipe = load(path)
        minutes = recipe.train.steps * seconds_of_a_step(recipe, arguments.repeats) / 60
        bars.report(
            f"{path.stem}: minutes for {recipe.train.steps} steps", minutes, high=30 if path.stem == "w2s" else 15
        )
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
