"""One value with its verdict, unit, message size, time and how it was obtained."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from fabtui.model.layers import Layer


class Verdict(StrEnum):
    """What is known of a cell. A verdict and a value are two things: a timeout is never 0 GB/s."""

    UNTESTED = "untested"
    OK = "ok"
    SKIPPED = "skipped"
    INCONCLUSIVE = "inconclusive"
    SLOW = "slow"
    TIMEOUT = "timeout"
    FAILED = "failed"

    @property
    def bad(self) -> bool:
        """Whether this verdict says that something is wrong with what was tested."""
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


class Page(Protocol):
    """Where a model keeps measurements packed."""

    def raw(self, at: int) -> str | None:
        """Return the raw text of one."""

    def extra(self, at: int) -> dict[str, Any] | None:
        """Return what else was learnt with one."""

    def asked(self, at: int) -> int | None:
        """Return the message size that was asked for."""


class _Kept:
    """Where a measurement was unpacked from: what is long is unpacked from there when somebody looks at it."""

    __slots__ = ("_at", "_page")

    _at: int
    _page: Page | None

    if not TYPE_CHECKING:
        # Type checkers are to know the fields, and no others.

        def __getattr__(self, name: str) -> Any:
            # Comes here for what was not set.
            if name == "_page":
                return None
            if name not in ("raw", "extra") or self._page is None:
                raise AttributeError(name)
            value = getattr(self._page, name)(self._at)
            object.__setattr__(self, name, value)
            return value


@dataclass(frozen=True, slots=True)
class Measurement(_Kept):
    """One measured value, or one failed attempt to measure it.

    Attributes:
        layer: What was measured.
        src: Source: an endpoint (``n060:3``), a node (``n060``) or ``all``.
        dst: Destination, likewise.
        verdict: What the test itself says; slowness is judged against the class later, by the model.
        value: The value in ``unit``, or None when there is none.
        unit: ``GB/s`` (1e9 bytes a second), ``us``, ``ms``, ``B``, ``%``.
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
        """The message size that was asked for; a slow path may have been tested with less."""
        if self._page is not None:
            return self._page.asked(self._at)
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
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a measurement: {error}") from None

    @classmethod
    def kept(cls, page: Page, at: int, *fields: Any) -> Measurement:
        """Return one that is kept packed.

        Args:
            page: Where.
            at: Its place there.
            fields: All fields in their order, but ``raw`` and ``extra``, which are looked up when somebody asks.
        """
        found = object.__new__(cls)
        for put, field in zip(_PUTS, (page, at, *fields), strict=True):
            put(found, field)
        return found


#: What set the fields of one, frozen as it is.
_PUTS = tuple(
    getattr(owner, name).__set__
    for owner, names in ((_Kept, ("_page", "_at")), (Measurement, Measurement.__slots__))
    for name in names
    if name not in ("raw", "extra")
)
