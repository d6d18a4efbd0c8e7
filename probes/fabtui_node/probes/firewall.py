"""Probe ``firewall``: does it drop incoming packets? NCCL and its bootstrap use ephemeral ports."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional

from fabtui_node.probes.judgement import judgement
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import run_command, sysfs

_CHAIN = re.compile(r"^[ \t]*chain \S+ \{(.*?)^[ \t]*\}", re.MULTILINE | re.DOTALL)
_HOOK = re.compile(r"type filter hook input priority [^;]{1,80};(?:\s*policy (accept|drop);)?")
_FINAL = re.compile(r"^[ \t]*(?:counter(?: packets [0-9]+ bytes [0-9]+)? )?(drop|reject)\b", re.MULTILINE)


def parse_nft(text: str) -> Dict[str, Any]:
    """Return ``{"input", "rules"}`` from ``nft list ruleset``: ``accept`` or ``drop``; how many rules there are for it.

    ``drop`` is a policy of dropping, or a rule that drops or rejects without asking anything.
    """
    verdict, rules = "accept", 0
    for body in _CHAIN.findall(text):
        hook = _HOOK.search(body)
        if hook is None:
            continue
        lines = [line for line in body[hook.end() :].splitlines() if line.strip()]
        rules += len(lines)
        if hook.group(1) == "drop" or _FINAL.search("\n".join(lines)):
            verdict = "drop"
    return {"input": verdict, "rules": rules}


def parse_iptables(text: str) -> Optional[Dict[str, Any]]:
    """Return the same from ``iptables -S INPUT``, None if the text is not that."""
    policy = re.search(r"^-P INPUT (ACCEPT|DROP|REJECT)$", text, re.MULTILINE)
    if policy is None:
        return None
    final = re.search(r"^-A INPUT -j (?:DROP|REJECT)\b", text, re.MULTILINE)
    rules = len(re.findall(r"^-A INPUT ", text, re.MULTILINE))
    return {"input": "drop" if final or policy.group(1) != "ACCEPT" else "accept", "rules": rules}


def run(args: Dict[str, Any], emit: Any, deadline: float, etc: str = "/etc") -> Dict[str, Any]:
    """Read the rules for incoming packets: ``{"source", "input", "rules", "why"}``.

    ``nft``, ``iptables``, ``ufw`` or ``none``; ``accept``, ``drop`` or ``unknown``; the number of rules, None where
    unknown; why it is unknown, else None.
    """
    why: Optional[str] = None
    if os.geteuid() == 0:
        nft = run_command.run(["nft", "list", "ruleset"], deadline * 0.4)
        if nft.ok:
            return dict(parse_nft(nft.stdout), source="nft", why=None)
        tables = run_command.run(["iptables", "-w", "1", "-S", "INPUT"], deadline * 0.4)
        parsed = parse_iptables(tables.stdout) if tables.ok else None
        if parsed is not None:
            return dict(parsed, source="iptables", why=None)
        why = nft.why() if tables.missing else tables.why()
    ufw = re.search(r"^ENABLED=(yes|no)", sysfs.text(etc, "ufw/ufw.conf") or "", re.MULTILINE)
    if ufw and ufw.group(1) == "yes":
        return {"source": "ufw", "input": "drop", "rules": None, "why": None}
    return {"source": "none", "input": "unknown", "rules": None, "why": why or "only root may read the rules"}


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone."""
    if value.get("input") != "drop":
        return []
    text = "the firewall drops incoming packets by default; NCCL uses any port of ip_local_port_range"
    return [judgement("firewall", "note", text)]


PROBE = ProbeSpec(
    name="firewall",
    title="whether a firewall drops incoming packets",
    phase="inspect",
    passive=True,
    needs="root, and nft or iptables",
    gives="accept or drop, and the number of rules",
    run=run,
    judge=judge,
    next="ssh {node} sudo nft list ruleset",
)
