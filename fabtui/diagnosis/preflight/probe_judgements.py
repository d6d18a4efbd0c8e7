"""What probes say of single nodes: each probe's own ``judge``, over what it gave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import VERDICTS, Finding
from fabtui.model.facts.node_view import Looked, dicts
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node import registry

_FIELDS = ("subject", "verdict", "text")
#: An RDMA port as a subject.
_PORT = re.compile(r"([A-Za-z][A-Za-z0-9_]{1,40})/([0-9]{1,3})", re.ASCII)
#: A subject with a digit is one device of many.
_DIGIT = re.compile(r"[0-9]")
#: Texts that differ in numbers alone say the same.
_NUMBERS = re.compile(r"[0-9][0-9.,]*(?: [KMGT]iB)?")
#: So many devices are named in the text of a finding.
_NAMED = 3
_MOST = 200
#: Next commands by the subject of a judgement; other subjects use the next command of their probe.
_NEXT = {
    "memlock": "ssh {node} ulimit -l",
    "nofile": "ssh {node} ulimit -n",
    "acs": "ssh {node} sudo lspci -vvv | grep ACSCtl",
    "iommu": "ssh {node} cat /proc/cmdline",
    "gpudirect": "ssh {node} lsmod | grep peermem",
    "shm": "ssh {node} df -h /dev/shm",
    "governor": "ssh {node} sudo cpupower frequency-set -g performance",
    "numa": "ssh {node} sudo sysctl kernel.numa_balancing=0",
    "ports": "ssh {node} sysctl net.ipv4.ip_local_port_range",
    "pcie": "ssh {node} nvidia-smi -q | grep -A9 'GPU Link Info'",
    "clocks": "ssh {node} nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",
    "ecc": "ssh {node} nvidia-smi -q -d ECC,ROW_REMAPPER",
    "mig": "ssh {node} nvidia-smi -L",
    "fabric": "ssh {node} nvidia-smi -q | grep -A4 Fabric",
    "p2p": "ssh {node} nvidia-smi topo -p2p r",
    "xid": "ssh {node} sudo dmesg | grep -i xid",
    "sxid": "ssh {node} sudo dmesg | grep -i sxid",
    "aer": "ssh {node} sudo dmesg | grep -i aer",
    "link": "ssh {node} sudo dmesg | grep -i link",
}


def judgements(node: Looked) -> list[dict[str, str]]:
    """Return what the probes of a node say of it: ``[{"probe", "subject", "verdict", "text"}]``."""
    found: list[dict[str, str]] = []
    for probe, value in [("inventory", node.inventory), *node.looks.items()]:
        spec = registry.PROBES.get(probe)
        said: Any = _own(probe, value)
        if spec is not None and spec.judge is not None and value and value.keys() != {"error"}:
            try:
                said = spec.judge(dict(value))
            except Exception as error:
                # What a node sent made no sense to the probe's own judge: the other probes have their say.
                text = f"what {probe} gave makes no sense: {type(error).__name__}: {error}"
                said = [{"subject": probe, "verdict": "note", "text": text}]
        for one in dicts(said)[:_MOST]:
            found.append({"probe": probe, **{name: one_line(str(one.get(name, "")), 300) for name in _FIELDS}})
    return found


def _own(probe: str, value: Mapping[str, Any]) -> list[Any]:
    """Return what one of the user's own probes said on the node, and that it did not work."""
    if value.get("own") is not True:
        return []
    found: list[Any] = dicts(value.get("judged"))
    if problem := value.get("problem"):
        found.append({"subject": probe, "verdict": "note", "text": f"your probe {probe} did not work: {problem}"})
    return found


class _Said(NamedTuple):
    node: str
    subject: str
    text: str


def judged(nodes: Sequence[Looked]) -> list[Finding]:
    """Return what the probes say; what is said of several nodes or devices in the same words is one finding."""
    groups: dict[tuple[str, str, str, str], dict[_Said, None]] = {}
    for node in nodes:
        for one in judgements(node):
            # Of devices, such as mlx5_3/1, there are many of which the same is said.
            topic = "" if _DIGIT.search(one["subject"]) else one["subject"]
            # What is inconclusive may be meant so: a port without a cable, a counter that was not reset for years.
            verdict = "note" if one["verdict"] == "inconclusive" else verdict_of(one["verdict"])
            key = one["probe"], topic, verdict, _NUMBERS.sub("#", one["text"])
            groups.setdefault(key, {})[_Said(node.name, one["subject"], one["text"])] = None
    return [_finding(verdict, topic, probe, list(group)) for (probe, topic, verdict, _), group in groups.items()]


def _finding(verdict: str, topic: str, probe: str, group: Sequence[_Said]) -> Finding:
    names = list(dict.fromkeys(said.node for said in group))
    texts = list(dict.fromkeys(said.text for said in group))
    text = texts[0] if len(texts) == 1 else f"{texts[0]}; and {len(texts) - 1} more of the kind"
    where: dict[str, list[str]] = {}
    for said in group:
        told = said.text if topic else f"{said.subject}: {said.text}"
        where.setdefault(told, []).append(said.node)
    if not topic:
        devices = list(dict.fromkeys(said.subject for said in group))
        more = f" and {len(devices) - _NAMED} more" if len(devices) > _NAMED else ""
        text = f"{', '.join(devices[:_NAMED])}{more}: {text}"
    evidence = tuple(f"{fold(those)}: {told}" for told, those in where.items()) if len(where) > 1 else ()
    port = _PORT.fullmatch(group[0].subject)
    command = (
        f"ssh {{node}} ibstat {port[1]} {port[2]}" if port else _NEXT.get(topic) or _next_of(topic) or _next_of(probe)
    )
    command = command.replace("{node}", fold(names[:1]))
    return Finding(verdict, topic or probe, text, tuple(names), evidence, command)


def _next_of(probe: str) -> str:
    return registry.PROBES[probe].next if probe in registry.PROBES else ""


def verdict_of(word: str) -> str:
    """Return the verdict of a finding for the word that a judge used."""
    if word in VERDICTS:
        return word
    if word in ("failed", "error", "timeout", "fatal"):
        return "bad"
    return "warn" if word in ("warning", "slow", "inconclusive") else "note"
