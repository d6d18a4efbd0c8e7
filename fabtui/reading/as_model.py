"""From what was read to a model: matrices, tables of pairs and collectives become measurements.

What a file does not say is not made up: a benchmark that names no host gets a node named after its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fabtui.fabric.measurement import COLLECTIVES, Layer, Verdict
from fabtui.fabric.model import Model
from fabtui.reading import snapshots
from fabtui.reading.draft import Draft, node_name
from fabtui.reading.result import Result
from fabtui_probes.formats.base import Notes

Values = dict[str, Any]


def convertible(kind: str) -> bool:
    """Say whether outputs of a kind can be turned into measurements."""
    return kind in _CONVERTERS or kind == "fabtui-recording"


def rivals(results: Iterable[Result]) -> list[str]:
    """Return the kinds whose pairs would stand in one layer although they are measured in different ways."""
    found: dict[str, None] = {}
    for result in results:
        if result.kind.startswith("fabtui-"):
            found.setdefault("fabtui")
        elif result.kind in _OF_PAIRS:
            found.setdefault(result.kind)
    return list(found) if len(found) > 1 else []


def events(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the events of a session that found what files say; a recording alone gives its own events.

    Nothing is in them for a file whose kind has no pairs and no collectives.
    """
    found = list(results)
    if len(found) == 1 and found[0].kind == "fabtui-recording":
        return snapshots.recorded(found[0].source.text)
    draft = Draft()
    for result in found:
        if result.kind == "fabtui-recording":
            snapshots.add_recording(draft, result.source.text)
        elif (convert := _CONVERTERS.get(result.kind)) is not None:
            convert(draft, result.values, stem(result.source.name))
    return draft.events()


def model(results: Iterable[Result]) -> Model:
    """Return the model of what files say."""
    found = Model()
    notes = Notes()
    for one in events(results):
        snapshots.apply(found, one, notes)
    return found


def stem(name: str) -> str:
    """Return what a file is called without its folder and endings: ``runs/n060.nccl.txt`` is ``n060.nccl``."""
    if name == "-":
        return "stdin"
    bare = Path(name).name.removesuffix(".gz")
    return bare.rpartition(".")[0] or bare


# -- collectives ------------------------------------------------------------------------------------------------------


def _nccl_tests(draft: Draft, values: Values, name: str) -> None:
    for table in values.get("tables", []):
        for device in table["devices"]:
            draft.endpoint(node_name(device["host"]), device["device"], name=device["name"], bus=device["bus"])
        layer = COLLECTIVES.get(table["operation"] or "")
        if layer is None:
            continue
        src, dst = _group([node_name(host) for host in table["hosts"]], _listed(table))
        for row in table["rows"]:
            _collective(draft, layer, src, dst, row, table)


def _listed(table: Values) -> bool:
    """Say whether all ranks of a table are listed, so that its hosts are all there are."""
    return bool(table["ranks"]) and len({device["rank"] for device in table["devices"]}) == table["ranks"]


def _group(hosts: Sequence[str], whole: bool) -> tuple[str, str]:
    """Return what a collective of these hosts is measured between: a node with itself, two nodes, or all."""
    if whole and len(hosts) == 1:
        return hosts[0], hosts[0]
    if whole and len(hosts) == 2:
        return hosts[0], hosts[1]
    return "all", "all"


def _collective(draft: Draft, layer: Layer, src: str, dst: str, row: Values, table: Values) -> None:
    sides = [(place, side) for place in ("out_of_place", "in_place") if (side := row[place]) is not None]
    # In place is what frameworks do, and what nccl-tests averages with the other; the better is what the path can do.
    place, best = max(sides, key=lambda found: found[1]["busbw"])
    wrong = sum(side.get("wrong") or 0 for _, side in sides)
    extra = {"algbw": best["algbw"], "seconds": best["time"] / 1e6, "wrong": wrong, "asked_bytes": row["bytes"]}
    if table["ranks"]:
        extra["ranks"] = table["ranks"]
    draft.measured(
        "all_reduce",
        layer,
        src,
        dst,
        value=best["busbw"],
        unit="GB/s",
        bytes=row["bytes"],
        verdict=Verdict.FAILED if wrong else Verdict.OK,
        error=f"{wrong} elements of the result are wrong" if wrong else None,
        how=f"nccl-tests, {place.replace('_', ' ')}",
        extra=extra,
    )


