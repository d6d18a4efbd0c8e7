"""What probes say of single nodes: each probe's own ``judge``, over what it gave."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fabtui.diagnosis.finding import VERDICTS, Finding
from fabtui.fabric.looked import Looked, dicts
from fabtui.fabric.nodeset import fold
from fabtui.fabric.text import one_line
from fabtui_probes import registry

Judge = Callable[[dict[str, Any]], Any]

#: So many different things of one subject are told one by one; more are one finding with its evidence.
_SEPARATE = 2
_MOST = 200
#: What to type to see more, by the subject of a judgement.
_NEXT = {
    "memlock": "ssh {node} ulimit -l",
    "nofile": "ssh {node} ulimit -n",
    "acs": "ssh {node} sudo lspci -vvv | grep ACSCtl",
    "iommu": "ssh {node} cat /proc/cmdline",
    "gpudirect": "ssh {node} lsmod | grep peermem",
    "shm": "ssh {node} df -h /dev/shm",
    "governor": "ssh {node} cpupower frequency-set -g performance",
    "numa": "ssh {node} sysctl kernel.numa_balancing=0",
    "firewall": "ssh {node} sudo nft list ruleset",
    "clock": "ssh {node} chronyc tracking",
    "ports": "ssh {node} sysctl net.ipv4.ip_local_port_range",
    "gpus": "ssh {node} nvidia-smi",
    "pcie": "ssh {node} nvidia-smi -q | grep -A9 'GPU Link Info'",
}


#: An RDMA port as a subject.
_PORT = re.compile(r"([A-Za-z][A-Za-z0-9_]{1,40})/([0-9]{1,3})", re.ASCII)


@functools.cache
def judge_of(probe: str) -> Judge | None:
    """Return the judge of a probe, or None where it has none."""
    entry = registry.PROBES.get(probe)
    if entry is None:
        return None
    found: Judge | None = getattr(importlib.import_module(f"fabtui_probes.{entry.module}"), "judge", None)
    return found


def judgements(node: Looked) -> list[dict[str, str]]:
    """Return what the probes of a node say of it: ``[{"probe", "subject", "verdict", "text"}]``."""
    found: list[dict[str, str]] = []
    for probe, value in [("inventory", node.inventory), *node.looks.items()]:
        judge = judge_of(probe)
        said: Any = _own(probe, value)
        if judge is not None and value and value.keys() != {"error"}:
            try:
                said = judge(dict(value))
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
    problem = value.get("problem")
    told = (
        [{"subject": probe, "verdict": "note", "text": f"your probe {probe} did not work: {problem}"}]
        if problem
        else []
    )
    return [*told, *dicts(value.get("judged"))]


_FIELDS = ("subject", "verdict", "text")


def judged(nodes: Sequence[Looked]) -> list[Finding]:
    """Return what the probes say, what is said of several nodes together."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for node in nodes:
        for one in judgements(node):
            key = one["probe"], one["subject"], verdict_of(one["verdict"]), one["text"]
            names = groups.setdefault(key, [])
            if node.name not in names:
                names.append(node.name)
    subjects: dict[tuple[str, str, str], list[tuple[str, list[str]]]] = {}
    for (probe, subject, verdict, text), names in groups.items():
        subjects.setdefault((probe, subject, verdict), []).append((text, names))
    found = []
    for (_, subject, verdict), texts in subjects.items():
        if len(texts) <= _SEPARATE:
            found += [_finding(verdict, subject, text, names, ()) for text, names in texts]
            continue
        every = list(dict.fromkeys(name for _, names in texts for name in names))
        order = {node.name: at for at, node in enumerate(nodes)}
        evidence = tuple(f"{fold(names)}: {text}" for text, names in texts)
        more = f"{texts[0][0]}; and {len(texts) - 1} more of the kind"
        found.append(_finding(verdict, subject, more, sorted(every, key=order.__getitem__), evidence))
    return found


def verdict_of(word: str) -> str:
    """Return the verdict of a finding for the word that a judge used."""
    if word in VERDICTS:
        return word
    if word in ("failed", "error", "timeout", "fatal"):
        return "bad"
    return "warn" if word in ("warning", "slow", "inconclusive") else "note"


def _finding(verdict: str, subject: str, text: str, names: Sequence[str], evidence: tuple[str, ...]) -> Finding:
    port = _PORT.fullmatch(subject)
    command = _NEXT.get(subject, f"ssh {{node}} ibstat {port[1]} {port[2]}" if port else "")
    command = command.replace("{node}", fold(names[:1]))
    return Finding(verdict, subject, text, tuple(names), evidence, command)
