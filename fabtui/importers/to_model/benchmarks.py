"""Collectives, matrices and pairs of benchmarks and pings, as the measurements of a draft."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.to_model.session_draft import SessionDraft, node_name
from fabtui.model.layers import COLLECTIVES, Layer, busbw_factor
from fabtui.model.measurement import Verdict

_VERDICTS = {"ok": Verdict.OK, "failed": Verdict.FAILED}
#: Units of bandwidth per GB/s, without the writing of the second.
_PER_GB = {"Gb": 8.0, "GB": 1.0}
Values = dict[str, Any]


def _collective(
    draft: SessionDraft, layer: Layer, busbw: float, how: str, extra: Values, ends: str = "all", **fields: Any
) -> None:
    """Keep the bus bandwidth (GB/s) of a collective; ``wrong`` counts the elements of the result that are wrong."""
    known = {name: value for name, value in extra.items() if value is not None}
    if wrong := known.get("wrong"):
        fields.update(verdict=Verdict.WRONG, error=f"{wrong} elements of the result are wrong")
    src, _, dst = ends.partition(" ")
    draft.measured("all_reduce", layer, src, dst or src, value=busbw, unit="GB/s", how=how, extra=known, **fields)


def nccl_tests(draft: SessionDraft, values: Values, name: str) -> None:
    for table in values.get("tables", []):
        for device in table["devices"]:
            draft.endpoint(node_name(device["host"]), device["device"], name=device["name"], bus=device["bus"])
        layer, ranks = COLLECTIVES.get(table["operation"] or ""), table["ranks"]
        # If all ranks are listed, the hosts are complete: a node with itself, or two nodes, else all.
        listed = bool(ranks) and len({device["rank"] for device in table["devices"]}) == ranks
        hosts = [node_name(host) for host in table["hosts"]]
        ends = " ".join(hosts) if listed and len(hosts) in (1, 2) else "all"
        for row in table["rows"]:
            if layer is None:
                break
            sides = {place: row[place] for place in ("out_of_place", "in_place") if row[place] is not None}
            # In place is what frameworks do, and what nccl-tests averages with the other; the better is what the path
            # can do.
            place, best = max(sides.items(), key=lambda side: float(side[1]["busbw"]))
            wrong = sum(side.get("wrong") or 0 for side in sides.values())
            extra = {"algbw": best["algbw"], "seconds": best["time"] / 1e6, "wrong": wrong}
            extra |= {"asked_bytes": row["bytes"], "ranks": ranks}
            how = f"nccl-tests, {place.replace('_', ' ')}"
            _collective(draft, layer, best["busbw"], how, extra, ends, bytes=row["bytes"])


def _layer_of(operation: str | None) -> Layer | None:
    """Return the layer of a collective by any spelling of its name (``AllReduce``, ``all_to_all``), or None."""
    letters = re.sub("[^a-z]", "", (operation or "").lower())
    return next((layer for kind, layer in COLLECTIVES.items() if kind.replace("_", "") == letters), None)


def collective_tables(draft: SessionDraft, values: Values, name: str) -> None:
    """Add the collectives of tables by message size (DeepSpeed, MSCCL++) that name the collective.

    A bus bandwidth that is not printed follows from the other by the number of ranks, as in nccl-tests.
    """
    for table in values.get("tables", []):
        layer, ranks = _layer_of(table["operation"]), table["ranks"]
        for row in table["rows"]:
            if layer is None:
                break
            algbw, busbw = row.get("algbw", row.get("avg_algbw")), row.get("busbw")
            how = str(table.get("program") or "DeepSpeed")
            if busbw is None and algbw is not None and ranks:
                busbw, how = algbw * busbw_factor(str(layer.spec.collective), ranks), f"{how}, calculated from algbw"
            if busbw is None or row.get("bytes") is None:
                continue
            times = {"seconds": row.get("time", row.get("avg_time")), "fastest": row.get("min_time")}
            extra = {key: None if time is None else time / 1e6 for key, time in times.items()}
            extra |= {"algbw": algbw, "ranks": ranks, "wrong": row.get("wrong") or 0}
            _collective(draft, layer, round(busbw, 9), how, extra, bytes=row["bytes"])


def busbw_tables(draft: SessionDraft, values: Values, name: str) -> None:
    """Add the bus bandwidths by numbers of ranks of a text that names the collective; what is compared is an arm."""
    layer = _layer_of(values.get("operation"))
    for table in values.get("tables", []):
        scale = _PER_GB.get((table["unit"] or "")[:2])
        arms = list(dict.fromkeys(row["arm"] or "" for row in table["rows"]))
        if layer is None or scale is None or table["by"] == "nodes":
            continue
        for row in table["rows"]:
            if row["busbw"] is not None:
                arm = _arm(draft, row["arm"] or "", arms.index(row["arm"] or ""), len(arms))
                algbw = None if row["algbw"] is None else round(row["algbw"] / scale, 9)
                extra = {"ranks": row["number"], "algbw": algbw}
                busbw, ends = round(row["busbw"] / scale, 9), f"first{row['number']}"
                _collective(draft, layer, busbw, "table of bus bandwidths", extra, ends, arm=arm)


def all_reduce_bench(draft: SessionDraft, values: Values, name: str) -> None:
    layer = COLLECTIVES.get(str(values.get("operation")), Layer.BUSBW)
    ranks = values.get("ranks") or None
    for row in values.get("rows", []):
        if row["busbw"] is not None and row.get("times") is None:
            extra = {"ranks": ranks, "algbw": row["algbw"]}
            _collective(draft, layer, row["busbw"], "all_reduce_bench", extra, bytes=row["bytes"])
    by_rank = [rank["busbw"] for rank in values.get("by_rank", []) if rank["busbw"] is not None]
    if by_rank:
        # Every rank prints its own figure; the collective is as fast as the slowest.
        how = "all_reduce_bench, the slowest rank"
        _collective(draft, layer, min(by_rank), how, {"ranks": ranks}, bytes=values.get("bytes"))


def _matrix(draft: SessionDraft, matrix: Values, ends: list[str], layer: Layer, flip: bool, **fields: Any) -> None:
    """Keep the cells of a matrix of endpoints; with ``flip`` its columns send."""
    scale = {"ns": 0.001}.get(matrix["unit"], 1.0)
    unit = "us" if matrix["unit"] in ("ns", "us") else "GB/s"
    for row, cells in zip(matrix["rows"], matrix["cells"], strict=True):
        for column, value in zip(matrix["columns"], cells, strict=True):
            if row != column and value is not None and max(int(row), int(column)) < len(ends):
                src, dst = (ends[int(end)] for end in ((column, row) if flip else (row, column)))
                draft.measured("p2p", layer, src, dst, value=round(value * scale, 6), unit=unit, **fields)


def _square(matrix: Values) -> bool:
    numbers = [str(at) for at in range(len(matrix["columns"]))]
    return matrix["columns"] == numbers and all(row.isdecimal() for row in matrix["rows"])


def nvbandwidth(draft: SessionDraft, values: Values, name: str) -> None:
    """Add the matrices of nvbandwidth: one direction first, each further test as an arm."""
    tests = [
        (test["name"] or matrix["title"], matrix)
        for test in values.get("tests", [])
        for matrix in test["matrices"]
        if "GPU(row)" in matrix["title"] and "GPU(column)" in matrix["title"] and _square(matrix)
    ]
    ends = _gpus(draft, values.get("devices", []), [matrix for _, matrix in tests], name)
    latencies = [(title, m) for title, m in tests if m["unit"] == "ns"]
    one_way = [(title, m) for title, m in tests if m["unit"] == "GB/s" and " <-> " not in m["title"]]
    both = [(title, m) for title, m in tests if m["unit"] == "GB/s" and "Total" in m["title"]]
    for order, (title, matrix) in enumerate(one_way or both):
        arm = _arm(draft, title, order, len(one_way or both))
        how = f"nvbandwidth {title}" + ("" if one_way else ", both ways together")
        _matrix(draft, matrix, ends, Layer.P2P, " <- " in matrix["title"], how=how, arm=arm)
    for title, matrix in latencies[:1]:
        _matrix(draft, matrix, ends, Layer.LATENCY, False, how=f"nvbandwidth {title}")


def _arm(draft: SessionDraft, title: str, order: int, count: int) -> str | None:
    """Return the arm that a matrix is measured in: None for the first, which the grid shows."""
    if count > 1 and title not in draft.arms:
        draft.arms.append(title)
    return title if order else None


def _gpus(draft: SessionDraft, devices: list[Values], matrices: list[Values], name: str) -> list[str]:
    """Return the endpoints of matrices: the GPUs that the output lists, or as many of a node named after the file."""
    count = max((len(matrix["columns"]) for matrix in matrices), default=0)
    devices = devices[:count]
    unnamed = len(devices) < count or any(device.get("host") is None for device in devices)
    own = draft.unique(name) if unnamed else ""
    ends = []
    for device in devices:
        node = node_name(device["host"]) if device.get("host") else own
        ends.append(draft.endpoint(node, device["device"], name=device["name"], bus=device["bus"]))
    return ends + [draft.endpoint(own, index) for index in range(len(ends), count)]


def cuda_p2p(draft: SessionDraft, values: Values, name: str) -> None:
    """Add the matrices of the CUDA sample p2pBandwidthLatencyTest, each further setting as an arm."""
    matrices = [m for m in values.get("matrices", []) if _square(m)]
    ends = _gpus(draft, values.get("devices", []), matrices, name)
    bandwidth = [m for m in matrices if m["what"] == "bandwidth" and m["direction"] == "unidirectional"]
    # What a program gets by default comes first: with P2P, by writes.
    bandwidth.sort(key=lambda m: (m["p2p"] != "enabled", m["p2p"] != "enabled" or m["way"] == "reads"))
    for at, m in enumerate(bandwidth):
        title = f"P2P={m['p2p'].capitalize()}" + (f" {m['way'].capitalize()}" if m["way"] else "")
        arm = _arm(draft, title, at, len(bandwidth))
        _matrix(draft, m, ends, Layer.P2P, m["way"] == "reads", how=f"p2pBandwidthLatencyTest, {title}", arm=arm)
    latency = [m for m in matrices if m["what"] == "latency" and m["by"] != "cpu"]
    for m in sorted(latency, key=lambda m: m["p2p"] != "enabled")[:1]:
        _matrix(draft, m, ends, Layer.LATENCY, False, how=f"p2pBandwidthLatencyTest, P2P={m['p2p'].capitalize()}")


def osu(draft: SessionDraft, values: Values, name: str) -> None:
    tests = [
        (f"OSU {test['test'] or test['measures']}", test["units"], test["rows"])
        for test in values.get("tests", [])
        if test["measures"] in ("bandwidth", "latency") and not {"bandwidth", "latency"}.isdisjoint(test["units"])
    ]
    node = draft.unique(name) if tests else ""
    for how, units, rows in tests:
        src, dst = (draft.endpoint(node, rank, kind="cpu", name=f"rank {rank}") for rank in (0, 1))
        rows = [row for row in rows if row.get("bytes") is not None]
        _pair(draft, (src, dst), rows if units.get("bandwidth") == "MB/s" else [], how, scale=1000)
        _latency(draft, (src, dst), rows, "latency", how)


def _pair(
    draft: SessionDraft, ends: tuple[str, str], rows: list[Values], how: str, scale: float = 1, **fields: Any
) -> None:
    for row in rows:
        if row.get("bandwidth") is not None:
            fields |= {"value": round(row["bandwidth"] / scale, 9) if scale != 1 else row["bandwidth"], "how": how}
            fields |= {"unit": "GB/s", "bytes": row.get("bytes"), "extra": {"asked_bytes": row.get("bytes")}}
            draft.measured("p2p", Layer.P2P, ends[0], ends[1], **fields)


def _latency(draft: SessionDraft, ends: tuple[str, str], rows: list[Values], name: str, how: str) -> None:
    """Keep the latency of a pair: that of its smallest message."""
    times = [row for row in rows if row.get(name) is not None]
    if times:
        small = min(times, key=lambda row: row.get("bytes") or 0)
        fields = {"value": small[name], "unit": "us", "bytes": small.get("bytes"), "how": how}
        draft.measured("p2p", Layer.LATENCY, ends[0], ends[1], **fields)


def perftest(draft: SessionDraft, values: Values, name: str) -> None:
    rows = values.get("rows", [])
    if not rows:
        # The tool failed, which shows nothing about a pair: the catalogue of errors explains what it printed.
        return
    node = draft.unique(name)
    src = draft.endpoint(node, 0, kind="cpu", name="client", nic=values.get("device"))
    dst = draft.endpoint(node, 1, kind="cpu", name="server")
    how = f"perftest {values.get('test') or ''}".strip()
    # A read moves data to the side that requests it.
    ends = (dst, src) if "Read" in str(values.get("test")) else (src, dst)
    _pair(draft, ends, rows, how, transport="RDMA")
    _latency(draft, ends, rows, "t_avg", how)


def iperf3(draft: SessionDraft, values: Values, name: str) -> None:
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


def ping_csv(draft: SessionDraft, values: Values, name: str) -> None:
    """Add the addresses and the pairs of hosts of a table of pings.

    The rail of an address is the segment (``10.1.0``) that a row within one names.
    """
    rows = values.get("rows", [])
    segments = list(dict.fromkeys(row["segment"] for row in rows if "->" not in row["segment"]))
    rails: dict[str, int] = {}
    for row in rows:
        for side in ("src_addr", "dst_addr") if "->" not in row["segment"] else ():
            rails.setdefault(row[side], segments.index(row["segment"]))
    for row in rows:
        for side in ("src", "dst"):
            _add_address(draft, node_name(row[side]), row[f"{side}_addr"], rails.get(row[f"{side}_addr"]))
        src, dst = draft.nowhere(node_name(row["src"])), draft.nowhere(node_name(row["dst"]))
        verdict = _VERDICTS.get(row["status"], Verdict.INCONCLUSIVE)
        fields = {"unit": "ms", "verdict": verdict, "how": f"ping, segment {row['segment']}"}
        if verdict is not Verdict.OK:
            fields["error"] = f"status {row['status']}"
        draft.measured("ping", Layer.PING, src, dst, **fields, src_addr=row["src_addr"], dst_addr=row["dst_addr"])


def _add_address(draft: SessionDraft, node: str, address: str, rail: int | None) -> None:
    record = draft.record(node)
    record.inventory = record.inventory or {}
    listed = record.inventory.setdefault("data_addresses", [])
    if rail is not None and all(entry["address"] != address for entry in listed):
        listed.append({"address": address, "rail": rail, "nic": None})


def p2p_runs(draft: SessionDraft, values: Values, name: str) -> None:
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
