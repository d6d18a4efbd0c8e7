"""Collectives, matrices and pairs of benchmarks and pings, as the measurements of a draft."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fabtui.importers.to_model.session_draft import SessionDraft, node_name
from fabtui.model.layers import COLLECTIVES, Layer, busbw_factor
from fabtui.model.measurement import Verdict

_VERDICTS = {"ok": Verdict.OK, "failed": Verdict.FAILED}


def nccl_tests(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    for table in values.get("tables", []):
        for device in table["devices"]:
            draft.endpoint(node_name(device["host"]), device["device"], name=device["name"], bus=device["bus"])
        layer = COLLECTIVES.get(table["operation"] or "")
        if layer is None:
            continue
        # If all ranks are listed, the hosts are complete.
        listed = bool(table["ranks"]) and len({device["rank"] for device in table["devices"]}) == table["ranks"]
        src, dst = _group([node_name(host) for host in table["hosts"]], listed)
        for row in table["rows"]:
            _collective(draft, layer, src, dst, row, table)


def _group(hosts: Sequence[str], whole: bool) -> tuple[str, str]:
    """Return what a collective of these hosts is measured between: a node with itself, two nodes, or all."""
    return (hosts[0], hosts[-1]) if whole and len(hosts) in (1, 2) else ("all", "all")


def _collective(
    draft: SessionDraft, layer: Layer, src: str, dst: str, row: dict[str, Any], table: dict[str, Any]
) -> None:
    sides = [(place, side) for place in ("out_of_place", "in_place") if (side := row[place]) is not None]
    # In place is what frameworks do, and what nccl-tests averages with the other; the better is what the path can do.
    place, best = max(sides, key=lambda found: found[1]["busbw"])
    wrong = sum(side.get("wrong") or 0 for _, side in sides)
    extra = {"algbw": best["algbw"], "seconds": best["time"] / 1e6, "wrong": wrong, "asked_bytes": row["bytes"]}
    if table["ranks"]:
        extra["ranks"] = table["ranks"]
    measured = {"value": best["busbw"], "unit": "GB/s", "bytes": row["bytes"], "extra": extra}
    if wrong:
        measured.update(verdict=Verdict.WRONG, error=f"{wrong} elements of the result are wrong")
    draft.measured("all_reduce", layer, src, dst, **measured, how=f"nccl-tests, {place.replace('_', ' ')}")


def _layer_of(operation: str | None) -> Layer | None:
    """Return the layer of a collective by any spelling of its name (``AllReduce``, ``all_to_all``), or None."""
    letters = re.sub("[^a-z]", "", (operation or "").lower())
    return next((one for kind, one in COLLECTIVES.items() if kind.replace("_", "") == letters), None)


def collective_tables(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    """Add the collectives of tables by message size (DeepSpeed, MSCCL++) that name the collective.

    A bus bandwidth that is not printed follows from the other by the number of ranks, as in nccl-tests.
    """
    for table in values.get("tables", []):
        layer, ranks = _layer_of(table["operation"]), table["ranks"]
        if layer is None:
            continue
        for row in table["rows"]:
            algbw = row.get("algbw", row.get("avg_algbw"))
            busbw = row.get("busbw")
            how = str(table.get("program") or "DeepSpeed")
            if busbw is None and algbw is not None and ranks:
                busbw, how = algbw * busbw_factor(str(layer.spec.collective), ranks), f"{how}, calculated from algbw"
            if busbw is None or row.get("bytes") is None:
                continue
            time, wrong = row.get("time", row.get("avg_time")), row.get("wrong") or 0
            times = {"seconds": time, "fastest": row.get("min_time")}
            extra = {name: None if value is None else value / 1e6 for name, value in times.items()}
            extra |= {"algbw": algbw, "ranks": ranks, "wrong": wrong}
            fields: dict[str, Any] = {"value": round(busbw, 9), "unit": "GB/s", "bytes": row["bytes"], "how": how}
            if wrong:
                fields.update(verdict=Verdict.WRONG, error=f"{wrong} elements of the result are wrong")
            known = {key: one for key, one in extra.items() if one is not None}
            draft.measured("all_reduce", layer, "all", "all", **fields, extra=known)


#: Units of bandwidth per GB/s, without the writing of the second.
_PER_GB = {"Gb": 8.0, "GB": 1.0}


def busbw_tables(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    """Add the bus bandwidths by numbers of ranks of a text that names the collective; what is compared is an arm."""
    layer = _layer_of(values.get("operation"))
    for table in values.get("tables", []):
        scale = _PER_GB.get((table["unit"] or "")[:2])
        arms = list(dict.fromkeys(row["arm"] or "" for row in table["rows"]))
        if layer is None or scale is None or table["by"] == "nodes":
            continue
        for row in table["rows"]:
            if row["busbw"] is None:
                continue
            arm = _arm(draft, row["arm"] or "", arms.index(row["arm"] or ""), len(arms))
            ranks = {"ranks": row["number"]}
            algbw = {} if row["algbw"] is None else {"algbw": round(row["algbw"] / scale, 9)}
            fields = {"value": round(row["busbw"] / scale, 9), "unit": "GB/s", "extra": {**ranks, **algbw}, "arm": arm}
            group = f"first{row['number']}"
            draft.measured("all_reduce", layer, group, group, **fields, how="table of bus bandwidths")


def all_reduce_bench(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    layer = COLLECTIVES.get(str(values.get("operation")), Layer.BUSBW)
    ranks = {"ranks": values["ranks"]} if values.get("ranks") else {}

    def add(busbw: float, size: Any, how: str, extra: dict[str, Any] | None) -> None:
        fields = {"value": busbw, "unit": "GB/s", "bytes": size, "extra": extra, "how": how}
        draft.measured("all_reduce", layer, "all", "all", **fields)

    for row in values.get("rows", []):
        if row["busbw"] is not None and row.get("times") is None:
            algbw = {} if row["algbw"] is None else {"algbw": row["algbw"]}
            add(row["busbw"], row["bytes"], "all_reduce_bench", {**ranks, **algbw})
    slowest = min((rank["busbw"] for rank in values.get("by_rank", []) if rank["busbw"] is not None), default=None)
    if slowest is not None:
        # Every rank prints its own figure; the collective is as fast as the slowest.
        add(slowest, values.get("bytes"), "all_reduce_bench, the slowest rank", ranks or None)


def _matrix(
    draft: SessionDraft, matrix: dict[str, Any], ends: list[str], layer: Layer, flip: bool, **fields: Any
) -> None:
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


def nvbandwidth(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
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


def _arm(draft: SessionDraft, title: str, order: int, count: int) -> str | None:
    """Return the arm that a matrix is measured in: None for the first, which the grid shows."""
    if count > 1 and title not in draft.arms:
        draft.arms.append(title)
    return title if order else None


def _gpus(draft: SessionDraft, devices: list[dict[str, Any]], count: int, name: str) -> list[str]:
    """Return the endpoints of a matrix: the GPUs that the output lists, or as many of a node named after the file."""
    own = draft.unique(name) if any(device.get("host") is None for device in devices) or len(devices) < count else ""
    ends = []
    for device in devices[:count]:
        node = node_name(device["host"]) if device.get("host") else own
        ends.append(draft.endpoint(node, device["device"], name=device["name"], bus=device["bus"]))
    return ends + [draft.endpoint(own, index) for index in range(len(ends), count)]


def cuda_p2p(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
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


def osu(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    pairs = [
        test
        for test in values.get("tests", [])
        if test["measures"] in ("bandwidth", "latency") and ("bandwidth" in test["units"] or "latency" in test["units"])
    ]
    if not pairs:
        return
    node = draft.unique(name)
    src, dst = (draft.endpoint(node, rank, kind="cpu", name=f"rank {rank}") for rank in (0, 1))
    for test in pairs:
        how = f"OSU {test['test'] or test['measures']}"
        rows = [row for row in test["rows"] if row.get("bytes") is not None]
        for row in rows:
            if row.get("bandwidth") is not None and test["units"].get("bandwidth") == "MB/s":
                _bandwidth(draft, src, dst, row, value=round(row["bandwidth"] / 1000, 9), how=how)
        _latency(draft, src, dst, rows, "latency", how)


def _bandwidth(draft: SessionDraft, src: str, dst: str, row: dict[str, Any], **fields: Any) -> None:
    size = row.get("bytes")
    draft.measured("p2p", Layer.P2P, src, dst, unit="GB/s", bytes=size, extra={"asked_bytes": size}, **fields)


def _latency(draft: SessionDraft, src: str, dst: str, rows: list[dict[str, Any]], name: str, how: str) -> None:
    """Keep the latency of a pair: that of its smallest message."""
    times = [row for row in rows if row.get(name) is not None]
    if times:
        small = min(times, key=lambda row: row.get("bytes") or 0)
        fields = {"value": small[name], "unit": "us", "bytes": small.get("bytes"), "how": how}
        draft.measured("p2p", Layer.LATENCY, src, dst, **fields)


def perftest(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    """Add the pair of a perftest tool."""
    rows = values.get("rows", [])
    if not rows:
        # The tool failed, which shows nothing about a pair: the catalogue of errors explains what it printed.
        return
    node = draft.unique(name)
    src = draft.endpoint(node, 0, kind="cpu", name="client", nic=values.get("device"))
    dst = draft.endpoint(node, 1, kind="cpu", name="server")
    how = f"perftest {values.get('test') or ''}".strip()
    # A read moves data to the side that requests it.
    src, dst = (dst, src) if "Read" in str(values.get("test")) else (src, dst)
    for row in rows:
        if row.get("bandwidth") is not None:
            _bandwidth(draft, src, dst, row, value=row["bandwidth"], how=how, transport="RDMA")
    _latency(draft, src, dst, rows, "t_avg", how)


def iperf3(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    """Add the pair of hosts of iperf3."""
    totals = values.get("totals", [])
    best = next((row for row in totals if row["side"] == "receiver"), totals[0] if totals else None)
    if best is None:
        return
    addresses = (values.get("local"), values.get("remote"))
    # An address identifies a host; without one the file's name does.
    src = draft.nowhere(node_name(addresses[0]) if addresses[0] else f"{draft.unique(name)}-client")
    dst = draft.nowhere(node_name(addresses[1]) if addresses[1] else f"{draft.unique(name)}-server")
    if values.get("reverse"):
        src, dst, addresses = dst, src, addresses[::-1]
    fields = {"value": best["bandwidth"], "unit": "GB/s", "how": "iperf3", "transport": values.get("protocol")}
    draft.measured("iperf3", Layer.IPERF3, src, dst, **fields, src_addr=addresses[0], dst_addr=addresses[1])


def ping_csv(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    """Add the addresses and the pairs of hosts of a table of pings."""
    rails = _segments(values.get("rows", []))
    for row in values.get("rows", []):
        for side in ("src", "dst"):
            _add_address(draft, node_name(row[side]), row[f"{side}_addr"], rails.get(row[f"{side}_addr"]))
        src, dst = draft.nowhere(node_name(row["src"])), draft.nowhere(node_name(row["dst"]))
        verdict = _VERDICTS.get(row["status"], Verdict.INCONCLUSIVE)
        fields = {"unit": "ms", "verdict": verdict, "how": f"ping, segment {row['segment']}"}
        if verdict is not Verdict.OK:
            fields["error"] = f"status {row['status']}"
        addresses = {"src_addr": row["src_addr"], "dst_addr": row["dst_addr"]}
        draft.measured("ping", Layer.PING, src, dst, **fields, **addresses)


def _segments(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the rail of each address: the segment (``10.1.0``) that a row within one names."""
    numbers: dict[str, int] = {}
    found: dict[str, int] = {}
    for row in rows:
        segment = row["segment"]
        if "->" not in segment:
            rail = numbers.setdefault(segment, len(numbers))
            for side in ("src", "dst"):
                found.setdefault(row[f"{side}_addr"], rail)
    return found


def _add_address(draft: SessionDraft, node: str, address: str, rail: int | None) -> None:
    record = draft.record(node)
    record.inventory = record.inventory or {}
    listed = record.inventory.setdefault("data_addresses", [])
    if rail is not None and all(entry["address"] != address for entry in listed):
        listed.append({"address": address, "rail": rail, "nic": None})


def p2p_runs(draft: SessionDraft, values: dict[str, Any], name: str) -> None:
    places = {entry["rank"]: (node_name(entry["host"]), entry["index"]) for entry in values.get("ranks", [])}
    own: str | None = None
    for entry in values.get("ranks", []):
        draft.endpoint(*places[entry["rank"]])
    for pair in values.get("pairs", []):
        ends = []
        for rank in (pair["src"], pair["dst"]):
            if rank not in places:
                own = own or draft.unique(name)
                places[rank] = (own, rank)
            ends.append(draft.endpoint(*places[rank]))
        verdict = _VERDICTS.get(pair["status"], Verdict.INCONCLUSIVE)
        why = None if verdict is Verdict.OK else pair["error"] or "the job printed neither OK nor an error"
        draft.measured("p2p", Layer.P2P, ends[0], ends[1], verdict=verdict, error=why, how="p2p-test", unit="GB/s")
