"""Network interfaces as ``ifconfig``, ``ip addr`` and ``ip -br addr`` show them."""

from __future__ import annotations

import re

from fabtui.importers.tables import Values
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines, whole

#: Maximum number of interfaces.
_MOST = 4096
#: What containers, hypervisors and VPNs make, and the loopback: not for data of a job.
_VIRTUAL = re.compile(
    r"lo\d?$|docker|veth|virbr|vnet|cni|cali|flannel|br-|podman|tun|tap|wg|tailscale|kube|nodelocal|usb"
)
_HEAD = re.compile(
    r"(?:\d{1,5}: )?(?P<name>[A-Za-z][\w.-]{0,30}?)(?:@[\w.-]{1,30})?:? {1,12}(?:flags=\d{1,10})?"
    r"<(?P<flags>[A-Z_,-]{2,200})>"
    r"|(?P<old>[A-Za-z][\w.:-]{0,30}?):? {1,12}Link encap:"
)
_BRIEF = re.compile(
    r"(?P<name>[A-Za-z][\w.-]{0,30}?)(?:@[\w.-]{1,30})? {1,40}"
    r"(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)(?P<rest>(?: .{0,2000})?)$"
)
_ADDRESS = re.compile(r"\binet6? (?:addr: ?)?([0-9a-f.:]{2,45})(?:/\d{1,3})?")
_WORD = re.compile(r"\b(mtu|MTU:)\s?(\d{2,6})\b|\bstate ([A-Z]{2,16})\b")
_ERRORS = re.compile(r"\b(RX|TX) (?:packets:?\d{1,20} )?errors[: ](\d{1,20})\s{1,3}dropped[: ](\d{1,20})")
_COUNTED = re.compile(r"\s{1,8}(RX|TX):?\s{1,4}bytes:?\s")


def _parse(text: str) -> Reading:
    """Return ``interfaces``: name, ``link`` (yes, no, unknown), ``enabled``, ``mtu`` (B), ``addresses``, errors."""
    notes, interfaces, way = Notes(), list[Values](), ""
    for line in plain_lines(text):
        head, brief = _HEAD.match(line), _BRIEF.match(line)
        if (head or brief) and len(interfaces) < _MOST:
            interfaces.append(_begun(head, brief))
        if not interfaces:
            continue
        entry = interfaces[-1]
        for found in _WORD.finditer(line):
            if found[2]:
                entry["mtu"] = whole(found[2])
            elif found[3] in ("UP", "DOWN", "LOWERLAYERDOWN"):
                entry["link"] = "yes" if found[3] == "UP" else "no"
        entry["addresses"] += [found for found in _ADDRESS.findall(line) if found not in entry["addresses"]]
        for found in _ERRORS.finditer(line):
            entry[f"{found[1].lower()}_errors"], entry[f"{found[1].lower()}_dropped"] = whole(found[2]), whole(found[3])
        if way and re.fullmatch(r"[\d\s]{5,200}", line):
            _, _, errors, dropped, *_ = [*map(whole, line.split()), None, None, None, None]
            entry[f"{way}_errors"], entry[f"{way}_dropped"] = errors, dropped
        counted = _COUNTED.match(line)
        way = counted[1].lower() if counted else ""
        if "inet" not in line and re.search(r"\bUP\b.{0,40}\bMTU:", line):
            entry["enabled"], entry["link"] = True, "yes" if "RUNNING" in line else "no"
    return notes.reading({"interfaces": interfaces})


def _begun(head: re.Match[str] | None, brief: re.Match[str] | None) -> Values:
    start: Values = {"link": "unknown", "enabled": None, "mtu": None, "addresses": []}
    if brief is not None:
        rest = [word.partition("/")[0] for word in brief["rest"].split() if "/" in word]
        link = {"UP": "yes", "UNKNOWN": "unknown"}.get(brief["state"], "no")
        return {"interface": brief["name"], **start, "link": link, "addresses": rest}
    assert head is not None
    if head["old"]:
        return {"interface": head["old"], **start}
    flags = head["flags"].split(",")
    up = {"LOWER_UP", "RUNNING"} & {*flags}
    link = "yes" if up else "no" if "NO-CARRIER" in flags or "UP" in flags else "unknown"
    return {"interface": head["name"], **start, "link": link, "enabled": "UP" in flags}


def _facts(values: Values) -> dict[str, dict[str, Values]]:
    """Return interfaces of hardware as ports: those without a link have no signal, or are switched off."""
    ports = []
    for entry in values["interfaces"]:
        if _VIRTUAL.match(entry["interface"]) is None:
            state = {"yes": "Active", "no": "Down"}.get(entry["link"], "unknown")
            signal = "Polling" if state == "Down" and entry["enabled"] else None
            port = {"port": 1, "state": state, "physical_state": signal, "link_layer": "Ethernet"}
            ports.append({"ca": entry["interface"], "ports": [port]})
    return {"": {"ibstat": {"cas": ports}}} if ports else {}


FORMATS = [
    Format(
        "interfaces",
        "network interfaces: ifconfig, ip addr, ip -br addr",
        first_of(
            (0.95, r"^\d{1,5}: [\w.@-]{1,40}: <[A-Z_,-]{2,200}> mtu \d"),
            (0.95, r"^[\w.-]{1,30}: flags=\d{1,10}<[A-Z_,-]{2,200}>  ?mtu \d"),
            (0.95, r"^[\w.:-]{1,30} {1,12}Link encap:"),
            (0.9, r"^lo {1,40}UNKNOWN {1,40}127\.0\.0\.1/8"),
        ),
        _parse,
        units={"mtu": "B"},
        aliases=r"ifconfig|ip-a(?:ddr)?|ip-br",
        facts=_facts,
    )
]
