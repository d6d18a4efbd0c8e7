"""The ping mesh: every data address of a node to every data address of the others."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from fabtui.fabric.measurement import Layer, Measurement, Verdict
from fabtui.fabric.text import clean, one_line
from fabtui.session.sides import number

COUNT = 3
WAIT = 1.0
#: More address pairs than this of one node are not pinged; a node has some ten addresses, a sweep some hundred nodes.
MAX_TARGETS = 20_000


def addresses_of(inventory: dict[str, Any] | None) -> list[tuple[str, int]]:
    """Return a node's data addresses with their family (4 or 6), from its inventory."""
    found = []
    for entry in (inventory or {}).get("data_addresses") or []:
        if isinstance(entry, dict) and isinstance(entry.get("address"), str):
            found.append((entry["address"], 6 if entry.get("family") == 6 else 4))
    return found


def targets_of(node: str, peers: Iterable[str], addresses: dict[str, list[tuple[str, int]]]) -> list[dict[str, Any]]:
    """Return what a node is to ping: each of its addresses to each address of its peers of the same family."""
    targets = []
    for peer in peers:
        if peer == node:
            continue
        for own, family in addresses.get(node, []):
            for other, its_family in addresses.get(peer, []):
                if family == its_family:
                    targets.append({"id": peer, "src": own, "dst": other})
    return targets[:MAX_TARGETS]


def read_row(node: str, row: dict[str, Any], wanted: set[tuple[str, str, str]], attempts: int) -> Measurement | None:
    """Return the measurement of one row of the ping probe, or None for a row that was not asked for."""
    peer, src, dst = row.get("id"), row.get("src"), row.get("dst")
    if not (isinstance(peer, str) and isinstance(src, str) and isinstance(dst, str)) or (peer, src, dst) not in wanted:
        return None
    sent, received, loss = number(row.get("sent")), number(row.get("received")), number(row.get("loss"))
    average = number(row.get("rtt_avg"))
    error = one_line(str(row["error"]), 300) if row.get("error") else None
    verdict, text = _judge(sent, received, loss, error)
    return Measurement(
        layer=Layer.PING,
        src=node,
        dst=peer,
        verdict=verdict,
        value=average if verdict in (Verdict.OK, Verdict.SLOW) else None,
        unit="ms",
        bytes=int(number(row.get("size")) or 56),
        time=time.time(),
        how=f"{one_line(str(row.get('tool') or 'ping'), 20)}, average round trip of {COUNT}",
        src_addr=one_line(src, 80),
        dst_addr=one_line(dst, 80),
        attempts=attempts,
        error=text,
        raw=clean(str(row["raw"]), 2000) if row.get("raw") else None,
        extra={"loss": loss, "rtt_min": number(row.get("rtt_min")), "rtt_max": number(row.get("rtt_max"))},
    )


def _judge(
    sent: float | None, received: float | None, loss: float | None, error: str | None
) -> tuple[Verdict, str | None]:
    if received is None:
        return Verdict.INCONCLUSIVE, error or "ping gave no answer that could be read"
    if loss is None and sent:
        loss = 100.0 * (1 - received / sent)
    if received == 0:
        # Unreachable is told by a router or the kernel; silence is a timeout.
        silent = error is None or "lost" in error or "no answer" in error or "loss" in error
        return (Verdict.TIMEOUT if silent else Verdict.FAILED), error or f"no answer, {sent or COUNT:.0f} sent"
    if loss:
        return Verdict.SLOW, error or f"{loss:.0f} % loss"
    return Verdict.OK, None
