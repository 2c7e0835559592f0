"""Findings and limits of the results page: sentences whose figures come from what is stored."""

import math
import re
from collections.abc import Iterator, Mapping

from evidence.found import NEW
from yardstick.comparison import compare, geometric_mean, mean_of, share_above, stored_at, values_of
from yardstick.contenders import PARTS
from yardstick.scores import BANDS
from yardstick.stored import figures

__all__ = ["findings", "limits", "more"]

_SHORT, _LONG = 4.0, 30.0
_STRUCTURES = {
    "coated_pits": "points",
    "endoplasmic_reticulum": "reticulum",
    "f_actin": "dense F-actin",
    "microtubules": "microtubules",
}
_NAMES = {"microscopy": "microscopy", "phase": "phases", "w2s": "W2S"}


def more(ratio: float) -> str:
    """A ratio in words.

    Example:
        >>> more(1.14), more(0.968), more(1.004)
        ('14% more', '3% less', 'as much as ours')
    """
    change = f"{abs(ratio - 1):.0%}"
    return "as much as ours" if change == "0%" else f"{change} {'more' if ratio > 1 else 'less'}"


def findings() -> Iterator[str]:
    """Lines of the numbered findings."""
    error, crps = (_over("microscopy", NEW, "default_0_1", _LONG, metric=metric) for metric in ("MAE", "CRPS"))
    short, long = (
        {name: _over(problem, "regression", NEW, minutes) for problem, name in _NAMES.items()}
        for minutes in (_SHORT, _LONG)
    )
    together = _over("microscopy", "together", NEW, _SHORT)
    one_scale = _over("microscopy", "one_scale", NEW, _SHORT, metric="CRPS")
    points, actin = (_over("microscopy", "regression", NEW, _LONG, group=name) for name in ("coated_pits", "f_actin"))
    light = figures("microscopy")
    within = {name: mean_of(values_of(light, NEW, _SHORT, "within", of)) for of, name in _STRUCTURES.items()}
    narrow, wide = min(within, key=lambda name: within[name]), max(within, key=lambda name: within[name])
    yield from _items(f"""
1. **A mean learned first makes minutes enough.** Version 0.1 needed half an hour for what today's presets reach in
   four minutes on microscopy; after half an hour they have {more(error)} error, and their distribution
   {more(crps)}. What changed ([each left out](results/per_minute.md)): the best linear filter as a start, then the
   mean alone, its error measured patch by patch, then the scale of what is left, and last the denoiser. On
   microscopy, learning all together gives {more(together)} error after four minutes, one scale for all pixels
   {more(one_scale)} CRPS.
2. **On each problem the mean has as little error as a regression's, or less**, though a quarter of the time goes to
   samples. The same network, trained on nothing but the mean for the same seconds, has {_range(short)} error
   after four minutes; after half an hour
   {more(long["phases"])} on phases, {more(long["W2S"])} on W2S, and {more(long["microscopy"])} on microscopy:
   {more(points)} on points, {more(actin)} on dense F-actin. It starts without the linear filter, and follows the
   square error.
3. **Error bars are close to right without calibration**, on all three problems and, after half an hour, on each
   structure of microscopy; after four minutes {within[narrow]:.0%} ({narrow}) to {within[wide]:.0%} ({wide}) of the
   true pixels lie within 16 samples there. [Calibration](calibration.md) comes with a guarantee.
4. **Eight calls are enough**, and one read gives the mean and an error bar per pixel: [what that costs](speed.md).
5. **A classical method with the physics in hand is a strong rival.** Richardson-Lucy, given the blur that made
   the images, was as good as version 0.1 on points after half an hour of training. Today's four minutes have
   {_against_richardson_lucy(_SHORT)} error than it, half an hour {_against_richardson_lucy(_LONG)}.
""")


def limits() -> Iterator[str]:
    """Lines of the list of limits."""
    phases = figures("phase")
    short, long = (share_above(phases, (NEW, minutes), ("filter", 0.0), "MAE") for minutes in (_SHORT, _LONG))
    within = mean_of(values_of(phases, "cddpm_paper", _LONG, "within"))
    cddpm, flow = (_over("phase", *them) for them in (("cddpm_paper", NEW, _LONG), ("flow", NEW, _SHORT)))
    light, phase, w2s = (_power(problem) for problem in ("microscopy", "phase", "w2s"))
    yield from _items(f"""
- One training of each after half an hour; after four minutes three of today's presets and the regression, two of the
  fixed schedule. `python experiments/per_minute.py --list` names what is still to be measured.
- Phases are the weak point: on {short:.0%} of the photographs after four minutes, {long:.0%} after half an hour, the
  mean has more error than the linear filter's, mostly where there is little contrast. On few photographs, the paper's
  CDDPM (patches of 64 pixels) has {more(cddpm)} error after half an hour, its error bars too narrow ({within:.0%}
  within 16 samples), and [flow matching](comparison.md#measured-on-the-same-pairs) {more(flow)} after four minutes:
  neither is certain.
- Samples have too much fine structure: after half an hour {light[-1]:.1f} times the truth's power in the finest of
  eight bands on microscopy, {phase[-1]:.1f} on phases, and up to {max(w2s):.1f} in the middle bands of W2S, where there
  is little power.
- Two processor cores, small networks: nothing here says what a GPU would give.
- Microscopy is simulated; W2S has 5 test fields of one microscope.
- On real through-focus stacks three specimens are too few to tell anything.
""")


def _items(text: str) -> list[str]:
    """The items of a list, a line each."""
    return re.sub(r"\n +", " ", text.strip()).splitlines()


def _over(
    problem: str, first: str, second: str, minutes: float, *, metric: str = "MAE", group: str | None = None
) -> float:
    """Ratio of two contenders after the same minutes."""
    stored = figures(problem)
    one, other = ((name, stored_at(stored, name, minutes)) for name in (first, second))
    found = compare(stored, one, other, metric, group, by_seed=first in PARTS)
    if found is None:
        raise ValueError(f"{first} and {second} are not both stored after {minutes:g} minutes; measure them first")
    return found.value


def _range(ratios: Mapping[str, float]) -> str:
    """The ratio next to 1 and the one furthest from it, with their names."""
    (near, least), *_, (far, most) = sorted(ratios.items(), key=lambda item: abs(math.log(item[1])))
    if (least > 1) != (most > 1):
        return f"{more(least)} ({near}) to {more(most)} ({far})"
    return f"{abs(least - 1):.0%} ({near}) to {abs(most - 1):.0%} ({far}) {more(most).split()[-1]}"


def _against_richardson_lucy(minutes: float) -> str:
    return _range(
        {name: _over("microscopy", NEW, "richardson_lucy", minutes, group=of) for of, name in _STRUCTURES.items()}
    )


def _power(problem: str) -> list[float]:
    stored = figures(problem)
    return [geometric_mean(values_of(stored, NEW, _LONG, f"power {band}")) for band in range(1, BANDS + 1)]
