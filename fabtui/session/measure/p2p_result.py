"""Reports of the two sides of a pair, and the measurements of its two directions."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from fabtui.model.layers import Layer
from fabtui.model.measurement import Extra, Measurement, Verdict
from fabtui.sanitize import clean, one_line
from fabtui.transport.link import Message
from fabtui_node.protocol import CONSEQUENCES, MAX_NUMBER, ErrorKind

#: Maximum length of the raw text of one side of a pair.
MAX_RAW = 8000
#: Error of a side that ended and reported nothing.
NO_REPORT = "it ended without a report"

_Read = TypeVar("_Read", bound=msgspec.Struct)


_Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class _Times(msgspec.Struct, omit_defaults=True):
    """Statistics of the durations of single messages (s)."""

    count: _Amount | None = None
    min: _Amount | None = None
    median: _Amount | None = None
    p99: _Amount | None = None
    max: _Amount | None = None


class Side(msgspec.Struct):
    """The report (``side``) of one side of a direction as it is read, or its replacement where there is none."""

    ok: bool = False
    timeout: bool = False
    error: str | None = None
    kind: ErrorKind | None = msgspec.field(default=None, name="error_kind")  #: Kind of the error, or None.
    gone: bool = False  #: Whether the rank host or node of the side was lost; the error gives the reason.
    phase: str = ""
    made: bool = False
    bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] | None = None
    rate: _Amount | None = None
    latency: _Amount | None = None
    transport: str | None = None
    src_addr: str | None = None
    dst_addr: str | None = None
    raw: str | None = None
    both_rate: _Amount | None = None
    times: _Times | None = None

    @property
    def is_consequence(self) -> bool:
        return self.kind in CONSEQUENCES

    @classmethod
    def read(cls, message: Message, names: Sequence[object] = ()) -> Side:
        """Return the side of a rank host's unvalidated message; ``names`` are the names of the ranks."""
        side = read_struct(message, cls)
        side.gone = False
        side.phase = one_line(side.phase, 20)
        side.transport = _line(side.transport, 120)
        side.src_addr, side.dst_addr = _line(side.src_addr, 80), _line(side.dst_addr, 80)
        side.raw = clean(side.raw, MAX_RAW) if side.raw else None
        if side.error is not None:
            side.error = name_ranks(one_line(side.error, 1000), names)
        if side.ok:
            side.kind = None
        else:
            side.error = side.error or "failed without a reason"
            side.kind = side.kind or (ErrorKind.TIMEOUT if side.timeout else ErrorKind.FAILED)
        return side


@functools.lru_cache(4096)
def _line(text: str | None, limit: int) -> str | None:
    return one_line(text, limit) if text else None


def read_struct(message: Message, kind: type[_Read]) -> _Read:
    """Return an unvalidated message as an object of a type; a field of a wrong type counts as absent.

    So does half of a surrogate pair, which JSON can hold and UTF-8 cannot, as a key or as a word of a list.
    """
    try:
        return msgspec.convert(message, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):
        good = {}
        for field in msgspec.structs.fields(kind):
            name = field.encode_name
            with contextlib.suppress(msgspec.ValidationError, UnicodeEncodeError):
                if name in message:
                    msgspec.convert({name: message[name]}, kind)
                    good[name] = message[name]
        return msgspec.convert(good, kind)


def number(value: Any) -> float | None:
    """Return a finite, non-negative number, or None."""
    if type(value) is float:
        return value if 0.0 <= value < math.inf else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def whole(value: Any) -> int | None:
    """Return a non-negative integer that a float holds exactly, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


_RANK = re.compile(r"\brank (\d{1,7})\b(?: \([^()]{0,100}\))?")


def name_ranks(text: str, names: Sequence[object]) -> str:
    """Return a rank host's text with endpoint names (``n060:3``) instead of rank numbers."""

    def name(match: re.Match[str]) -> str:
        rank = int(match[1])
        return str(names[rank]) if rank < len(names) else match[0]

    return _RANK.sub(name, text)


def _decisive(src: Side, dst: Side) -> Side:
    failed = [side for side in (dst, src) if not side.ok]

    def explains_less(side: Side) -> tuple[bool, bool, bool, bool]:
        # A rank host that was ended because it hung is the reason; its end as seen by the other side is not.
        hung = side.gone and side.timeout
        return side.is_consequence, not hung, not side.made, side.timeout

    return min(failed, key=explains_less)


def _judge(src: Side, dst: Side) -> tuple[Verdict, str | None, ErrorKind | None]:
    if src.ok and dst.ok:
        if dst.rate:
            return Verdict.OK, None, None
        return Verdict.INCONCLUSIVE, "both sides passed, but no rate was reported", ErrorKind.NO_REPORT
    side = _decisive(src, dst)
    error = (side.error or "failed").removeprefix("peer: ")
    if side.phase and not error.startswith(f"{side.phase}:"):
        error = f"{side.phase}: {error}"
    lost = next((s for s in (src, dst) if s.gone and s.error != side.error), None)
    if lost is not None:
        # The loss of a peer, as seen by this side, does not explain the loss.
        error = f"{error}; {lost.error}"
    kind = (lost or side).kind
    wrong = kind is ErrorKind.VERIFY
    return Verdict.WRONG if wrong else Verdict.TIMEOUT if side.timeout else Verdict.FAILED, error, kind


def _extra(dst_side: Side, asked: int | None, kind: ErrorKind | None) -> Extra:
    """Return further results of a direction: requested size, rate of both directions at once, message times."""
    extra: Extra = {} if kind is None else {"error_kind": kind.value}
    if asked is not None and dst_side.bytes is not None and dst_side.bytes != asked:
        extra["asked_bytes"] = asked
    if dst_side.both_rate is not None:
        extra["both_ways"] = dst_side.both_rate / 1e9
    if dst_side.times is not None:
        extra["times"] = msgspec.to_builtins(dst_side.times)
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
    ctas: int | None = None,
) -> list[Measurement]:
    """Return the measurements of one direction of a pair: its bandwidth, and its latency if there is one."""
    transport = src_side.transport or dst_side.transport
    raw = "\n".join(
        f"[{name}]\n{side.raw}" for name, side in ((src, src_side), (dst, dst_side)) if side.raw is not None
    )
    verdict, error, kind = _judge(src_side, dst_side)
    made = verdict is not Verdict.INCONCLUSIVE and (src_side.made or dst_side.made)
    rate = dst_side.rate if verdict is Verdict.OK else None
    addresses = src_side.src_addr or dst_side.src_addr, dst_side.dst_addr or src_side.dst_addr
    extra = _extra(dst_side, asked, kind)
    if ctas is not None:
        extra["ctas"] = ctas
    rows = [
        Measurement(
            Layer.P2P,
            src,
            dst,
            verdict,
            None if rate is None else rate / 1e9,
            "GB/s",
            dst_side.bytes or src_side.bytes,
            time,
            how,
            transport,
            *addresses,
            attempts,
            error,
            made,
            raw or None,
            extra or None,
        )
    ]
    latency = src_side.latency if src_side.latency is not None else dst_side.latency
    if verdict is Verdict.OK and latency is not None:
        how, value = f"{how}; half of the median round trip of 8 bytes", latency * 1e6
        rows.append(
            Measurement(Layer.LATENCY, src, dst, verdict, value, "us", 8, time, how, transport, *addresses, attempts)
        )
    return rows
