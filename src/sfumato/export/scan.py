"""Combine three ONNX graphs into one: run the first, the second once per row of a table, and the third."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.export.graph import onnx_library, rename

__all__ = ["join"]


def join(
    start: Any, step: Any, finish: Any, *, scanned: Mapping[str, NDArray[np.generic]], carried: Sequence[str]
) -> Any:
    """Run ``step`` once per row of the ``scanned`` columns, between ``start`` and ``finish``, all ``onnx.ModelProto``.

    Args:
        start: Outputs `<name>_before` for all carried values, and, by the same name, the inputs of steps and
            ``finish``.
        step: Takes `<name>_before`, one row of the table and any other output of ``start``; outputs the carried values.
        finish: Takes carried values or outputs of ``start``.
        scanned: The table: columns of equal length.
        carried: Values passed from step to step, in the order of ``step``'s inputs and outputs.

    Returns:
        An ``onnx.ModelProto`` with the inputs of ``start`` and the outputs of ``finish``; it contains the weights once.
    """
    onnx = onnx_library()
    make = onnx.helper
    parts = {"start": start, "step": step, "finish": finish}
    for name, part in parts.items():
        if part.functions:
            raise ValueError(f"the part {name} has functions; inline them first")
    known = {value.name: value.name for value in [*start.graph.input, *start.graph.output]}
    results = [value.name for value in finish.graph.output]
    kept = {
        "start": known,
        "step": known | {value.name: f"step_{value.name}" for value in step.graph.output},
        "finish": known | {name: name for name in [*carried, *results]},
    }
    first, body, last = (_prefixed(part.graph, name, kept[name]) for name, part in parts.items())
    # Carried values have their own names inside the step; outputs of start are visible from outside.
    inside = {f"{name}_before": f"step_{name}_before" for name in carried}
    rename(body, inside)
    by_name = {value.name: value for value in body.input}
    rows = [by_name[f"step.{name}"] for name in scanned]
    subgraph = make.make_graph(
        list(body.node), "step", [by_name[inside[f"{name}_before"]] for name in carried] + rows, list(body.output)
    )
    tables = {name: f"grid.{name}" for name in scanned}
    scan = make.make_node(
        "Scan",
        [f"{name}_before" for name in carried] + list(tables.values()),
        list(carried),
        name="sampling",
        body=subgraph,
        num_scan_inputs=len(scanned),
    )
    columns = [onnx.numpy_helper.from_array(values, tables[name]) for name, values in scanned.items()]
    graph = make.make_graph(
        [*first.node, scan, *last.node],
        "sampler",
        list(first.input),
        list(last.output),
        initializer=[*first.initializer, *body.initializer, *last.initializer, *columns],
    )
    opsets = {item.domain: item.version for part in parts.values() for item in part.opset_import}
    return make.make_model(
        graph,
        opset_imports=[make.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=start.ir_version,
        producer_name="sfumato",
    )


def _prefixed(graph: Any, prefix: str, kept: Mapping[str, str]) -> Any:
    """A copy of a graph whose names start with the prefix, except the ``kept`` ones."""
    copied = type(graph)()
    copied.CopyFrom(graph)
    del copied.value_info[:]
    names = {name for node in copied.node for name in [*node.input, *node.output]}
    names |= {value.name for value in [*copied.input, *copied.output, *copied.initializer]}
    rename(copied, {name: kept.get(name, f"{prefix}.{name}") for name in names if name})
    for number, node in enumerate(copied.node):
        node.name = f"{prefix}.{number}"
    return copied
