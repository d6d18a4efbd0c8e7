"""Endpoints of nodes, and the configuration of their ranks, from their inventories."""

from __future__ import annotations

import contextlib
import ipaddress
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabtui.model.endpoints import Endpoint, is_index
from fabtui.model.facts.node_view import Entry, dicts, number
from fabtui.sanitize import one_line
from fabtui_node.system import limits

#: Maximum number of endpoints per node.
MAX_ENDPOINTS = 64


@dataclass(slots=True)
class Admission:
    """Contribution of a node to the sweep."""

    endpoints: list[Endpoint]  #: Its rows; one of kind ``none`` if it has nothing to test.
    note: str = ""  #: Why it has nothing to test, or "".
    argv: list[str] | None = None  #: The interpreter for its rank host, or None to let the node choose.
    library: str | None = None  #: Its NCCL library, or None to let the rank host search.
    #: Limits of the login that ranks do not work with, as the end of an error message, or "".
    limits: str = ""
    #: Numbers of endpoints that other processes use, with these processes.
    busy: dict[int, str] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)  #: Free memory (bytes) of the GPUs of endpoints, where known.
    reported: frozenset[str] = frozenset()  #: All addresses that the node reported, in their usual form.
    unaddressed: str = ""  #: Why no endpoint has an address, and what to do; "" if one has.

    @property
    def testable(self) -> bool:
        return any(end.kind != "none" for end in self.endpoints)

    def keep(self, known: list[Endpoint]) -> None:
        """Take earlier endpoints of the node, which results refer to, in place of its own.

        What is known about GPUs follows them by index: one may be missing now, or be there for the first time.
        """
        numbers = {end.index: end.number for end in known}
        now = {end.number: numbers[end.index] for end in self.endpoints if end.index in numbers}
        self.busy = {now[number]: users for number, users in self.busy.items() if number in now}
        self.free = {now[number]: size for number, size in self.free.items() if number in now}
        self.endpoints = known


def engine_for(inventories: Mapping[str, Entry]) -> tuple[str, str]:
    """Return the engine of a sweep, ``nccl`` if nodes have usable GPUs, and a note for the log, or "".

    One node with GPUs among several without leaves nothing to test between nodes; and it may be mistaken.
    """
    having = [node for node, inventory in inventories.items() if _gpus(inventory)]
    if len(having) == 1 and len(inventories) > 2:
        return "gloo", f"{having[0]} alone reports GPUs: CPU ranks test all nodes; --engine nccl tests its GPUs"
    return ("nccl" if having else "gloo"), ""


def _gpus(inventory: Entry) -> list[Entry]:
    return [gpu for gpu in dicts(inventory.get("gpus")) if is_index(gpu.get("index"))][:MAX_ENDPOINTS]


def absent(node: str, number: int, why: str) -> Admission:
    """Return the admission of a node that has nothing to test: one row with the reason."""
    return Admission([Endpoint(number, node, 0, kind="none")], why)


def admit(
    node: str, inventory: Entry, first: int, engine: str, ranks_per_node: int | None, remote_python: str | None
) -> Admission:
    """Return the admission of a node; its endpoints are numbered from ``first``."""
    if engine == "nccl":
        admission = _admit_gpus(node, inventory, first, remote_python)
    else:
        admission = _admit_cpu(node, inventory, first, ranks_per_node, remote_python)
    if admission.testable and not any(end.address for end in admission.endpoints):
        admission.unaddressed = _why_unaddressed(node, inventory)
    admission.limits = one_line(limits.explain(inventory.get("limits") or {}, bool(_gpus(inventory))), 400)
    admission.reported = _reported(inventory)
    return admission


def _reported(inventory: Entry) -> frozenset[str]:
    addresses = set()
    for entry in (entry for nic in dicts(inventory.get("nics")) for entry in dicts(nic.get("addresses"))):
        with contextlib.suppress(ValueError):
            addresses.add(str(ipaddress.ip_address(str(entry.get("address")))))
    return frozenset(addresses)


def _why_unaddressed(node: str, inventory: Entry) -> str:
    """Return why the ranks of a node have no address to be reached at, and what to do."""
    down = {_text(entry.get("nic")) or "?": entry for entry in dicts(inventory.get("down_addresses"))}
    if not down:
        nics = ", ".join(_text(nic.get("name")) or "?" for nic in dicts(inventory.get("nics"))[:6]) or "none"
        text = f"{node} has no address for its ranks: no interface carries data (it has {nics}); give one an address"
        return one_line(text, 400)
    rails = {nic: f"rail {rail} " if is_index(rail := entry.get("rail")) else "" for nic, entry in down.items()}
    names = ", ".join(f"{rails[nic]}({nic} {_text(entry.get('address')) or '?'})" for nic, entry in down.items())
    todo = f"ip link set {shlex.quote(next(iter(down)))} up, or check its cable and switch port"
    return one_line(
        f"{node} has no address for its ranks: {names} {'is' if len(down) == 1 else 'are'} down; {todo}", 400
    )


