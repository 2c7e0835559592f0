"""Combine three ONNX graphs into one: run the first, the second once per row of a table, and the third."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.export.graph import onnx_library, rename

__all__ = ["Part", "join"]


class Part(NamedTuple):
    """A graph and the prefix of its inner names."""

    name: str
    model: Any


def join(
    start: Part, step: Part, finish: Part, *, scanned: Mapping[str, NDArray[np.generic]], carried: Sequence[str]
) -> Any:
    """Run ``step`` once per row of the ``scanned`` columns, between ``start`` and ``finish``.

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
    for part in (start, step, finish):
        if part.model.functions:
            raise ValueError(f"the part {part.name} has functions; inline them first")
    known = {value.name: value.name for value in [*start.model.graph.input, *start.model.graph.output]}
    renamed = [
        _prefixed(start, known),
        _prefixed(step, known | {value.name: f"step_{value.name}" for value in step.model.graph.output}),
        _prefixed(finish, known | {name: name for name in [*carried, *(v.name for v in finish.model.graph.output)]}),
    ]
    first, body, last = renamed
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
    opsets = {item.domain: item.version for part in (start, step, finish) for item in part.model.opset_import}
    return make.make_model(
        graph,
        opset_imports=[make.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=start.model.ir_version,
        producer_name="sfumato",
    )


def _prefixed(part: Part, kept: Mapping[str, str]) -> Any:
    """A copy of a graph whose names differ from those of the others, except the ``kept`` ones."""
    onnx = onnx_library()
    graph = onnx.GraphProto()
    graph.CopyFrom(part.model.graph)
    del graph.value_info[:]
    names = {name for node in graph.node for name in [*node.input, *node.output]}
    names |= {value.name for value in [*graph.input, *graph.output, *graph.initializer]}
    rename(graph, {name: kept.get(name, f"{part.name}.{name}") for name in names if name})
    for number, node in enumerate(graph.node):
        node.name = f"{part.name}.{number}"
    return graph
