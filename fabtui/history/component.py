"""Components of a fabric by the identity of their hardware, so that renames and swaps keep their history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PartKind(StrEnum):
    """Kind of a component whose course is kept."""

    NODE = "node"  #: By its machine id.
    GPU = "gpu"  #: By its UUID.
    NVLINK = "nvlink"  #: One link of a GPU: the UUID of the GPU, and the index of the link.
    PORT = "port"  #: RDMA port of a node, by its port GUID.
    CABLE = "cable"  #: Cable or module in a port, by its serial number.
    SWITCH_PORT = "switch-port"  #: Port of a switch: GUID of the switch, and number of the port.

    @property
    def words(self) -> str:
        """Name of the kind in sentences."""
        special = {PartKind.GPU: "GPU", PartKind.NVLINK: "NVLink", PartKind.SWITCH_PORT: "switch port"}
        return special.get(self, str(self))


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """A component, with the place where it was seen last."""

    kind: PartKind  #: Kind of component.
    identity: str  #: Identity of the hardware; the place if `by_name`.
    #: Where it was seen last, in the names of the session: ``n061``, ``n061:3``, ``n061:3 link 7``, ``n061 mlx5_0/1``.
    place: str = ""
    by_name: bool = False  #: Whether no hardware identity is known: another part at this place would be taken for it.

    @property
    def key(self) -> tuple[PartKind, str]:
        """Kind and identity, which name it in all sessions."""
        return self.kind, self.identity

    @property
    def node(self) -> str:
        """Node of the place; "" for a port of a switch."""
        return "" if self.kind is PartKind.SWITCH_PORT else node_at(self.place)

    def __str__(self) -> str:
        return self.place or self.identity


def node_at(place: str) -> str:
    """Return the node of a place in it: ``n061`` of ``n061:3`` and of ``n061 mlx5_0/1``."""
    return place.partition(" ")[0].partition(":")[0]
