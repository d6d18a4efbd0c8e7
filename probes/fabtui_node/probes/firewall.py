"""Probe ``firewall``: does it drop incoming packets? NCCL and its bootstrap use ephemeral ports."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional

from fabtui_node.probes.judgement import judgement
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import run_command, sysfs

_TABLE = re.compile(r"^table [^\n{]{1,200}\{(.*?)^\}", re.MULTILINE | re.DOTALL)
_CHAIN = re.compile(r"^[ \t]*chain (\S+) \{(.*?)^[ \t]*\}", re.MULTILINE | re.DOTALL)
_HOOK = re.compile(r"type filter hook (input|prerouting|ingress)\b[^;\n]{1,80};(?:\s*policy (accept|drop);)?")
_FINAL = re.compile(r"^[ \t]*(?:counter(?: packets [0-9]+ bytes [0-9]+)? )?(drop|reject)\b", re.MULTILINE)
_DROPS = re.compile(r"\b(?:drop|reject)\b|-j (?:DROP|REJECT)\b")
_JUMP = re.compile(r"(?:\b(?:jump|goto)|-[jg]) (\S+)")
#: Maximum number of rules that are reported, and of the characters of one.
_MOST_RULES, _MOST_CHARACTERS = 24, 200


def _dropping(chains: Dict[str, List[str]], first: str) -> List[str]:
    """Return the rules that drop or reject, of a chain and those that it jumps to."""
    rules: List[str] = []
    waiting, seen = [first], {first}
    while waiting:
        for line in chains.get(waiting.pop(0), []):
            if _DROPS.search(line):
                rules.append(" ".join(line.split())[:_MOST_CHARACTERS])
            for name in _JUMP.findall(line):
                if name in chains and name not in seen:
                    seen.add(name)
                    waiting.append(name)
    return rules[:_MOST_RULES]


def parse_nft(text: str) -> Dict[str, Any]:
    """Return ``{"input", "rules", "drops"}`` from ``nft list ruleset``.

    ``accept`` or ``drop``; the number of rules for what comes in; the ones that drop or reject. ``drop`` is a
    policy of dropping, or a rule that drops or rejects without asking anything.
    """
    verdict, rules = "accept", 0
    drops: List[str] = []
    for table in _TABLE.findall(text) or [text]:
        chains = {name: [line for line in body.splitlines() if line.strip()] for name, body in _CHAIN.findall(table)}
        for name, lines in chains.items():
            hook = _HOOK.search("\n".join(lines))
            if hook is None:
                continue
            lines[:] = [line for line in lines if "hook" not in line]
            drops += _dropping(chains, name)
            if hook.group(1) == "input":
                rules += len(lines)
                if hook.group(2) == "drop" or _FINAL.search("\n".join(lines)):
                    verdict = "drop"
    return {"input": verdict, "rules": rules, "drops": drops[:_MOST_RULES]}


def parse_iptables(text: str) -> Optional[Dict[str, Any]]:
    """Return the same from ``iptables -S``, None if the text is not that."""
    policy = re.search(r"^-P INPUT (ACCEPT|DROP|REJECT)$", text, re.MULTILINE)
    if policy is None:
        return None
    final = re.search(r"^-A INPUT -j (?:DROP|REJECT)\b", text, re.MULTILINE)
    chains: Dict[str, List[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["-A"] and len(words) > 2:
            chains.setdefault(words[1], []).append(line)
    return {
        "input": "drop" if final or policy.group(1) != "ACCEPT" else "accept",
        "rules": len(chains.get("INPUT", [])),
        "drops": _dropping(chains, "INPUT"),
    }


def run(args: Dict[str, Any], emit: Any, deadline: float, etc: str = "/etc") -> Dict[str, Any]:
    """Read the rules for incoming packets: ``{"source", "input", "rules", "drops", "why"}``.

    ``nft``, ``iptables``, ``ufw`` or ``none``; ``accept``, ``drop`` or ``unknown``; the number of rules, None where
    unknown; those that drop or reject; why it is unknown, else None.
    """
    why: Optional[str] = None
    if os.geteuid() == 0:
        nft = run_command.run(["nft", "list", "ruleset"], deadline * 0.4)
        if nft.ok:
            return dict(parse_nft(nft.stdout), source="nft", why=None)
        tables = run_command.run(["iptables", "-w", "1", "-S"], deadline * 0.4)
        parsed = parse_iptables(tables.stdout) if tables.ok else None
        if parsed is not None:
            return dict(parsed, source="iptables", why=None)
        why = nft.why() if tables.missing else tables.why()
    ufw = re.search(r"^ENABLED=(yes|no)", sysfs.text(etc, "ufw/ufw.conf") or "", re.MULTILINE)
    if ufw and ufw.group(1) == "yes":
        return {"source": "ufw", "input": "drop", "rules": None, "drops": [], "why": None}
    return {
        "source": "none",
        "input": "unknown",
        "rules": None,
        "drops": [],
        "why": why or "only root may read the rules",
    }


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
    gives="accept or drop, the number of rules, and those that drop or reject",
    run=run,
    judge=judge,
    next="ssh {node} sudo nft list ruleset",
)
