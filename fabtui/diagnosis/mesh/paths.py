"""What the mesh is made of: one way from an address to another, what is known of it, and findings about several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fabtui.diagnosis.mesh.scopes import Way
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

DEAD = (Verdict.TIMEOUT, Verdict.FAILED)


class Subject(StrEnum):
    """What a finding is about."""

    CUT = "cut"
    MTU = "mtu"
    FIREWALL = "firewall"
    ECHO = "echo"
    LOSS = "loss"
    LATE = "late"


class MeshFinding(NamedTuple):
    """A named cause.

    Attributes:
        subject: What it is about.
        text: What is wrong, on one line.
        nodes: The nodes it is about, in the order of the user; many where it is about a rail.
        evidence: What says so, a line each.
        next: The next command to type, or "".
        cells: The bad measurements it explains: layer, nodes and addresses of each.
    """

    subject: Subject
    text: str
    nodes: tuple[str, ...]
    evidence: tuple[str, ...]
    next: str
    cells: frozenset[tuple[Layer, Way]]


def key_of(measurement: Measurement) -> tuple[Layer, Way]:
    """Return what names a measurement among those of the mesh."""
    return measurement.layer, Way(
        measurement.src, measurement.src_addr or "", measurement.dst, measurement.dst_addr or ""
    )


@dataclass(slots=True)
class Found:
    """What was measured of one way, layer by layer."""

    ping: Measurement | None = None
    mtu: Measurement | None = None
    udp: Measurement | None = None
    tcp: Measurement | None = None

    def of(self, layer: Layer) -> Measurement | None:
        """Return what was measured in a layer of the mesh."""
        found: Measurement | None = getattr(self, str(layer))
        return found

    @property
    def no_echo(self) -> bool:
        """Whether no echo came back."""
        return self.ping is not None and self.ping.verdict in DEAD

    @property
    def lossy(self) -> bool:
        """Whether some packets were lost, and not all."""
        slow = [m for m in (self.ping, self.mtu, self.udp) if m is not None and m.verdict is Verdict.SLOW]
        return any(not does_not_pass(m) for m in slow)

    @property
    def echo(self) -> bool:
        """Whether echoes came back, some at least."""
        return self.ping is not None and self.ping.verdict in (Verdict.OK, Verdict.SLOW)

    @property
    def arrived(self) -> bool | None:
        """Whether small datagrams arrived; None: not known."""
        if self.udp is not None and self.udp.verdict is Verdict.OK:
            return True
        counts: Any = (self.udp.extra or {}) if self.udp is not None else {}
        if self.udp is None or not isinstance(counts.get("arrived"), dict):
            return None
        return bool(counts["arrived"].get("small"))

    @property
    def big_arrived(self) -> bool | None:
        """Whether datagrams that fill the MTU arrived; None: not known, or none were sent."""
        if self.udp is not None and self.udp.verdict is Verdict.OK:
            return True if self.udp.bytes else None
        counts: Any = (self.udp.extra or {}) if self.udp is not None else {}
        if not isinstance(counts.get("sent"), dict) or not isinstance(counts.get("arrived"), dict):
            return None
        if not counts["sent"].get("big"):
            return False if self.udp is not None and self.udp.verdict is Verdict.FAILED else None
        return bool(counts["arrived"].get("big"))


def does_not_pass(m: Measurement) -> bool:
    """Say whether an echo that fills the MTU does not pass at all."""
    return m.layer is Layer.MTU and m.verdict.bad and bool((m.extra or {}).get("loss") == 100.0 or m.verdict in DEAD)
