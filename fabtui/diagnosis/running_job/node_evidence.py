"""Evidence from the nodes of late or silent ranks: kernel reports, RDMA ports and stacks, and the next command."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.running_job.who_is_behind import (
    JobPlace,
    RankStack,
    WhoIsBehind,
    grouped,
    rank_stacks,
    ranks_text,
)
from fabtui.model.facts.node_view import dicts, number, text
from fabtui.nodeset import count, fold

#: Maximum numbers of sentences about signs and about stacks.
_MOST_SIGNS = 4
_MOST_STACKS = 2
#: Bytes of files within a second from which a rank is at work on them.
FILE_WORK = 4 << 20
#: A command on a node as it is typed, from the node and the command.
Typed = Callable[[str, str], str]
_TITLES = {
    "gpu_lost": "GPU has fallen off the bus",
    "gpu_init": "the driver cannot initialise the GPU",
    "aer": "PCIe error",
    "iommu": "IOMMU fault",
    "machine_check": "machine check",
    "link_down": "link down",
    "module": "optical module",
    "nic_health": "adapter health",
    "nic_command": "adapter does not answer commands",
    "nic_power": "adapter lacks power",
    "nic_temperature": "adapter too hot",
    "oom": "out of memory",
}


class Sign(NamedTuple):
    """Report of a node that may explain why a rank is stuck."""

    place: str  #: Endpoint or node: ``n062:0``, ``n062 mlx5_3``.
    text: str  #: What and when: ``Xid 79 at 12:03: GPU has fallen off the bus``.
    kind: str  #: Its kind in the kernel's log, or ``port``.
    code: int | None  #: The number of an Xid, or None.
    device: str  #: The interface or GPU index that the next command inspects; "" if unknown.
    own: bool  #: True if it is about a GPU of a late rank.


class NodeEvidence(NamedTuple):
    """Evidence of a node."""

    node: str  #: Its name.
    signs: tuple[Sign, ...]  #: What may explain it, the most likely first.
    log: str  #: ``yes``, ``not permitted`` or ``unknown``: whether the kernel's log was read.
    ports: int  #: Number of its RDMA ports.
    hours: float  #: The period of the reports (h).
    stacks: Mapping[int, RankStack]  #: Where the late ranks are, by their process as RAS numbers it.
    gone: frozenset[int]  #: Processes that have ended.
    #: Bytes that late ranks read from and wrote to files within a second, by their process.
    files: Mapping[int, int] = {}


def plain_address(address: str) -> str:
    """Return an IP address in one way of writing, without a zone; other texts as they are."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0].strip("[]"))
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def addresses_of(value: Mapping[str, Any]) -> list[str]:
    """Return the addresses that lead to a node alone, from a value of the probe ``evidence`` or ``ras``."""
    listed = value.get("addresses")
    found = [plain_address(one) for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return [one for one in found if not one.startswith(("127.", "fe80:")) and one != "::1"]


def node_evidence(node: str, value: Mapping[str, Any], places: Iterable[JobPlace]) -> NodeEvidence:
    """Return the evidence in a value of the probe ``evidence`` about some places of a node."""
    here = {place.pid: place for place in places if place.node == node and place.pid is not None}
    gpus = {gpu for place in here.values() for gpu in place.gpu.split(",") if gpu}
    ports = dicts(value.get("ports"))
    signs = [*_events(node, dicts(value.get("events")), gpus, set(here)), *_down(node, ports)]
    stacks, files = {}, {}
    for one in dicts(value.get("ranks")):
        asked = one.get("asked")
        if not isinstance(asked, int) or asked not in here:
            continue
        for stack in rank_stacks(node, {"ranks": [one]}):
            # The process number of the node counts for commands, the rank as RAS counts it for names.
            stacks[asked] = stack._replace(place=here[asked]._replace(pid=stack.place.pid))
            files[asked] = int(number(one.get("files")) or 0)
    gone = value.get("gone")
    return NodeEvidence(
        node,
        tuple(sorted(signs, key=lambda sign: not sign.own)),
        text(value.get("log")) or "unknown",
        len(ports),
        (number(value.get("since")) or 0.0) / 3600,
        stacks,
        frozenset(pid for pid in gone if pid in here) if isinstance(gone, list) else frozenset(),
        files,
    )


def _events(node: str, events: list[dict[str, Any]], gpus: set[str], pids: set[int]) -> list[Sign]:
    """Return the latest report of each kind and device, GPUs and processes of late ranks first."""
    found: dict[tuple[str, Any, str], Sign] = {}
    for one in events:
        kind, code = text(one.get("kind")) or "", one.get("code")
        gpu = str(one["gpu"]) if isinstance(one.get("gpu"), int) else ""
        device = gpu or text(one.get("interface")) or ""
        where = f"{node}:{gpu}" if gpu else " ".join(filter(None, (node, device or text(one.get("bus")))))
        name = f"Xid {code}" if kind == "xid" else f"SXid {code}" if kind == "sxid" else _TITLES.get(kind, kind)
        meaning = xids.meaning(code, str(one.get("text", ""))) if kind == "xid" else ""
        reported = meaning or text(one.get("text")) or ""
        words = f"{name} at {text(one.get('at')) or 'an unknown time'}" + (f": {reported}" if reported else "")
        number_ = code if kind == "xid" and isinstance(code, int) else None
        found[kind, code, where] = Sign(where, words, kind, number_, device, gpu in gpus or one.get("pid") in pids)
    return list(found.values())


def _down(node: str, ports: list[dict[str, Any]]) -> list[Sign]:
    """Return the ports that are down while others of the node are active."""
    if not any(port.get("state") == "Active" for port in ports):
        return []
    found = []
    for port in ports:
        name, state, physical = (text(port.get(key)) or "unknown" for key in ("name", "state", "physical_state"))
        # A port that is switched off or has no cable is so by intention more often than not.
        if state in ("Down", "Initializing", "Armed") and physical != "Disabled":
            words = f"port {name} is {state} (physical state {physical}) while others are Active"
            found.append(Sign(node, words, "port", None, name.partition("/")[0], False))
    return found


def with_evidence(
    answer: WhoIsBehind, evidence: Sequence[NodeEvidence], typed: Typed, drain: bool = False
) -> WhoIsBehind:
    """Return an answer with what its nodes show, and with one next command.

    Args:
        answer: Who is behind.
        evidence: What the nodes of these ranks show.
        typed: Returns a command for a node as it is typed.
        drain: Whether Slurm manages the nodes, so that one with a broken GPU can be drained.
    """
    signs = [(one, sign) for one in evidence for sign in one.signs]
    signs.sort(key=lambda pair: not pair[1].own)
    sentences = [f"{sign.place}: {sign.text}" for _, sign in signs[:_MOST_SIGNS]]
    if len(signs) > _MOST_SIGNS:
        sentences.append(f"{len(signs) - _MOST_SIGNS} more reports of these nodes; see sudo dmesg -T there")
    sentences += _ends(evidence)
    stacks = [stack for one in evidence for stack in one.stacks.values()]
    sentences += [group.sentence() for group in grouped(stacks)[:_MOST_STACKS]]
    if evidence and not signs:
        sentences.append(_no_sign(evidence))
    if busy := [
        f"{ranks_text([one.stacks[pid].place])} read or wrote {moved / 1e6:.0f} MB of files within a second"
        for one in evidence
        for pid, moved in one.files.items()
        if moved >= FILE_WORK
    ]:
        # Ranks that wait for a checkpoint do not hang.
        sentences.append(f"{'; '.join(busy[:_MOST_STACKS])}: a checkpoint or data, not a hang so far")
        answer = answer._replace(hangs=None)
    following = _next(answer, evidence, signs[0] if signs else None, typed, drain)
    return answer._replace(sentences=[*answer.sentences, *sentences], next=[following] if following else [])


def _ends(evidence: Sequence[NodeEvidence]) -> list[str]:
    return [
        f"{'process' if len(one.gone) == 1 else 'processes'} {', '.join(map(str, sorted(one.gone)))} of {one.node}"
        f" {'has' if len(one.gone) == 1 else 'have'} ended"
        for one in evidence
        if one.gone
    ]


def _no_sign(evidence: Sequence[NodeEvidence]) -> str:
    """Return what does not point at the fabric, and what could not be read."""
    nodes = fold([one.node for one in evidence])
    unread = [one.node for one in evidence if one.log != "yes"]
    ports = sum(one.ports for one in evidence)
    links = f"{count(ports, 'RDMA port')} not down" if ports else "no RDMA port"
    if len(unread) == len(evidence):
        log = f"the kernel's log cannot be read by this user, so Xids are unknown (sudo dmesg on {fold(unread)})"
        return f"no sign of a fabric fault on {nodes}: {links}; {log}"
    hours = max(one.hours for one in evidence)
    period = f"{hours:.0f} h" if hours >= 2 else f"{max(1, round(hours * 60))} min"
    seen = f"no Xid, PCIe or link report in the last {period}, {links}"
    return f"no sign of a fabric fault on {nodes}: {seen}" + (f"; log of {fold(unread)} not readable" if unread else "")


def _next(
    answer: WhoIsBehind,
    evidence: Sequence[NodeEvidence],
    first: tuple[NodeEvidence, Sign] | None,
    typed: Typed,
    drain: bool,
) -> str:
    """Return the one command that leads on: the cause on the node, else the state or the stack of the first rank."""
    if first is not None:
        return _about_sign(first[0].node, first[1], typed, drain)
    for one in evidence:
        if one.gone:
            return typed(one.node, "sudo dmesg -T | grep -iE 'out of memory|killed process|segfault' | tail")
        for stack in one.stacks.values():
            return typed(one.node, stack.command)
    return answer.next[0] if answer.next else ""


def _about_sign(node: str, sign: Sign, typed: Typed, drain: bool) -> str:
    if sign.kind in ("xid", "gpu_lost", "gpu_init", "sxid"):
        broken = sign.kind in ("gpu_lost", "gpu_init") or (
            sign.code is not None and xids.severity({"code": sign.code, "text": sign.text}) == "bad"
        )
        if drain and broken:
            reason = f"Xid {sign.code}" if sign.code is not None else sign.kind
            return f"scontrol update nodename={node} state=drain reason='{reason}'"
        return typed(node, f"nvidia-smi -q -i {sign.device}" if sign.device else "nvidia-smi -q")
    if sign.kind == "port":
        return typed(node, f"ibstat {sign.device}")
    if sign.kind == "link_down" and sign.device:
        return typed(node, f"ip -s link show {sign.device}" if "/" not in sign.device else "ibstat")
    if sign.kind == "oom":
        return typed(node, "sudo dmesg -T | grep -iE 'oom-kill|killed process' | tail")
    return typed(node, "sudo dmesg -T | tail -50")
