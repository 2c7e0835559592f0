"""Convert a torch module to an ONNX graph that accepts images of any size, and check that both give the same result."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.system.atomic_files import replace_bytes
from sfumato.system.errors import RunError
from sfumato.system.marks import PRODUCER
from sfumato.system.version import __version__

__all__ = ["TOLERANCE", "check_graph", "example_size", "onnx_library", "rename", "save_graph", "to_graph"]

TOLERANCE = 1e-4
"""Largest difference between a graph and its module, relative to the largest value."""

_OWN = "sfumato."
_AXES = ("depth", "height", "width")


def onnx_library() -> Any:
    """Import onnx.

    Raises:
        ImportError: If a library needed for exporting is not installed.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript
    except ImportError as error:
        raise ImportError(f"ONNX needs the libraries of an extra ({error}): pip install 'sfumato[onnx]'") from error
    del onnxruntime, onnxscript
    return onnx


def example_size(stride: int, ndim: int) -> tuple[int, ...]:
    """Sides that are not multiples of a network's stride, so that a trace does not rely on them."""
    return tuple(2 * stride + 3 + 2 * axis for axis in range(ndim))


def to_graph(module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str], *, batched: bool = False) -> Any:
    """Trace a module into an ONNX model.

    Args:
        module: A module that takes the inputs in their order.
        inputs: Example inputs by name. The spatial axes of images (B, channels, *spatial) may then have any size.
        outputs: Names of its outputs.
        batched: Whether their batch may have any size too.

    Returns:
        An ``onnx.ModelProto``.

    Raises:
        RunError: If a part of the module has no counterpart in ONNX.
    """
    onnx_library()
    shapes: list[dict[int, str]] = []
    for tensor in inputs.values():
        spatial = enumerate(_AXES[len(_AXES) - (tensor.ndim - 2) :] if tensor.ndim > 2 else (), start=2)
        axes = {axis: word for axis, word in spatial if tensor.shape[axis] > 1}
        shapes.append({0: "batch"} | axes if batched else axes)
    try:
        with _quietly(), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                input_names=[f"{_OWN}{name}" for name in inputs],
                output_names=[f"{_OWN}{name}" for name in outputs],
                dynamic_shapes=tuple(shapes),
                dynamo=True,
                verbose=False,
                custom_translation_table={torch.ops.aten.expm1.default: _expm1()},
            )
    except Exception as error:  # the exporter's errors have no common base class
        raise RunError(
            f"{type(module).__name__} cannot be written as ONNX: {type(error).__name__}, "
            f"{str(error).strip().splitlines()[0]:.300}; export to the Hub instead (--hub), which keeps the model file"
        ) from error
    assert program is not None
    model = program.model_proto
    # The exporter names inner values after their operation, such as `mean`, without checking that the name is free.
    wanted = [*inputs, *outputs]
    rename(model.graph, {name: f"inner.{name}" for name in wanted})
    rename(model.graph, {f"{_OWN}{name}": name for name in wanted})
    return model


def rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename values of an ``onnx.GraphProto``."""
    for value in [*graph.input, *graph.output, *graph.initializer, *graph.value_info]:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise ValueError(f"{node.op_type} has a graph of its own, whose names would be missed")


def save_graph(model: Any, path: Path) -> None:
    """Check an ``onnx.ModelProto`` against the standard and write it, with our name as its producer."""
    onnx = onnx_library()
    model.producer_name, model.producer_version = PRODUCER, __version__
    onnx.checker.check_model(model)
    replace_bytes(path, model.SerializeToString(), untouched="What was there is intact")


def check_graph(path: Path, module: nn.Module, examples: Sequence[Mapping[str, Tensor]]) -> float:
    """Run a file with onnxruntime and compare it with its module.

    Args:
        path: Path of the ONNX file.
        module: The module it was made from.
        examples: Inputs by name, one set per comparison.

    Returns:
        The largest difference, relative to the largest value of its output.

    Raises:
        RunError: If it is above ``TOLERANCE``.
    """
    onnx_library()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for example in examples:
        with torch.no_grad():
            expected = module(*example.values())
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = session.run(None, {name: tensor.numpy() for name, tensor in example.items()})
        for want, got in zip(expected, found, strict=True):
            scale = max(float(want.abs().max()), 1e-6)
            worst = max(worst, float(np.abs(want.numpy() - got).max()) / scale)
    if not worst <= TOLERANCE:
        raise RunError(
            f"{path.name} differs from its network by {worst:.2g} of the largest value, and {TOLERANCE:g} is allowed; "
            "use other versions of torch, onnx and onnxruntime, and report this"
        )
    return worst


def _expm1() -> Any:
    """Express exp(x) - 1 in ONNX, which has no operator for it, in double precision.

    The exporter's version, in single precision, is wrong by 6% at x = 1e-6, where the sampler's last step is.
    """
    from onnxscript import opset18 as op

    def expm1(x: Any) -> Any:
        wide = op.Cast(x, to=11)
        return op.CastLike(op.Sub(op.Exp(wide), op.CastLike(op.Constant(value_float=1.0), wide)), x)

    return expm1


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the messages that the exporter prints for its developers."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(level)
