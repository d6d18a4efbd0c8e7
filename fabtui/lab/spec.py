"""Shape of a lab: number of nodes, and of endpoints per node."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_NODES = 256
MAX_ENDPOINTS = 64

_EXPECTED = "expected 2x4 (nodes x endpoints) or 2,3 (endpoints of each node)"


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The shape of a lab.

    Attributes:
        endpoints: The number of endpoints of each node, in the order of the nodes.
    """

    endpoints: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> LabSpec:
        """Return the spec of a text like ``2x4`` or ``2,3``.

        Raises:
            ValueError: The text is not a shape, or exceeds the maximum; the message is one line.
        """
        shown = repr(text[:40])
        if product := re.fullmatch(r"\s*([0-9]{1,6})\s*[xX]\s*([0-9]{1,6})\s*", text, re.ASCII):
            nodes, each = int(product[1]), int(product[2])
            if nodes > MAX_NODES:
                raise ValueError(f"{shown}: {nodes} nodes are more than the {MAX_NODES} a lab may have")
            endpoints = (each,) * nodes
        elif re.fullmatch(r"\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*", text, re.ASCII):
            endpoints = tuple(int(word) for word in text.split(","))
            if len(endpoints) > MAX_NODES:
                raise ValueError(f"{shown}: {len(endpoints)} nodes are more than the {MAX_NODES} a lab may have")
        else:
            raise ValueError(f"{shown} is not the shape of a lab; {_EXPECTED}")
        if not endpoints:
            raise ValueError(f"{shown}: a lab has at least one node; {_EXPECTED}")
        for count in endpoints:
            if not 1 <= count <= MAX_ENDPOINTS:
                raise ValueError(f"{shown}: a node of a lab has 1 to {MAX_ENDPOINTS} endpoints, not {count}")
        return cls(endpoints)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes: n000, n001 and so on."""
        return tuple(f"n{number:03d}" for number in range(len(self.endpoints)))

    @property
    def nodes(self) -> dict[str, int]:
        """The number of endpoints by name of the node."""
        return dict(zip(self.names, self.endpoints, strict=True))
