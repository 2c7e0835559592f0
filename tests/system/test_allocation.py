"""Keeping freed memory."""

import subprocess
import sys

import pytest

from sfumato.system.allocation import keep_freed_memory

TOUCH = """
import resource
import torch
from sfumato.nn import UNet
{setting}
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.set_num_threads(1)
network, images = UNet(1, 1, base=8, num_scales=2), torch.zeros(5, 1, 512, 512)  # feature maps of 40 MB
with torch.no_grad():
    for _ in range(3):
        before = faults()
        network(images)
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of the C library of Linux")
def test_freed_memory_is_used_again_without_the_system() -> None:
    def faults(setting: str) -> int:
        command = [sys.executable, "-c", TOUCH.format(setting=setting)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    kept = "from sfumato.system.allocation import keep_freed_memory; assert keep_freed_memory()"
    # What convolutions fetch from the system by themselves differs between processors, 1% to 14% of all.
    assert faults(kept) < 0.3 * faults("")


def test_it_may_be_asked_twice() -> None:
    assert keep_freed_memory() == keep_freed_memory()
