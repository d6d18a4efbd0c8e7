"""Matrices of benchmarks, as the measurements of a draft."""

from __future__ import annotations

from typing import Any

from fabtui.importers.to_model.builder import Draft, node_name
from fabtui.model.layers import Layer


def _matrix(draft: Draft, matrix: dict[str, Any], ends: list[str], layer: Layer, flip: bool, **fields: Any) -> None:
    """Keep the cells of a matrix of endpoints; with ``flip`` its columns send."""
    scale = {"ns": 0.001}.get(matrix["unit"], 1.0)
    unit = "us" if matrix["unit"] in ("ns", "us") else "GB/s"
    for row, cells in zip(matrix["rows"], matrix["cells"], strict=True):
        for column, value in zip(matrix["columns"], cells, strict=True):
            if row != column and value is not None and max(int(row), int(column)) < len(ends):
                src, dst = ends[int(row)], ends[int(column)]
                src, dst = (dst, src) if flip else (src, dst)
                draft.measured("p2p", layer, src, dst, value=round(value * scale, 6), unit=unit, **fields)


def _square(matrix: dict[str, Any]) -> bool:
    return matrix["columns"] == [str(at) for at in range(len(matrix["columns"]))] and all(
        row.isdecimal() for row in matrix["rows"]
    )


def nvbandwidth(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the matrices of nvbandwidth: one direction first, each further test as an arm."""
    tests = [
        (test["name"] or matrix["title"], matrix)
        for test in values.get("tests", [])
        for matrix in test["matrices"]
        if "GPU(row)" in matrix["title"] and "GPU(column)" in matrix["title"] and _square(matrix)
    ]
    if not tests:
        return
    ends = _gpus(draft, values.get("devices", []), max(len(matrix["columns"]) for _, matrix in tests), name)
    latencies = [found for found in tests if found[1]["unit"] == "ns"]
    one_way = [found for found in tests if found[1]["unit"] == "GB/s" and " <-> " not in found[1]["title"]]
    both = [found for found in tests if found[1]["unit"] == "GB/s" and "Total" in found[1]["title"]]
    for order, (title, matrix) in enumerate(one_way or both):
        arm = _arm(draft, title, order, len(one_way or both))
        flip = " <- " in matrix["title"]
        how = f"nvbandwidth {title}" + ("" if one_way else ", both ways together")
        _matrix(draft, matrix, ends, Layer.P2P, flip, how=how, arm=arm)
    for title, matrix in latencies[:1]:
        _matrix(draft, matrix, ends, Layer.LATENCY, False, how=f"nvbandwidth {title}")


def _arm(draft: Draft, title: str, order: int, count: int) -> str | None:
    """Return the arm that a matrix is measured in: None for the first, which the grid shows."""
    if count > 1 and title not in draft.arms:
        draft.arms.append(title)
    return title if order else None


def _gpus(draft: Draft, devices: list[dict[str, Any]], count: int, name: str) -> list[str]:
    """Return the endpoints of a matrix: the GPUs that the output lists, or as many of a node named after the file."""
    own = draft.unique(name) if any(device.get("host") is None for device in devices) or len(devices) < count else ""
    ends = [
        draft.endpoint(
            node_name(device["host"]) if device.get("host") else own,
            device["device"],
            name=device["name"],
            bus=device["bus"],
        )
        for device in devices[:count]
    ]
    return ends + [draft.endpoint(own, index) for index in range(len(ends), count)]


def cuda_p2p(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the matrices of the CUDA sample p2pBandwidthLatencyTest, each further setting as an arm."""
    matrices = [m for m in values.get("matrices", []) if _square(m)]
    if not matrices:
        return
    ends = _gpus(draft, values.get("devices", []), max(len(m["columns"]) for m in matrices), name)
    bandwidth = [m for m in matrices if m["what"] == "bandwidth" and m["direction"] == "unidirectional"]
    # What a program gets by default comes first: with P2P, by writes.
    order = {("enabled", "writes"): 0, ("enabled", None): 0, ("enabled", "reads"): 1}
    bandwidth.sort(key=lambda m: order.get((m["p2p"], m["way"]), 2))
    for at, m in enumerate(bandwidth):
        title = f"P2P={m['p2p'].capitalize()}" + (f" {m['way'].capitalize()}" if m["way"] else "")
        arm = _arm(draft, title, at, len(bandwidth))
        _matrix(draft, m, ends, Layer.P2P, m["way"] == "reads", how=f"p2pBandwidthLatencyTest, {title}", arm=arm)
    latency = [m for m in matrices if m["what"] == "latency" and m["by"] != "cpu"]
    latency.sort(key=lambda m: m["p2p"] != "enabled")
    for m in latency[:1]:
        _matrix(draft, m, ends, Layer.LATENCY, False, how=f"p2pBandwidthLatencyTest, P2P={m['p2p'].capitalize()}")
