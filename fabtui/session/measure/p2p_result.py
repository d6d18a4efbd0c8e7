"""Reading what the two sides of a pair report, and making one measurement of each direction."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.sanitize import clean, one_line

#: More raw text than this of one side of a pair is not kept.
MAX_RAW = 8000
#: Begins the error of a side that only saw its peer fail; the peer's own error says more.
PEER_FAILED = "peer: "
#: The error of a side that is through and reported nothing.
NO_REPORT = "it ended without a report"
#: What errors read that say less than that of the other side, whatever that one says.
SAYS_LITTLE = re.compile(rf"^(?:{re.escape(PEER_FAILED)}|{re.escape(NO_REPORT)})|(?:^|: )called off\b")


@dataclass(frozen=True, slots=True)
class Side:
    """What one side of a direction reported, where every field was checked, or what stands in for its report.

    Attributes:
        gone: Whether it gave no report because its rank host or node was lost; the error says how.
    """

    ok: bool
    timeout: bool
    phase: str
    error: str | None
    made: bool
    bytes: int | None
    rate: float | None
    latency: float | None
    transport: str | None
    src_addr: str | None
    dst_addr: str | None
    raw: str | None
    both_rate: float | None = None
    times: dict[str, float] | None = None
    gone: bool = False

    @classmethod
    def read(cls, message: dict[str, Any], names: Sequence[object] = ()) -> Side:
        """Return the side in a message of a rank host, whatever it holds; ``names`` are those of the ranks."""
        error = _text(message.get("error"), 1000)
        error = name_ranks(error, names) if error else None
        ok = message.get("ok") is True
        return cls(
            ok=ok,
            timeout=message.get("timeout") is True,
            phase=_text(message.get("phase"), 20) or "",
            error=error if ok or error else "failed without a reason",
            made=message.get("made") is True,
            bytes=_whole(message.get("bytes")),
            rate=number(message.get("rate")),
            latency=number(message.get("latency")),
            transport=_text(message.get("transport"), 120),
            src_addr=_text(message.get("src_addr"), 80),
            dst_addr=_text(message.get("dst_addr"), 80),
            raw=clean(str(message["raw"]), MAX_RAW) if message.get("raw") else None,
            both_rate=number(message.get("both_rate")),
            times=_times(message.get("times")),
        )

    @classmethod
    def failed(cls, text: str, *, timeout: bool = False, gone: bool = False) -> Side:
        """Return a side that could not report by itself."""
        return cls(False, timeout, "", text, False, None, None, None, None, None, None, None, gone=gone)


def number(value: Any) -> float | None:
    """Return a finite number that is not negative, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


def _times(value: Any) -> dict[str, float] | None:
    """Return the times of single messages in seconds: ``count``, ``min``, ``median``, ``p99``, ``max``."""
    if not isinstance(value, dict):
        return None
    names = ("count", "min", "median", "p99", "max")
    return {name: found for name in names if (found := number(value.get(name))) is not None} or None


def _text(value: Any, limit: int) -> str | None:
    return one_line(str(value), limit) if value is not None and value != "" else None


_RANK = re.compile(r"\brank (\d{1,7})\b(?: \([^()]{0,100}\))?")


def name_ranks(text: str, names: Sequence[object]) -> str:
    """Return a rank host's text with the names of endpoints (``n060:3``) in place of rank numbers."""

    def name(match: re.Match[str]) -> str:
        rank = int(match[1])
        return str(names[rank]) if rank < len(names) else match[0]

    return _RANK.sub(name, text)


def _telling(src: Side, dst: Side) -> Side:
    """Return the failed side whose error says more."""
    failed = [side for side in (dst, src) if not side.ok]

    def little(side: Side) -> tuple[bool, bool, bool, bool]:
        # A rank host that was ended because it hung is the reason; what the other side saw of its end is not.
        hung = side.gone and side.timeout
        return SAYS_LITTLE.search(side.error or "") is not None, not hung, not side.made, side.timeout

    return min(failed, key=little)


def _judged(src: Side, dst: Side) -> tuple[Verdict, str | None]:
    """Return the verdict on a direction by what its two sides say, and why it is not ok."""
    if src.ok and dst.ok:
        return (Verdict.OK, None) if dst.rate else (Verdict.INCONCLUSIVE, "both sides passed, but no rate was reported")
    told = _telling(src, dst)
    error = (told.error or "failed").removeprefix(PEER_FAILED)
    if told.phase and not error.startswith(f"{told.phase}:"):
        error = f"{told.phase}: {error}"
    if cause := next((s.error for s in (src, dst) if s.gone and s.error != told.error), None):
        # What a side saw of a peer that went away is not why it went.
        error = f"{error}; {cause}"
    return Verdict.TIMEOUT if told.timeout else Verdict.FAILED, error


def _extra(dst_side: Side, asked: int | None) -> dict[str, Any]:
    """Return what else is known of a direction: the size asked for, both ways at once, the times of messages."""
    extra: dict[str, Any] = {}
    if asked is not None and dst_side.bytes is not None and dst_side.bytes != asked:
        extra["asked_bytes"] = asked
    if dst_side.both_rate is not None:
        extra["both_ways"] = dst_side.both_rate / 1e9
    if dst_side.times is not None:
        extra["times"] = dst_side.times
    return extra


def direction(
    src: str,
    dst: str,
    src_side: Side,
    dst_side: Side,
    *,
    time: float,
    how: str,
    attempts: int,
    asked: int | None = None,
) -> list[Measurement]:
    """Return the measurements of one direction of a pair: its bandwidth, and its latency where there is one."""
    transport = src_side.transport or dst_side.transport
    raw = "\n".join(
        f"[{name}]\n{side.raw}" for name, side in ((src, src_side), (dst, dst_side)) if side.raw is not None
    )
    verdict, error = _judged(src_side, dst_side)
    made = verdict is not Verdict.INCONCLUSIVE and (src_side.made or dst_side.made)
    rate = dst_side.rate if verdict is Verdict.OK else None
    found = [
        Measurement(
            layer=Layer.P2P,
            src=src,
            dst=dst,
            verdict=verdict,
            value=None if rate is None else rate / 1e9,
            unit="GB/s",
            bytes=dst_side.bytes or src_side.bytes,
            time=time,
            how=how,
            transport=transport,
            src_addr=src_side.src_addr or dst_side.src_addr,
            dst_addr=dst_side.dst_addr or src_side.dst_addr,
            attempts=attempts,
            error=error,
            made=made,
            raw=raw or None,
            extra=_extra(dst_side, asked) or None,
        )
    ]
    latency = src_side.latency if src_side.latency is not None else dst_side.latency
    if verdict is Verdict.OK and latency is not None:
        found.append(
            Measurement(
                layer=Layer.LATENCY,
                src=src,
                dst=dst,
                verdict=Verdict.OK,
                value=latency * 1e6,
                unit="us",
                bytes=8,
                time=time,
                how=f"{how}; half of the median round trip of 8 bytes",
                transport=transport,
                src_addr=found[0].src_addr,
                dst_addr=found[0].dst_addr,
                attempts=attempts,
            )
        )
    return found