def _text(value: Any, limit: int = 80) -> str | None:
    return one_line(value, limit) if isinstance(value, str) and value else None


def _admit_gpus(node: str, inventory: Entry, first: int, remote_python: str | None) -> Admission:
    gpus = _gpus(inventory)
    if not gpus:
        reason = _text(inventory.get("nvml_error"), 200)
        return absent(node, first, f"no GPU to test on {node}" + (f": {reason}" if reason else ""))
    nics = {str(nic.get("rdma") or nic.get("name")): nic for nic in dicts(inventory.get("nics"))}
    data = dicts(inventory.get("data_addresses"))
    admission = Admission([], argv=[remote_python] if remote_python else None, library=_nccl_library(inventory))
    for offset, gpu in enumerate(gpus):
        nic = _text(gpu.get("nic"))
        record = nics.get(nic or "") or {}
        own = next((entry for entry in data if nic and entry.get("nic") in (nic, record.get("name"))), None)
        if own is None and not record.get("rdma"):
            # The closest NIC carries no test traffic (a management NIC, a lab): nothing is shared over it.
            nic = None
        entry = own or (data[0] if data else None)
        rail = own.get("rail") if own else None
        admission.endpoints.append(
            Endpoint(
                first + offset,
                node,
                gpu["index"],
                kind="gpu",
                name=_text(gpu.get("name")) or "GPU",
                uuid=_text(gpu.get("uuid")),
                bus=_text(gpu.get("bus"), 40),
                nic=nic,
                rail=rail if is_index(rail) else None,
                address=_text(entry.get("address")) if entry else None,
            )
        )
        total, used = number(gpu.get("memory")), number(gpu.get("memory_used"))
        if total is not None and used is not None:
            admission.free[first + offset] = int(max(0, total - used))
        if users := dicts(gpu.get("processes")):
            admission.busy[first + offset] = "; ".join(_user(user) for user in users[:4])
    admission.endpoints = _with_rails(admission.endpoints)
    return admission


def _with_rails(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Return the GPUs of a node with rails by the order of their NICs, where GPUs share NICs without addresses.

    Where each GPU has a NIC of its own, its index does as well.
    """
    nics = list(dict.fromkeys(end.nic for end in endpoints))
    if None in nics or len(nics) == len(endpoints) or any(end.rail is not None for end in endpoints):
        return endpoints
    return [replace(end, rail=nics.index(end.nic)) for end in endpoints]


def _user(process: Entry) -> str:
    name, owner = _text(process.get("name"), 60) or "a process", _text(process.get("user"), 30)
    return f"{name} (pid {process.get('pid', '?')}{f', user {owner}' if owner else ''})"


def _nccl_library(inventory: Entry) -> str | None:
    paths = [python.get("nccl") for python in dicts(inventory.get("pythons"))]
    paths += [library.get("path") for library in dicts(inventory.get("nccl"))]
    return next((path for path in paths if isinstance(path, str)), None)


def _admit_cpu(
    node: str, inventory: Entry, first: int, ranks_per_node: int | None, remote_python: str | None
) -> Admission:
    pythons = dicts(inventory.get("pythons"))
    having = (p for p in pythons if p.get("torch") and isinstance(p.get("path"), str))
    python = remote_python or next((str(p["path"]) for p in having), None)
    if python is None:
        searched = ", ".join(str(p.get("path")) for p in pythons[:6]) or "nowhere"
        why = f"no GPU on {node}, and no Python with torch for CPU ranks (searched {searched})"
        limited = limits.explain(inventory.get("limits") or {})
        return absent(node, first, one_line(f"{why}{limited}; name one with --remote-python", 600))
    count = ranks_per_node or inventory.get("endpoints") or 1
    if not isinstance(count, int) or not 0 < count <= MAX_ENDPOINTS:
        count = 1
    return Admission([_cpu_rank(node, inventory, first + i, i) for i in range(count)], argv=[str(python)])


def _cpu_rank(node: str, inventory: Entry, number: int, index: int) -> Endpoint:
    """Return a CPU rank: ranks take the data rails in turn; where the rail of one is down it takes another."""
    data = [entry for entry in dicts(inventory.get("data_addresses")) if _text(entry.get("address"))]
    listed = [*data, *dicts(inventory.get("down_addresses"))]
    rails = sorted({rail for entry in listed if is_index(rail := entry.get("rail"))})
    own = [entry for entry in data if rails and entry.get("rail") == rails[index % len(rails)]]
    entry = own[0] if own else data[index % len(data)] if data else {}
    rail = entry.get("rail") if len(rails) > 1 else None
    return Endpoint(
        number,
        node,
        index,
        kind="cpu",
        name="CPU rank",
        nic=_text(entry.get("nic")) if len(rails) > 1 else None,
        rail=rail if is_index(rail) else None,
        address=_text(entry.get("address")),
    )
