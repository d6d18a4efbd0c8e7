"""Measurements between two addresses, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fabtui.diagnosis.finding import AddressPair
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

DEAD = (Verdict.TIMEOUT, Verdict.FAILED)


def address_pair(measurement: Measurement) -> AddressPair:
    """Return the ordered pair of addresses of a measurement."""
    return AddressPair(measurement.src, measurement.src_addr or "", measurement.dst, measurement.dst_addr or "")


@dataclass(slots=True)
class PathMeasurements:
    """Measurements of one ordered pair of addresses."""

    ping: Measurement | None = None
    mtu: Measurement | None = None
    udp: Measurement | None = None
    tcp: Measurement | None = None

    def of(self, layer: Layer) -> Measurement | None:
        """Return the measurement of a layer of the mesh."""
        found: Measurement | None = getattr(self, str(layer))
        return found

    @property
    def no_echo(self) -> bool:
        """Return True if no echo came back."""
        return self.ping is not None and self.ping.verdict in DEAD

    @property
    def lossy(self) -> bool:
        """Return True if some packets were lost, but not all."""
        slow = [m for m in (self.ping, self.mtu, self.udp) if m is not None and m.verdict is Verdict.SLOW]
        return any(not is_blocked(m) for m in slow)

    @property
    def echo(self) -> bool:
        """Return True if some echoes came back."""
        return self.ping is not None and self.ping.verdict in (Verdict.OK, Verdict.SLOW)

    @property
    def small_arrived(self) -> bool | None:
        """Return True if small datagrams arrived; None if unknown."""
        if self.udp is not None and self.udp.verdict is Verdict.OK:
            return True
        arrived = self._datagrams("arrived")
        return None if arrived is None else bool(arrived.get("small"))

    @property
    def large_arrived(self) -> bool | None:
        """Return True if datagrams that fill the MTU arrived; None if unknown or if none were sent."""
        if self.udp is not None and self.udp.verdict is Verdict.OK:
            return True if self.udp.bytes else None
        sent, arrived = self._datagrams("sent"), self._datagrams("arrived")
        if self.udp is None or sent is None or arrived is None:
            return None
        if not sent.get("big"):
            return False if self.udp.verdict is Verdict.FAILED else None
        return bool(arrived.get("big"))

    def _datagrams(self, name: str) -> dict[str, Any] | None:
        counts: Any = (self.udp.extra or {}).get(name) if self.udp is not None else None
        return counts if isinstance(counts, dict) else None


def is_blocked(m: Measurement) -> bool:
    """Return True if no echo that fills the MTU passes."""
    return m.layer is Layer.MTU and m.verdict.bad and bool((m.extra or {}).get("loss") == 100.0 or m.verdict in DEAD)
