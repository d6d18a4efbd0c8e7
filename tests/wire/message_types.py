"""Types of the messages that a node sends, and the check of a message against its type."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, TypedDict, Union, get_args, get_origin, get_type_hints

#: A value of a probe, or its arguments.
Value = dict[str, Any]


class RankEnvelope(TypedDict):
    """``rank``: a message to or from the rank host."""

    t: str
    m: Value


class Hello(TypedDict):
    """``hello``: first message of the supervisor."""

    t: str
    protocol: int
    pid: int
    python: str
    host: str
    gpus: bool


class HeartbeatEcho(TypedDict):
    """``hb``: echo of a heartbeat; ``rank`` is True while a rank host runs."""

    t: str
    n: int
    rank: bool


class ErrorInfo(TypedDict):
    """Error of a probe; ``kind`` is an `ErrorKind`."""

    kind: str
    text: str


class ProbePart(TypedDict):
    """``part``: partial value of a probe."""

    t: str
    id: int
    value: Value


class ProbeResult(TypedDict, total=False):
    """``result``: final value of a probe, or its error."""

    t: str
    id: int
    ok: bool
    value: Value
    error: ErrorInfo


class Spawned(TypedDict):
    """``spawned``: the rank host was started."""

    t: str
    pid: int
    python: str


class Exit(TypedDict, total=False):
    """``exit``: the rank host ended; ``why``: the kernel killed it for lack of memory."""

    t: str
    code: int | None
    signal: int | None
    stderr: str
    why: str


class Stopped(TypedDict):
    """``stopped``: the process of the rank host was stopped (``on``) or continued."""

    t: str
    on: bool


class LogLine(TypedDict):
    """``log``: a line that a process on the node printed."""

    t: str
    text: str


class RankState(TypedDict):
    """State of a rank after ``init``."""

    rank: int
    ok: bool
    error: str | None
    error_kind: str | None


class Ready(TypedDict):
    """``ready``: the ranks were started; ``port`` greets the TCP checks of other nodes."""

    op: str
    engine: str
    version: str
    port: int
    seconds: dict[str, float]
    ranks: list[RankState]


class InitFailed(TypedDict):
    """``failed``: the ranks could not be started; ``stage`` is init, listen, import or timeout."""

    op: str
    stage: str
    error: str
    error_kind: str


class ReachReport(TypedDict):
    """``reach``: result of a TCP check."""

    op: str
    node: str
    ok: bool
    timeout: bool
    seconds: float
    error: str | None
    error_kind: str | None


class Times(TypedDict):
    """Durations (s) of single messages."""

    count: int
    min: float
    median: float
    p99: float
    max: float


class ReportVerdict(TypedDict):
    """Part of every report on a test; ``phase`` is connect, transfer or verify."""

    op: str
    id: int
    ok: bool
    timeout: bool
    phase: str
    error: str | None
    error_kind: str | None
    raw: str | None


class PairReport(ReportVerdict):
    """``side``: one direction of a pair, as seen by its source or destination (``role``)."""

    src: int
    dst: int
    role: str
    made: bool
    bytes: int
    rate: float | None
    latency: float | None
    times: Times | None
    transport: str | None
    src_addr: str | None
    dst_addr: str | None
    both_rate: float | None
    held: int | None


class ReducedReport(ReportVerdict):
    """``reduced``: one size of a collective at one rank."""

    rank: int
    kind: str
    bytes: int
    tested: int | None
    sent: int | None
    seconds: float | None
    fastest: float | None
    wrong: int
    transport: str | None
    algorithm: str | None
    rings: list[list[int]]


class WorldRows(TypedDict):
    """``rows``: transfers of one rank within the world's communicator, while others are in progress."""

    op: str
    id: int
    rank: int
    channels: int | None
    rows: list[list[Any]]


class WorldReport(ReportVerdict):
    """``worlded``: the transfers of one rank that were not reported as ``rows``."""

    rank: int
    seconds: dict[str, float | None]
    channels: int | None
    at: list[int] | None
    rows: list[list[Any]]


class RestedReport(TypedDict):
    """``rested``: a rank has released what tests left."""

    op: str
    id: int
    rank: int
    error: str | None
    error_kind: str | None


class Free(TypedDict):
    """``free``: a rank has finished a test."""

    op: str
    id: int
    rank: int


class Alive(TypedDict):
    """``alive``: a request for a sign of life, and its echo."""

    op: str
    n: int


class StoreRequest(TypedDict, total=False):
    """``store``: an operation of the key-value store; one with ``q`` is answered with it, ``value`` and ``error``."""

    op: str
    q: int
    cmd: str
    key: str | list[str] | None
    value: str | int | None
    expected: str | None
    peer: str
    timeout: float


class Loaded(TypedDict):
    """``loaded``: libraries and driver are loaded; the ranks are started next."""

    op: str


#: Types of what a node sends, by ``t``.
FROM_NODE: Mapping[str, type[Any]] = {
    "hello": Hello,
    "hb": HeartbeatEcho,
    "part": ProbePart,
    "result": ProbeResult,
    "spawned": Spawned,
    "exit": Exit,
    "stopped": Stopped,
    "log": LogLine,
    "rank": RankEnvelope,
}

#: Types of what a rank host sends, by ``op``.
FROM_RANKS: Mapping[str, type[Any]] = {
    "loaded": Loaded,
    "ready": Ready,
    "failed": InitFailed,
    "reach": ReachReport,
    "side": PairReport,
    "reduced": ReducedReport,
    "rows": WorldRows,
    "worlded": WorldReport,
    "rested": RestedReport,
    "free": Free,
    "alive": Alive,
    "store": StoreRequest,
}

_hints: dict[type[Any], dict[str, Any]] = {}


def mismatch(message: Mapping[str, Any], kind: type[Any]) -> str | None:
    """Return the first field of a message that is missing or of the wrong type; None if the message is valid.

    Further fields are allowed: a newer node may send them.

    Args:
        message: A decoded message.
        kind: One of the types above.
    """
    hints = _hints.get(kind)
    if hints is None:
        hints = _hints[kind] = get_type_hints(kind)
    required = kind.__total__
    for name, hint in hints.items():
        if name not in message:
            if required:
                return name
        elif not _is_valid(message[name], hint):
            return name
    return None


def _is_valid(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_is_valid(value, one) for one in arguments)
    if origin is list:
        return isinstance(value, list) and all(_is_valid(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_valid(one, arguments[1]) for one in value.values())
    if hasattr(hint, "__total__"):
        return isinstance(value, dict) and mismatch(value, hint) is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
