"""Pairs of benchmarks and pings, as the measurements of a draft."""

from __future__ import annotations

from typing import Any

from fabtui.importers.to_model.builder import Draft, node_name
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict


def osu(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the pair of an OSU benchmark."""
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


def perftest(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the pair of a perftest tool."""
    rows = values.get("rows", [])
    if not rows and not values.get("error"):
        return
    node = draft.unique(name)
    src = draft.endpoint(node, 0, kind="cpu", name="client", nic=values.get("device"))
    dst = draft.endpoint(node, 1, kind="cpu", name="server")
    how = f"perftest {values.get('test') or ''}".strip()
    # A read moves data to the side that requests it.
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


def iperf3(draft: Draft, values: dict[str, Any], name: str) -> None:
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


def ping_csv(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the addresses and the pairs of hosts of a table of pings."""
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


def _add_address(draft: Draft, node: str, address: str, rail: int | None) -> None:
    listed = draft.inventories.setdefault(node, {"data_addresses": []})["data_addresses"]
    if rail is not None and all(entry["address"] != address for entry in listed):
        listed.append({"address": address, "rail": rail, "nic": None})


def p2p_runs(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the pairs of jobs that tested one pair each."""
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
        why = None if verdict is Verdict.OK else pair["error"] or "the job printed neither OK nor an error"
        draft.measured("p2p", Layer.P2P, ends[0], ends[1], verdict=verdict, error=why, how="p2p-test", unit="GB/s")
