"""Restore scientific images with conditional variational diffusion models (arXiv 2312.02246).

The public names below are resolved on first use (PEP 562), so that the command line answers
``--help`` without loading torch. Everything else is reached by its module, for example
``sfumato.diffusion.reverse_step``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sfumato.version import __version__

if TYPE_CHECKING:
    from sfumato.model import CVDM
    from sfumato.model_file import load
    from sfumato.posterior import Posterior
    from sfumato.restoration.array import restore
    from sfumato.sampling import sample
    from sfumato.schedule import LearnedSchedule

__all__ = ["CVDM", "LearnedSchedule", "Posterior", "__version__", "load", "restore", "sample"]

_HOME = {
    "CVDM": "sfumato.model",
    "LearnedSchedule": "sfumato.schedule",
    "Posterior": "sfumato.posterior",
    "load": "sfumato.model_file",
    "restore": "sfumato.restoration.array",
    "sample": "sfumato.sampling",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}; public names: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
