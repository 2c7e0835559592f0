"""Which functions the pixels of a TIFF pass on their way from the file to the posterior.

    python benchmarks/image_path.py --check
    python benchmarks/image_path.py --source OTHER_CHECKOUT/src

Restores one small image and lists the functions of the package that take or return its pixels, from the opening of the
file to the first draw that the posterior takes in; those of the method itself (schedule, networks, sampling, noise) are
left out. Another version of the package is traced by the folder of its source.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bars import Bars

SIDE = 64
METHOD = {"diffusion", "nn", "physics", "baselines", "figures", "progress"}
METHOD |= {"model", "sampling", "noise", "posterior", "schedule", "warp", "losses"}  # before they were in one folder


def make(folder: Path) -> None:
    import numpy as np
    import tifffile

    from random_models import write_random_model
    from sfumato.data.normalize import Normalization

    plain = Normalization((0.0,), (1.0,))
    write_random_model(folder / "model.safetensors", base=2, num_scales=1, std=0.1, data=plain)
    tifffile.imwrite(folder / "in.tif", np.random.default_rng(0).random((SIDE, SIDE), np.float32))


def trace(folder: Path) -> list[str]:
    import numpy as np
    from torch import Tensor

    import sfumato
    from sfumato.restoration.planning import Settings
    from sfumato.restoration.run import restore_file

    package = str(Path(sfumato.__file__).parent) + os.sep
    found: dict[str, None] = {}
    taken: list[bool] = []

    def holds(value: Any) -> bool:
        if isinstance(value, (tuple, list)):
            return any(map(holds, value))
        return isinstance(value, (np.ndarray, Tensor)) and value.ndim > 1 and min(value.shape[-2:]) >= SIDE

    def name_of(code: CodeType) -> str:
        place = code.co_filename.removeprefix(package)
        is_ours = place != code.co_filename and Path(place).parts[0].removesuffix(".py") not in METHOD
        return f"{place}: {code.co_qualname}" if is_ours and not code.co_name.endswith(("comp>", "genexpr>")) else ""

    def watch(frame: FrameType, event: str, value: Any) -> None:
        if event not in ("call", "return") or taken:
            return
        if frame.f_code.co_qualname == "Posterior.add":
            taken.append(True)
            return
        name = name_of(frame.f_code)
        if name and (holds(value) if event == "return" else any(map(holds, frame.f_locals.values()))):
            found[name] = None

    settings = Settings(num_samples=2, num_steps=1)
    sys.setprofile(watch)
    try:
        restore_file(folder / "model.safetensors", folder / "in.tif", folder / "out.zarr", settings)
    finally:
        sys.setprofile(None)
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--source", type=Path, help="folder that the package is imported from")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(trace(arguments.child)))
        return
    bars = Bars()
    with tempfile.TemporaryDirectory() as place:
        make(Path(place))
        environment = dict(os.environ)
        if arguments.source is not None:
            environment["PYTHONPATH"] = str(arguments.source.resolve())
        command = [sys.executable, __file__, "--child", place]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    print("\n".join(found))
    bars.report("functions that take or return the pixels", len(found), high=12)
    bars.report("files that they are in", len({name.partition(":")[0] for name in found}), high=9)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
