"""Judgements of probes as findings: a rule for each check of the catalogue, and one for all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from fabtui.diagnosis.finding import Finding, Kind, Severity, Subject, register
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of
from fabtui.diagnosis.knowledge.toml_data import load
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeRule, severity_of, slot_of
from fabtui.nodeset import fold
from fabtui_node import registry

#: An RDMA port as the subject of a judgement.
_PORT = re.compile(r"([A-Za-z][A-Za-z0-9_]{1,40})/([0-9]{1,3})", re.ASCII)
_DIGIT = re.compile(r"[0-9]")
#: Texts that differ in numbers only are grouped.
_NUMBERS = re.compile(r"[0-9][0-9.,]*(?: [KMGT]iB)?")


class _Judgement(NamedTuple):
    node: str
    subject: str
    text: str
    devices: str
    action: str


@register
class ProbeJudgement(NodeRule):
    """A probe judged its own result on one or several nodes. Equal judgements are one finding."""

    id = "FT301"
    name = "probe"
    title = "Problem reported by a probe"
    message = "[{devices:devices}: ]{text}[; and {more} more of the kind]"
    evidence = ("NVIDIA's action: {action}",)
    next_step = "Run the command of the finding on the node."
    #: Name of the judgements' check; "": all that are in no catalogue.
    check_name: ClassVar[str] = ""

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups: dict[tuple[str, str, Severity, str, str], dict[_Judgement, None]] = {}
        for node, one in context.judged.get(self.check_name, ()):
            # Devices such as mlx5_3/1 are many; equal judgements of them are grouped.
            device = _DIGIT.search(one["subject"]) and one["subject"] not in load("next_commands")["preflight"]
            topic = "" if device else one["subject"]
            # Inconclusive may be intended: a port without a cable, a counter that was not reset for years.
            severity = Severity.NOTE if one["verdict"] == "inconclusive" else severity_of(one["verdict"])
            key = one["probe"], topic, severity, _NUMBERS.sub("#", one["text"]), one["action"]
            groups.setdefault(key, {})[_Judgement(node, one["subject"], one["text"], one["devices"], one["action"])] = (
                None
            )
        for (probe, topic, severity, *_), group in groups.items():
            found = self._finding(severity, topic, probe, list(group))
            yield found.replace(about=tuple(subject for one in group for subject in _devices(one, context.buses)))

    def _finding(self, severity: Severity, topic: str, probe: str, group: Sequence[_Judgement]) -> Finding:
        names = list(dict.fromkeys(one.node for one in group))
        texts = list(dict.fromkeys(one.text for one in group))
        by_text: dict[str, list[str]] = {}
        for one in group:
            by_text.setdefault(one.text if topic else f"{one.subject}: {one.text}", []).append(one.node)
        port = _PORT.fullmatch(group[0].subject)
        command = f"ssh {{node}} ibstat {port[1]} {port[2]}" if port else _command_for(topic, probe)
        facts = {
            "probe": probe,
            "text": texts[0],
            "more": len(texts) - 1 or None,
            "action": group[0].action or None,
            "devices": None if topic else tuple(dict.fromkeys(one.subject for one in group)),
            "by_node": tuple((tuple(nodes), text) for text, nodes in by_text.items()) if len(by_text) > 1 else None,
        }
        # The catalogue explains the errors of tools, too.
        known = None if self.check_name else meaning_of(texts[0])
        if known is not None:
            facts |= known.facts
            command = next((f"ssh {{node}} {one}" for _, one in known.commands if "{route}" not in one), command)
        following = [command.replace("{node}", fold(names[:1]))] if command else []
        return self.finding(topic or probe, severity=severity, nodes=names, facts=facts, commands=following)


def _devices(one: _Judgement, buses: Mapping[tuple[str, str], str]) -> list[Subject]:
    """Return the GPUs and NICs that a judgement is about; the node if it names none."""
    found = []
    for device in one.devices.split():
        kind, _, name = device.partition(":")
        if end := buses.get((one.node, slot_of(name))) if kind == "bus" else f"{one.node}:{name}":
            found.append(Subject(Kind.GPU, end))
    if port := _PORT.fullmatch(one.subject):
        found.append(Subject(Kind.NIC, f"{one.node} {port[1]}"))
    return found or [Subject(Kind.NODE, one.node)]


def _command_for(topic: str, probe: str) -> str:
    """Return the command that inspects the subject of a judgement, else that of its probe."""
    found: str | None = load("next_commands")["preflight"].get(topic)
    specs = (registry.PROBES.get(name) for name in (topic, probe))
    return found or next((spec.next for spec in specs if spec is not None and spec.next), "")


def _rule(row: Mapping[str, Any]) -> type[ProbeJudgement]:
    """Return the rule of a check."""
    texts = {"id": row["id"], "name": row["name"], "check_name": row["name"], "title": row["title"]}
    description = f"{row['meaning']} Source: {row['source']}."
    worst = Severity(row.get("severity", "bad"))
    own = {**texts, "severity": worst, "next_step": row["next"], "__doc__": description}
    return type(row["name"], (ProbeJudgement,), own)


for _row in load("node_checks")["check"]:
    register(_rule(_row))
