"""Measurements: values with verdict, unit, message size, time and method."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from fabtui.model.layers import Layer
from fabtui_node.parsers.lines import bytes_text
from fabtui_node.protocol import ErrorKind

#: Units of values: 1e9 bytes a second, times, bytes, shares; "" where there is no value.
UNITS = frozenset(("", "GB/s", "us", "ms", "B", "%"))

#: Bound of numbers, far below the overflow of floats.
MAX_NUMBER = 1e100
Integer = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)]
#: JSON keeps apart whole numbers and others.
Number = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)] | Integer
#: Last second of the year 9999, the limit of calendars, in seconds since the epoch.
_MAX_TIME = 253_402_300_799
EpochSeconds = Annotated[float, Meta(ge=0, le=_MAX_TIME)] | Annotated[int, Meta(ge=0, le=_MAX_TIME)]


#: Errors of tests as fabtui writes them; until version 0.2, recordings call them failed, and 0.1 gave no kind.
_OURS = re.compile(
    r"(?:peer: )?verify: |\d{1,15} (?:of \d{1,15} )?(?:bytes|values|elements)"
    r"(?: of the result)?(?: checked around offset \d{1,15})? (?:(?:are|is) )?wrong|the first message is wrong"
    r"|message \d{1,9} of \d{1,9} carries the number -?\d|the data that \S{1,200} sent at the same time is wrong"
)
_AMOUNT = re.compile(r"(\d{1,15}) (?:of (\d{1,15}) )?(byte|value|element)s?\b")
_CHECKED = re.compile(
    r"(\d{1,15} bytes?) wrong in the (\S{1,20} \w{1,3}) that were checked(?: \(message ([^()]{1,30})\))?"
)


class Verdict(StrEnum):
    """Result of a test. It is separate from the value: a timeout is never 0 GB/s."""

    UNTESTED = "untested"
    OK = "ok"
    SKIPPED = "skipped"
    INCONCLUSIVE = "inconclusive"
    SLOW = "slow"
    TIMEOUT = "timeout"
    FAILED = "failed"
    #: Data arrived, and is not what was sent.
    WRONG = "wrong"

    @property
    def bad(self) -> bool:
        """Return True if a test with this verdict found a problem."""
        return self is Verdict.SLOW or self in DEAD

    @property
    def words(self) -> str:
        """Its name for people: ``timed out``, ``wrong data``."""
        return _WORDS.get(self, self.value)


#: Verdicts of tests without a usable result.
DEAD: tuple[Verdict, ...] = (Verdict.TIMEOUT, Verdict.FAILED, Verdict.WRONG)
#: From best to worst, for taking the worst of several.
SEVERITY: tuple[Verdict, ...] = (
    Verdict.UNTESTED,
    Verdict.OK,
    Verdict.SKIPPED,
    Verdict.INCONCLUSIVE,
    Verdict.SLOW,
    *DEAD,
)

_WORDS = {Verdict.TIMEOUT: "timed out", Verdict.WRONG: "wrong data"}
_VERDICTS = {verdict.value: verdict for verdict in Verdict}
_RANK = {verdict: rank for rank, verdict in enumerate(SEVERITY)}


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of some verdicts; ``untested`` for none."""
    return max(verdicts, key=_RANK.__getitem__, default=Verdict.UNTESTED)


#: More of what a test learnt, by name: its layer decides which names there are.
Extra = dict[str, Any]


def is_wrong_data(error: str | None, extra: Mapping[str, Any] | None) -> bool:
    """Return True if an error of a test of fabtui is about wrong data."""
    kind = (extra or {}).get("error_kind")
    if kind is not None:
        return bool(kind == ErrorKind.VERIFY.value)
    return error is not None and _OURS.match(error) is not None


def wrong_amount(error: str | None, size: int | None) -> str:
    """Return how much of what was checked was wrong: ``1 byte wrong in the 1 MiB checked (message 256 MiB)``.

    ``size``: bytes of the message, which errors of earlier versions lack; "" if the error has no amount.
    """
    text = (error or "")[:500]
    if now := _CHECKED.search(text):
        return f"{now[1]} wrong in the {now[2]} checked" + (f" (message {now[3]})" if now[3] else "")
    if (match := _AMOUNT.search(text)) is None:
        return ""
    amount, of = f"{int(match[1]):,} {match[3]}{'' if int(match[1]) == 1 else 's'} wrong", int(match[2] or 0)
    if not of:
        return amount
    whole = f" (message {bytes_text(size)})" if size is not None and size > of else ""
    return f"{amount} in the {bytes_text(of)} checked{whole}" if match[3] == "byte" else f"{amount} of {of:,}"


