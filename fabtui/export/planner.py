"""Bandwidths for programs that search how to split the training of a model over nodes: FASOP and AMP.

Both keep ``cluster_info[node] = [between nodes, within the node]`` as tensors in their source, by node number:
``AvatarHwang/FASOP`` (``FASOP/FASOP.py``, ``estimate.py``) in bits per second, ``DachengLi1/AMP`` (``het_cluster.py``,
``cost_het_cluster.py``) in elements of 32 bits per second. Neither reads a file.
"""

from __future__ import annotations

import math

from fabtui.diagnosis.node_bandwidth import NodeBandwidth, node_bandwidth
from fabtui.export.formats import JsonObject, cleaned_object, head, json_text, when
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text

#: Unit of each program, and how many of it are 1 GB/s.
_UNITS = {"fasop": ("bit/s", 8e9), "amp": ("fp32 elements/s", 1e9 / 4)}


def as_json(model: Model) -> JsonObject:
    """Return the bandwidths of a session as a JSON object; unknown ones are null, and then left out of cluster_info.

    Nodes are numbered in the rank order of ``fabtui nodes --order``, a ring. Rows of ``inter_matrix`` send.
    """
    bandwidth = node_bandwidth(model)
    order = bandwidth.order().nodes
    at = [bandwidth.nodes.index(node) for node in order]
    gpus = [bandwidth.gpus[one] for one in at]
    value = {
        **head("planner"),
        "software": f"fabtui {model.software}",
        "started": when(model.started),
        "lab": model.lab,
        "source": source_text(bandwidth),
        "order": order,
        "left_out": [node for node in bandwidth.nodes if node not in order],
        "failed": [[bandwidth.nodes[a], bandwidth.nodes[b]] for a in at for b in at if bandwidth.failed[a, b]],
        "gpus_per_node": gpus[0] if len(set(gpus)) == 1 else None,
        "gpus": gpus,
        "gpu": [bandwidth.kinds[one] for one in at],
        "nics": [bandwidth.nics[one] or None for one in at],
        **{name: _in_unit(bandwidth, at, *unit) for name, unit in _UNITS.items()},
    }
    return cleaned_object(value)


def planner_text(model: Model) -> str:
    return json_text(as_json(model))


def source_text(found: NodeBandwidth) -> str:
    """Return how the bandwidths were obtained: test, message size, method, and what was not measured."""
    if found.inter_of is None:
        between = "unknown"
    elif found.at_once:
        between = f"all_reduce of two nodes, bus bandwidth with all NICs at once, {_method(found.inter_of)}"
    else:
        what = "slowest pair of a rail that passes"
        factor = "the number of NICs, which were not measured at once" if any(found.nics) else "1: the NICs are unknown"
        between = f"{found.inter_of.layer}, {what} x {factor}, {_method(found.inter_of)}"
    within = "unknown"
    if found.intra_of is not None:
        within = f"{found.intra_of.layer}, median of the pairs of a node, {_method(found.intra_of)}"
    return f"between nodes: {between}; within nodes: {within}"


def _method(one: Measurement) -> str:
    size = "unknown message size" if one.bytes is None else size_text(one.bytes)
    return f"{size} ({one.how or 'unknown method'})"


def _in_unit(found: NodeBandwidth, at: list[int], unit: str, per_gb: float) -> JsonObject:
    def scaled(value: float) -> int | None:
        return round(value * per_gb) or None if math.isfinite(value) else None

    matrix = [[scaled(found.inter[a, b]) if a != b else None for b in at] for a in at]
    intra = [scaled(found.intra[one]) for one in at]
    # The programs know no directions: the slower one counts.
    of_node = [
        [value for pair in zip(row, column, strict=True) for value in pair if value is not None]
        for row, column in zip(matrix, zip(*matrix, strict=True), strict=True)
    ]
    inter = [min(values, default=None) for values in of_node]
    known = [number for number in range(len(at)) if inter[number] is not None and intra[number] is not None]
    return {
        "unit": unit,
        "cluster_info": {str(number): [inter[number], intra[number]] for number in known},
        "inter": inter,
        "intra": intra,
        "inter_matrix": matrix,
    }
