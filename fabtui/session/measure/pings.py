"""What a node said of an echo, as a measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fabtui.model.measurement import Layer, Measurement, Verdict
from fabtui.sanitize import clean, one_line
from fabtui.session.measure.mesh_targets import Target, packet_bytes
from fabtui.session.measure.p2p_result import number

Key = tuple[str, str, str]
SMALL = 56


def key_of(row: Any) -> Key | None:
    """Return the target of a row, or None where it has none."""
    if not isinstance(row, dict):
        return None
    key = row.get("id"), row.get("src"), row.get("dst")
    return key if all(isinstance(part, str) for part in key) else None  # type: ignore[return-value]


def read_row(row: Mapping[str, Any], target: Target, attempts: int, keep: bool = True) -> Measurement:
    """Return the measurement of one row of the ping probe: a round trip, in ms.

    Args:
        row: What the node said.
        target: Whom it asked.
        attempts: How often it did.
        keep: Whether what was printed is kept where all is well; there may be a hundred thousand of them.
    """
    sent, received, loss = (number(row.get(name)) for name in ("sent", "received", "loss"))
    average = number(row.get("rtt_avg"))
    error = one_line(str(row["error"]), 300) if row.get("error") else None
    verdict, text = judge(sent, received, loss, error)
    return Measurement(
        layer=Layer.PING,
        src=target.node,
        dst=target.peer,
        verdict=verdict,
        value=average if verdict in (Verdict.OK, Verdict.SLOW) else None,
        unit="ms",
        bytes=int(number(row.get("size")) or SMALL),
        time=time.time(),
        how=f"{_tool(row)}, average round trip of {sent or 0:.0f}",
        src_addr=target.here.address,
        dst_addr=target.there.address,
        attempts=attempts,
        error=text,
        raw=raw_of(row) if keep or verdict is not Verdict.OK else None,
        extra={"loss": loss, "rtt_min": number(row.get("rtt_min")), "rtt_max": number(row.get("rtt_max"))},
    )


def judge(
    sent: float | None, received: float | None, loss: float | None, error: str | None
) -> tuple[Verdict, str | None]:
    """Return the verdict of echoes, and what to say of them where that is not ok."""
    if received is None:
        return Verdict.INCONCLUSIVE, error or "ping gave no answer that could be read"
    if loss is None and sent:
        loss = 100.0 * (1 - received / sent)
    if received == 0:
        # Unreachable is told by a router or the kernel; silence is a timeout.
        silent = error is None or "lost" in error or "no answer" in error or "loss" in error
        return (Verdict.TIMEOUT if silent else Verdict.FAILED), error or f"no answer, {sent or 0:.0f} sent"
    if loss:
        return Verdict.SLOW, error or f"{loss:.0f} % loss"
    return Verdict.OK, None


def read_whole(row: Mapping[str, Any], target: Target, payload: int, attempts: int) -> Measurement:
    """Return the measurement of the echo that fills the MTU: the largest packet that passes, in bytes."""
    sent, received, loss = (number(row.get(name)) for name in ("sent", "received", "loss"))
    error = one_line(str(row["error"]), 300) if row.get("error") else None
    verdict, text = judge(sent, received, loss, error)
    packet = packet_bytes(payload, target.here.address)
    extra = {"loss": loss, "payload": payload, "path_mtu": number(row.get("path_mtu"))}
    if verdict is Verdict.SLOW:
        text = f"{loss or 0:.0f} % loss of echoes of {payload} bytes"
    elif verdict is not Verdict.OK and verdict is not Verdict.INCONCLUSIVE:
        text = f"{payload} bytes do not pass" + (f": {error}" if error else "")
    return Measurement(
        layer=Layer.MTU,
        src=target.node,
        dst=target.peer,
        verdict=verdict,
        value=float(packet) if verdict in (Verdict.OK, Verdict.SLOW) else None,
        unit="B",
        bytes=packet,
        time=time.time(),
        how=f"{_tool(row)}, echoes of {payload} bytes that may not be fragmented",
        src_addr=target.here.address,
        dst_addr=target.there.address,
        attempts=attempts,
        error=text,
        raw=None if verdict is Verdict.OK else raw_of(row),
        extra=None if verdict is Verdict.OK else extra,
    )


def raw_of(row: Mapping[str, Any]) -> str | None:
    """Return what the tool printed, cleaned and cut."""
    return clean(str(row["raw"]), 2000) if row.get("raw") else None


def _tool(row: Mapping[str, Any]) -> str:
    return one_line(str(row.get("tool") or "ping"), 20)
