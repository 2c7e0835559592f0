"""Restore scientific images with conditional variational diffusion models (arXiv 2312.02246).

The public names below are resolved on first use (PEP 562), so that the command line answers
``--help`` without loading torch. Everything else is reached by its module, for example
``sfumato.diffusion.gaussian.reverse_step``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sfumato.system.version import __version__

if TYPE_CHECKING:
    from sfumato.diffusion.model import CVDM
    from sfumato.diffusion.posterior import Posterior
    from sfumato.diffusion.sampling import sample
    from sfumato.diffusion.schedule import LearnedSchedule
    from sfumato.evaluation.in_memory import calibrate, evaluate
    from sfumato.models.model_file import load
    from sfumato.models.own_model import save
    from sfumato.restoration.in_memory import restore

__all__ = [
    "CVDM",
    "LearnedSchedule",
    "Posterior",
    "__version__",
    "calibrate",
    "evaluate",
    "load",
    "restore",
    "sample",
    "save",
]

_HOME = {
    "CVDM": "sfumato.diffusion.model",
    "LearnedSchedule": "sfumato.diffusion.schedule",
    "Posterior": "sfumato.diffusion.posterior",
    "calibrate": "sfumato.evaluation.in_memory",
    "evaluate": "sfumato.evaluation.in_memory",
    "load": "sfumato.models.model_file",
    "restore": "sfumato.restoration.in_memory",
    "sample": "sfumato.diffusion.sampling",
    "save": "sfumato.models.own_model",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}; public names: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
