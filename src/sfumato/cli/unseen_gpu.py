"""Find a GPU that is there and that torch cannot see, as after a usual installation on Windows."""

import shutil
import subprocess
import sys

import torch

__all__ = ["unseen_gpu"]

_SECONDS = 10


def unseen_gpu() -> str | None:
    """Why torch cannot use the GPU of this machine, and the command that helps; None if it can, or if there is none."""
    if torch.cuda.is_available() or not (names := _nvidia_gpus()):
        return None
    version = torch.version.cuda
    why = "was built without CUDA" if version is None else f"needs a newer driver than this one, for CUDA {version}"
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable
    return (
        f"{', '.join(names)}: not used, because torch {torch.__version__} {why}. This installs the build that "
        "fits its driver:\n"
        f"           {python} -m pip install uv\n"
        f"           {python} -m uv pip install --python {python} --torch-backend=auto --reinstall-package torch torch"
    )


def _nvidia_gpus() -> list[str]:
    """Names of the GPUs that NVIDIA's driver knows; the driver brings the program that lists them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
