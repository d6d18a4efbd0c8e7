"""Network interfaces that NCCL selects for its bootstrap and sockets, by its own rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabtui.model.facts.node_view import dicts, text

#: Maximum number of interfaces that NCCL uses.
MOST = 16
#: Interfaces that NCCL uses only if there are no others.
_LAST = ("docker", "lo", "virbr")


def candidates(nics: Any, indexes: Any = None) -> list[str]:
    """Return the interfaces that are up and have an address, in the order of the kernel's index.

    Args:
        nics: The ``nics`` of an inventory.
        indexes: Index of each interface, if known.
    """
    known = indexes if isinstance(indexes, Mapping) else {}
    found = [
        (place if isinstance(place := known.get(name), int) else 1 << 30, at, name)
        for at, nic in enumerate(dicts(nics))
        if (name := text(nic.get("name"))) and nic.get("state") != "down" and _has_address(nic)
    ]
    return [name for _, _, name in sorted(found)]


def _has_address(nic: Mapping[str, Any]) -> bool:
    addresses = [str(entry.get("address")) for entry in dicts(nic.get("addresses"))]
    return any(address != "::1" for address in addresses)


def chosen(names: Sequence[str], setting: str | None = None) -> list[str]:
    """Return the interfaces NCCL selects among those with an address.

    Args:
        names: The interfaces, in the kernel's order.
        setting: ``NCCL_SOCKET_IFNAME``: prefixes separated by commas; exact names after ``=``; exclusions after ``^``.
    """
    if setting:
        return [name for name in names if _matches(name, setting)][:MOST]
    infiniband = [name for name in names if name.startswith("ib")]
    if infiniband:
        return infiniband[:MOST]
    ordinary = [name for name in names if not name.startswith(_LAST)]
    if ordinary:
        return ordinary[:MOST]
    for prefix in _LAST:
        if found := [name for name in names if name.startswith(prefix)]:
            return found[:MOST]
    return []


def _matches(name: str, setting: str) -> bool:
    left_out = setting.startswith("^")
    wanted = setting.lstrip("^")
    exact = wanted.startswith("=")
    words = [word.partition(":")[0] for word in wanted.lstrip("=").split(",") if word]
    found = any(name == word if exact else name.startswith(word) for word in words)
    return found is not left_out
