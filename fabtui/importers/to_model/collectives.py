"""Collectives of benchmarks, as the measurements of a draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabtui.importers.to_model.builder import Draft, node_name
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import Verdict


def nccl_tests(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the endpoints and the collectives of nccl-tests."""
    for table in values.get("tables", []):
        for device in table["devices"]:
            draft.endpoint(node_name(device["host"]), device["device"], name=device["name"], bus=device["bus"])
        layer = COLLECTIVES.get(table["operation"] or "")
        if layer is None:
            continue
        src, dst = _group([node_name(host) for host in table["hosts"]], _listed(table))
        for row in table["rows"]:
            _collective(draft, layer, src, dst, row, table)


def _listed(table: dict[str, Any]) -> bool:
    """Return True if all ranks of a table are listed, so that its hosts are complete."""
    return bool(table["ranks"]) and len({device["rank"] for device in table["devices"]}) == table["ranks"]


def _group(hosts: Sequence[str], whole: bool) -> tuple[str, str]:
    """Return what a collective of these hosts is measured between: a node with itself, two nodes, or all."""
    if whole and len(hosts) == 1:
        return hosts[0], hosts[0]
    if whole and len(hosts) == 2:
        return hosts[0], hosts[1]
    return "all", "all"


def _collective(draft: Draft, layer: Layer, src: str, dst: str, row: dict[str, Any], table: dict[str, Any]) -> None:
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


def all_reduce_bench(draft: Draft, values: dict[str, Any], name: str) -> None:
    """Add the collectives of all_reduce_bench."""
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
