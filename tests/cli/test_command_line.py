"""The command line answers at once, without torch."""

import subprocess
import sys

import pytest

import sfumato

WITHOUT_TORCH = """
import sys
from sfumato.cli import main
sys.argv = ["sfumato", {flag!r}]
try:
    main()
finally:
    assert "torch" not in sys.modules, "torch was imported"
"""


@pytest.mark.parametrize(
    ("flag", "words"), [("--help", "Restore scientific images"), ("--version", f"sfumato {sfumato.__version__}")]
)
def test_answers_without_importing_torch(flag: str, words: str) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH.format(flag=flag)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert words in result.stdout


def test_runs_as_a_module() -> None:
    result = subprocess.run([sys.executable, "-m", "sfumato", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"sfumato {sfumato.__version__}"


def test_importing_loads_nothing_heavy() -> None:
    """Every public name together loads torch, and neither the image readers nor the libraries of the extras."""
    code = (
        "import sys, sfumato; assert 'torch' not in sys.modules; [getattr(sfumato, n) for n in sfumato.__all__];"
        "print(*{'scipy', 'matplotlib', 'torchmetrics', 'zarr', 'dask', 'tifffile', 'PIL'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