def _all_reduce_bench(draft: Draft, values: Values, name: str) -> None:
    layer = COLLECTIVES.get(str(values.get("operation")), Layer.BUSBW)
    ranks = {"ranks": values["ranks"]} if values.get("ranks") else {}
    for row in values.get("rows", []):
        if row["busbw"] is not None and row.get("times") is None:
            extra = {**ranks, **({} if row["algbw"] is None else {"algbw": row["algbw"]})}
            draft.measured(
                "all_reduce",
                layer,
                "all",
                "all",
                value=row["busbw"],
                unit="GB/s",
                bytes=row["bytes"],
                extra=extra,
                how="all_reduce_bench",
            )
    slowest = min((rank["busbw"] for rank in values.get("by_rank", []) if rank["busbw"] is not None), default=None)
    if slowest is not None:
        # Every rank prints its own figure; the collective is as fast as the slowest.
        draft.measured(
            "all_reduce",
            layer,
            "all",
            "all",
            value=slowest,
            unit="GB/s",
            bytes=values.get("bytes"),
            extra=ranks or None,
            how="all_reduce_bench, the slowest rank",
        )


# -- matrices ---------------------------------------------------------------------------------------------------------


def _matrix(draft: Draft, matrix: Values, ends: list[str], layer: Layer, flip: bool, **fields: Any) -> None:
    """Keep the cells of a matrix of endpoints; with ``flip`` its columns send."""
    scale = {"ns": 0.001}.get(matrix["unit"], 1.0)
    unit = "us" if matrix["unit"] in ("ns", "us") else "GB/s"
    for row, cells in zip(matrix["rows"], matrix["cells"], strict=True):
        for column, value in zip(matrix["columns"], cells, strict=True):
            if row != column and value is not None and max(int(row), int(column)) < len(ends):
                src, dst = ends[int(row)], ends[int(column)]
                src, dst = (dst, src) if flip else (src, dst)
                draft.measured("p2p", layer, src, dst, value=round(value * scale, 6), unit=unit, **fields)


def _square(matrix: Values) -> bool:
    return matrix["columns"] == [str(at) for at in range(len(matrix["columns"]))] and all(
        row.isdecimal() for row in matrix["rows"]
    )


def _nvbandwidth(draft: Draft, values: Values, name: str) -> None:
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


def _gpus(draft: Draft, devices: list[Values], count: int, name: str) -> list[str]:
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


def _cuda_p2p(draft: Draft, values: Values, name: str) -> None:
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


# -- pairs ------------------------------------------------------------------------------------------------------------


def _osu(draft: Draft, values: Values, name: str) -> None:
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
        sizes = [row for row in test["rows"] if row.get("bytes") is not None]
        for row in sizes:
            if row.get("bandwidth") is not None and test["units"].get("bandwidth") == "MB/s":
                draft.measured(
                    "p2p",
                    Layer.P2P,
                    src,
                    dst,
                    value=round(row["bandwidth"] / 1000, 9),
                    unit="GB/s",
                    bytes=row["bytes"],
                    how=how,
                    extra={"asked_bytes": row["bytes"]},
                )
        times = [row for row in sizes if row.get("latency") is not None]
        if times:
            # The latency of a pair is that of its smallest message.
            small = min(times, key=lambda row: row["bytes"])
            draft.measured(
                "p2p", Layer.LATENCY, src, dst, value=small["latency"], unit="us", bytes=small["bytes"], how=how
            )


def _perftest(draft: Draft, values: Values, name: str) -> None:
    rows = values.get("rows", [])
    if not rows and not values.get("error"):
        return
    node = draft.unique(name)
    src = draft.endpoint(node, 0, kind="cpu", name="client", nic=values.get("device"))
    dst = draft.endpoint(node, 1, kind="cpu", name="server")
    how = f"perftest {values.get('test') or ''}".strip()
    # A read moves data to whoever asks for it.
    src, dst = (dst, src) if "Read" in str(values.get("test")) else (src, dst)
    for row in rows:
        if row.get("bandwidth") is not None:
            draft.measured(
                "p2p",
                Layer.P2P,
                src,
                dst,
                value=row["bandwidth"],
                unit="GB/s",
                bytes=row.get("bytes"),
                how=how,
                transport="RDMA",
                extra={"asked_bytes": row.get("bytes")},
            )
    times = [row for row in rows if row.get("t_avg") is not None]
    if times:
        small = min(times, key=lambda row: row.get("bytes") or 0)
        draft.measured(
            "p2p", Layer.LATENCY, src, dst, value=small["t_avg"], unit="us", bytes=small.get("bytes"), how=how
        )
    if not rows:
        draft.measured("p2p", Layer.P2P, src, dst, verdict=Verdict.FAILED, error=str(values["error"]), how=how)


