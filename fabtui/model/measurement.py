"""Measurements: values with verdict, unit, message size, time and method."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from fabtui.model.layers import Layer

#: Units of values: 1e9 bytes a second, times, bytes, shares; "" where there is no value.
UNITS = frozenset(("", "GB/s", "us", "ms", "B", "%"))


class Verdict(StrEnum):
    """Result of a test. It is separate from the value: a timeout is never 0 GB/s."""

    UNTESTED = "untested"
    OK = "ok"
    SKIPPED = "skipped"
    INCONCLUSIVE = "inconclusive"
    SLOW = "slow"
    TIMEOUT = "timeout"
    FAILED = "failed"

    @property
    def bad(self) -> bool:
        """Return True if a test with this verdict found a problem."""
        return self in (Verdict.SLOW, Verdict.FAILED, Verdict.TIMEOUT)


#: From best to worst, for taking the worst of several.
SEVERITY: tuple[Verdict, ...] = (
    Verdict.UNTESTED,
    Verdict.OK,
    Verdict.SKIPPED,
    Verdict.INCONCLUSIVE,
    Verdict.SLOW,
    Verdict.TIMEOUT,
    Verdict.FAILED,
)

_VERDICTS = {verdict.value: verdict for verdict in Verdict}
_RANK = {verdict: rank for rank, verdict in enumerate(SEVERITY)}


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of some verdicts; ``untested`` for none."""
    return max(verdicts, key=_RANK.__getitem__, default=Verdict.UNTESTED)


class TextSource(Protocol):
    """Source of raw texts and extras, which are read on first access."""

    def read(self, place: int) -> tuple[str | None, dict[str, Any] | None]:
        """Return raw text and extras."""


class _Stored:
    """Lazy raw text and extras of a stored measurement."""

    __slots__ = ("_asked", "_place", "_texts")

    _texts: TextSource | None
    _place: int | None
    _asked: int | None

    if not TYPE_CHECKING:
        # Type checkers should know the fields, and no others.

        def __getattr__(self, name: str) -> Any:
            # Called for fields that are not set.
            if name == "_place":
                return None
            if name not in ("raw", "extra") or self._place is None:
                raise AttributeError(name)
            raw, extra = (None, None) if self._texts is None else self._texts.read(self._place)
            object.__setattr__(self, "raw", raw)
            object.__setattr__(self, "extra", extra)
            return raw if name == "raw" else extra


@dataclass(frozen=True, slots=True)
class Measurement(_Stored):
    """One measured value, or one failed attempt to measure it.

    Attributes:
        layer: What was measured.
        src: Source: an endpoint (``n060:3``), a node (``n060``) or ``all``.
        dst: Destination, likewise.
        verdict: Verdict of the test itself; the model judges slowness against the class later.
        value: The value in ``unit``, or None when there is none.
        unit: One of `UNITS`.
        bytes: The message size, or None.
        time: When it was obtained, seconds since the epoch.
        how: How it was obtained, for example ``nccl 2.28.9, 20 x ncclSend/ncclRecv, CUDA events``.
        transport: The path that was really used, for example ``P2P/CUMEM``, or None when unknown.
        src_addr: The source's address, or RDMA port (``mlx5_0:1``), or None.
        dst_addr: The destination's, likewise.
        attempts: How many attempts there were up to this one.
        error: What went wrong, or None.
        made: Whether a lab fault made it so.
        raw: The text it was read from, or None.
        extra: More of what was learnt (loss of a ping, algbw, wrong elements).
        arm: The arm of an A/B comparison it belongs to (``NCCL_P2P_DISABLE=1``); None for the first, and without one.
    """

    layer: Layer
    src: str
    dst: str
    verdict: Verdict
    value: float | None = None
    unit: str = ""
    bytes: int | None = None
    time: float = 0.0
    how: str = ""
    transport: str | None = None
    src_addr: str | None = None
    dst_addr: str | None = None
    attempts: int = 1
    error: str | None = None
    made: bool = False
    raw: str | None = None
    extra: dict[str, Any] | None = None
    arm: str | None = None

    @property
    def asked_bytes(self) -> int | None:
        """Requested message size; a slow path may have been tested with less."""
        if self._place is not None:
            return self._asked
        return (self.extra or {}).get("asked_bytes", self.bytes)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, without what is None."""
        return {
            name: value
            for name in self.__slots__
            if (value := getattr(self, name)) is not None and not (name == "made" and not value)
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Measurement:
        """Return the measurement of a JSON object made by `to_json`.

        Raises:
            ValueError: The object is not one.
        """
        try:
            known = {name: value[name] for name in cls.__slots__ if name in value}
            # Looked up in a dict: an enumeration takes a microsecond to find a member.
            known["layer"], known["verdict"] = Layer(known["layer"]), _VERDICTS[known["verdict"]]
            if known.get("unit", "") not in UNITS:
                raise ValueError("unknown unit")
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a measurement: {error}") from None

    @classmethod
    def stored(cls, texts: TextSource | None, place: int, asked: int | None, *fields: Any) -> Measurement:
        """Return a measurement whose raw text and extras are read at their place when they are asked for.

        ``asked`` is the requested message size, ``fields`` are all other fields in their order.
        """
        found = object.__new__(cls)
        for put, field in zip(_SETTERS, (texts, place, asked, *fields), strict=True):
            put(found, field)
        return found


#: Setters of the slots of a measurement, which is frozen.
_SETTERS = tuple(
    getattr(owner, name).__set__
    for owner, names in ((_Stored, ("_texts", "_place", "_asked")), (Measurement, Measurement.__slots__))
    for name in names
    if name not in ("raw", "extra")
)