class Reduced(NamedTuple):
    """A message that was smaller than requested, because its path is so slow."""

    bytes: int  #: Its size.
    asked: int  #: The requested size.
    seconds: float  #: Time that a message of the requested size would take at its rate.


# A frozen class takes three times as long to make an object.
@dataclass(slots=True, repr=False, eq=False)
class Measurement:
    """One measured value, or one failed attempt to measure it; it is never changed."""

    layer: Layer  #: What was measured.
    src: str  #: Source: an endpoint (``n060:3``), a node (``n060``) or ``all``.
    dst: str  #: Destination, likewise.
    verdict: Verdict  #: Verdict of the test itself; the model judges slowness against the class later.
    value: Number | None = None  #: The value in ``unit``, or None when there is none.
    unit: str = ""  #: One of `UNITS`.
    bytes: Integer | None = None  #: The message size, or None.
    time: EpochSeconds = 0.0  #: When it was obtained, seconds since the epoch.
    how: str = ""  #: How it was obtained, for example ``nccl 2.28.9, 20 x ncclSend/ncclRecv, CUDA events``.
    transport: str | None = None  #: The path that was really used, for example ``P2P/CUMEM``, or None when unknown.
    src_addr: str | None = None  #: The source's address, or RDMA port (``mlx5_0:1``), or None.
    dst_addr: str | None = None  #: The destination's, likewise.
    attempts: Integer = 1  #: How many attempts there were up to this one.
    error: str | None = None  #: What went wrong, or None.
    made: bool = False  #: Whether a lab fault made it so.
    raw: str | None = None  #: The text it was read from, or None.
    extra: Extra | None = None  #: More of what was learnt (loss of a ping, algbw, wrong elements).
    #: The arm of an A/B comparison it belongs to (``NCCL_P2P_DISABLE=1``); None for the first, and without one.
    arm: str | None = None

    def __repr__(self) -> str:
        values = zip(FIELDS, _values(self), strict=True)
        return f"Measurement({', '.join(f'{name}={value!r}' for name, value in values)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Measurement):
            return NotImplemented
        return _values(self) == _values(other)

    @property
    def asked_bytes(self) -> int | None:
        """Requested message size; a slow path may have been tested with less."""
        return (self.extra or {}).get("asked_bytes", self.bytes)

    @property
    def reduced(self) -> Reduced | None:
        """Return how much less than requested was sent; None if all of it was, nothing arrived, or the lab chose it."""
        asked, size = self.asked_bytes, self.bytes
        if self.made or self.unit != "GB/s" or not self.value or not asked or not size or size >= asked:
            return None
        each = (self.extra or {}).get("seconds") or size / self.value / 1e9
        return Reduced(size, asked, asked / size * each)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, without what is None."""
        # Only ``made`` may be False.
        return {
            name: value
            for name, value in zip(FIELDS, _values(self), strict=True)
            if value is not None and value is not False
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Measurement:
        """Return the measurement of a JSON object made by `to_json`.

        Raises:
            ValueError: The object is not one.
        """
        try:
            known = {name: value[name] for name in FIELDS if name in value}
            # Looked up in a dict: an enumeration takes a microsecond to find a member.
            known["layer"], known["verdict"] = Layer(known["layer"]), _VERDICTS[known["verdict"]]
            if known["verdict"] is Verdict.FAILED and is_wrong_data(known.get("error"), known.get("extra")):
                # A recording made before there was a verdict for it.
                known["verdict"] = Verdict.WRONG
            if known.get("unit", "") not in UNITS:
                raise ValueError("unknown unit")
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a measurement: {error}") from None


#: Names of the fields of a measurement.
FIELDS = tuple(one.name for one in fields(Measurement))
_values = attrgetter(*FIELDS)
