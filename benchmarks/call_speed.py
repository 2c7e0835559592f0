"""How much processor time one call of a network takes, as trained and as rewritten for inference.

    python benchmarks/call_speed.py [--engines] [--model MODEL] --check

For 8 to 64 filters: the denoiser of today's presets, which sees the features of a reader twice as wide, and the network
of version 0.1. `fused` is the rewritten network, `split` the same with its first layer applied to the condition once
per image; with `--engines`, torch.compile, and ONNX Runtime and OpenVINO (if installed) on the exported network come
beside. Ratios are of processor time, one thread, the median over rounds in which all take turns. With a model, its
samples are drawn both ways.
"""

import argparse
import importlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from bars import Bars
from sfumato.diffusion.inference import for_inference
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.sampling import sample
from sfumato.models.build import build_model
from sfumato.models.model_file import load
from sfumato.models.presets import PRESETS
from sfumato.models.recipe import ModelRecipe
from sfumato.nn.fused import FusedUNet, fused
from sfumato.nn.unet import UNet
from sfumato.system.device import keep_freed_memory

BASES = (8, 16, 32, 64)
SIDE = 512
LEAST = 1.3
"""Wanted gain, for 8 to 32 filters."""
SETTLING = 10
"""Batches from which running averages are taken, so that features have the size that they have after training."""
SAMPLES, STEPS = 8, 8

Call = Callable[[], object]


def denoiser(kind: str, base: int) -> UNet:
    if kind == "preset":
        recipe = ModelRecipe.model_validate({**PRESETS["default"]["model"], "base": 2 * base, "denoiser_base": base})
    else:
        recipe = ModelRecipe(base=base)
    network = build_model(recipe, 1, 1, seed=0).network
    assert isinstance(network, UNet)
    generator = torch.Generator().manual_seed(1)
    for weights in network.head.parameters():
        nn.init.normal_(weights, generator=generator)
    network.train()
    with torch.no_grad():
        for _ in range(SETTLING):
            network(torch.randn(2, network.in_channels, 32, 32, generator=generator))
    return network.eval()


def seconds(call: Call) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def gains(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """How many times less processor time each takes than the first, the median over rounds."""
    for call in calls.values():
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        order = list(calls)[:: 1 if turn % 2 else -1]
        times = {name: seconds(calls[name]) for name in order}
        first = times[next(iter(calls))]
        for name, taken in times.items():
            found[name].append(first / taken)
    return {name: statistics.median(values) for name, values in found.items()}


def engines(network: UNet, images: Tensor, folder: Path) -> dict[str, Call]:
    """Other ways to run the same network."""
    import onnxruntime

    from sfumato.export.graph import save_graph, to_graph

    compiled = torch.compile(network)
    save_graph(to_graph(network, {"images": images}, ["output"], batched=True), folder / "network.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "network.onnx", options, providers=["CPUExecutionProvider"])
    given = {"images": images.numpy()}
    found: dict[str, Call] = {
        "torch.compile": lambda: compiled(images),
        "ONNX Runtime": lambda: session.run(None, given),
    }
    if importlib.util.find_spec("openvino") is not None:
        core = importlib.import_module("openvino").Core()
        settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        run = core.compile_model(folder / "network.onnx", "CPU", settings)
        found["OpenVINO"] = lambda: run(given)
    return found


def compare_calls(bars: Bars, kind: str, base: int, rounds: int, *, with_engines: bool) -> None:
    network = denoiser(kind, base)
    num_read = network.in_channels - 2
    rewritten, split = fused(network), FusedUNet(network, num_read=num_read)
    seen, called = torch.randn(1, network.in_channels, SIDE, SIDE).split([num_read, 2], dim=1)
    images, read = torch.cat([seen, called], dim=1), split.read(seen)
    calls: dict[str, Call] = {
        "as trained": lambda: network(torch.cat([seen, called], dim=1)),
        "fused": lambda: rewritten(torch.cat([seen, called], dim=1)),
        "split": lambda: split(called, read),
    }
    name = f"{kind}, base {base}"
    with tempfile.TemporaryDirectory() as folder:
        if with_engines:
            calls |= engines(network, images, Path(folder))
        found = gains(calls, rounds)
    print(f"{name}: as trained {min(seconds(calls['as trained']) for _ in range(3)) * 1e3:.1f} ms", flush=True)
    for way, gain in list(found.items())[1:]:
        is_used = way == "split" and kind == "preset" and base <= 32
        bars.report(f"{name}: {way}, times faster", gain, **({"low": LEAST} if is_used else {}))
    expected = network(images)
    difference = float((split(called, read) - expected).abs().max() / expected.abs().max())
    bars.report(f"{name}: largest difference, of the largest value", difference, high=1e-5)


def compare_samples(bars: Bars, model: CVDM, channels: int) -> None:
    condition = torch.randn(1, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def drawn(model: CVDM) -> Tensor:
        return sample(model, condition, num_samples=SAMPLES, num_steps=STEPS, seed=0)

    expected, found = drawn(model), drawn(for_inference(model))
    width = float(expected.std(0).mean())
    bars.report(
        "samples of the model: largest difference, of their spread", float((found - expected).abs().max()) / width
    )
    bars.report("samples of the model: ratio of spreads", float(found.std(0).mean()) / width, low=0.99, high=1.01)
    bars.report("samples of the model: the same twice", float(torch.equal(found, drawn(for_inference(model)))), low=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--engines", action="store_true", help="also run torch.compile, ONNX Runtime and OpenVINO")
    parser.add_argument("--model", help="a trained model, whose samples are compared")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of measurements")
    parser.add_argument("--bases", type=int, nargs="+", default=BASES, help="filters at full resolution")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    bars = Bars()
    with torch.no_grad():
        for kind in ("preset", "version 0.1"):
            for base in arguments.bases:
                compare_calls(bars, kind, base, arguments.rounds, with_engines=arguments.engines)
        if arguments.model:
            model = load(arguments.model)
            compare_samples(bars, model.model, model.info.condition_channels)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