def _iperf3(draft: Draft, values: Values, name: str) -> None:
    totals = values.get("totals", [])
    best = next((row for row in totals if row["side"] == "receiver"), totals[0] if totals else None)
    if best is None:
        return
    addresses = (values.get("local"), values.get("remote"))
    # An address tells a host from another; without one the file's name has to.
    src = draft.nowhere(node_name(addresses[0]) if addresses[0] else f"{draft.unique(name)}-client")
    dst = draft.nowhere(node_name(addresses[1]) if addresses[1] else f"{draft.unique(name)}-server")
    if values.get("reverse"):
        src, dst, addresses = dst, src, addresses[::-1]
    draft.measured(
        "iperf3",
        Layer.IPERF3,
        src,
        dst,
        value=best["bandwidth"],
        unit="GB/s",
        how="iperf3",
        src_addr=addresses[0],
        dst_addr=addresses[1],
        transport=values.get("protocol"),
    )


def _ping_csv(draft: Draft, values: Values, name: str) -> None:
    verdicts = {"ok": Verdict.OK, "failed": Verdict.FAILED}
    rails = _segments(values.get("rows", []))
    for row in values.get("rows", []):
        for side in ("src", "dst"):
            _add_address(draft, node_name(row[side]), row[f"{side}_addr"], rails.get(row[f"{side}_addr"]))
        src, dst = draft.nowhere(node_name(row["src"])), draft.nowhere(node_name(row["dst"]))
        verdict = verdicts.get(row["status"], Verdict.INCONCLUSIVE)
        draft.measured(
            "ping",
            Layer.PING,
            src,
            dst,
            verdict=verdict,
            unit="ms",
            src_addr=row["src_addr"],
            dst_addr=row["dst_addr"],
            error=None if verdict is Verdict.OK else f"status {row['status']}",
            how=f"ping, segment {row['segment']}",
        )


def _segments(rows: list[Values]) -> dict[str, int]:
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


def _add_address(draft: Draft, node: str, address: str, rail: int | None) -> None:
    listed = draft.inventories.setdefault(node, {"data_addresses": []})["data_addresses"]
    if rail is not None and all(entry["address"] != address for entry in listed):
        listed.append({"address": address, "rail": rail, "nic": None})


def _p2p_runs(draft: Draft, values: Values, name: str) -> None:
    places = {entry["rank"]: (node_name(entry["host"]), entry["index"]) for entry in values.get("ranks", [])}
    own: str | None = None
    verdicts = {"ok": Verdict.OK, "failed": Verdict.FAILED}
    for entry in values.get("ranks", []):
        draft.endpoint(*places[entry["rank"]])
    for pair in values.get("pairs", []):
        ends = []
        for rank in (pair["src"], pair["dst"]):
            if rank not in places:
                own = own or draft.unique(name)
                places[rank] = (own, rank)
            ends.append(draft.endpoint(*places[rank]))
        verdict = verdicts.get(pair["status"], Verdict.INCONCLUSIVE)
        why = None if verdict is Verdict.OK else pair["error"] or "the job says neither OK nor what went wrong"
        draft.measured("p2p", Layer.P2P, ends[0], ends[1], verdict=verdict, error=why, how="p2p-test", unit="GB/s")


def _snapshot(draft: Draft, values: Values, name: str) -> None:
    snapshots.add_nodes(draft, values.get("nodes") or [])
    snapshots.add_rows(draft, values.get("measurements", []), values.get("endpoints") or [])


#: What these measure between pairs are different things: copies, NCCL, MPI, RDMA.
_OF_PAIRS = frozenset({"nvbandwidth", "p2pBandwidthLatencyTest", "osu", "perftest", "p2p-test"})

_CONVERTERS: dict[str, Callable[[Draft, Values, str], None]] = {
    "nccl-tests": _nccl_tests,
    "all_reduce_bench": _all_reduce_bench,
    "nvbandwidth": _nvbandwidth,
    "p2pBandwidthLatencyTest": _cuda_p2p,
    "osu": _osu,
    "perftest": _perftest,
    "iperf3": _iperf3,
    "ping-csv": _ping_csv,
    "p2p-test": _p2p_runs,
    "fabtui-csv": _snapshot,
    "fabtui-json": _snapshot,
}
