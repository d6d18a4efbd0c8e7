"""Order for a standing lab: its folder, nodes, rails and ranks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

#: The socket in the folder of a lab that takes requests.
SOCKET = "control"


@dataclass(frozen=True, slots=True)
class Order:
    """Order for a standing lab.

    Attributes:
        folder: Where its files lie.
        nodes: Number of nodes.
        rails: Number of rails; 0: loopback addresses, without network namespaces.
        endpoints: Number of CPU ranks of each node.
    """

    folder: str
    nodes: int
    rails: int
    endpoints: int

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Order:
        """Return the order of a line."""
        return cls(**json.loads(text))
