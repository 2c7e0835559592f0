"""Run `sfumato demo` as installed beside this Python, and hold what it says and leaves against its bars.

python smoke_demo.py FOLDER
"""

import re
import resource
import subprocess
import sys
from pathlib import Path

SECONDS, GAIN, MARGIN = 60, 2.0, 0.05
"""Seconds of a core: other checks run beside this one."""


def main() -> None:
    out = Path(sys.argv[1])
    command = [str(Path(sys.executable).with_name("sfumato")), "demo", "--out", str(out)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(said)
    level = re.search(r"\((\d+)% promised\)", said)
    found = re.search(r"^mean +\(([+-][\d.]+)\) +(\d+)%$", said, re.MULTILINE)
    assert level, "it does not say what is promised"
    assert found, "it does not say how good it was"
    gain, off = float(found[1]), (int(found[2]) - int(level[1])) / 100
    print(f"demo: {seconds:.0f} s (at most {SECONDS}), {gain:+.1f} dB (at least {GAIN}), coverage {off:+.2f} off")
    assert seconds <= SECONDS
    assert gain >= GAIN
    assert abs(off) <= MARGIN
    assert (out / "demo.png").stat().st_size > 10_000
    names = sorted(path.name for path in (out / "restored").glob("microtubules*.tif"))
    assert names == [f"microtubules{part}.tif" for part in ("", "_high", "_low", "_std")], names


if __name__ == "__main__":
    main()
