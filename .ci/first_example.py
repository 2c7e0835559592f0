"""Run the first Python block of the README, as a newcomer would, with whatever sfumato is installed."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"

if __name__ == "__main__":
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None, "the README has no Python block"
    exec(compile(block.group(1), str(README), "exec"), {"__name__": "__main__"})
