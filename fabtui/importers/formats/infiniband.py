"""Outputs of InfiniBand tools that no probe runs: ways through a fabric, ``ibping``, ``ibdiagnet``, ``ibswinfo``."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.tables import Tables, Values, kinds
from fabtui_node.parsers.base import Format, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords
from fabtui_node.parsers.lines import number

#: What values match besides those of all tools, and how they are converted.
_WORDS: dict[str, Any] = {
    "lid": ("0x[0-9a-fA-F]{1,6}|[0-9]{1,6}", ibwords.integer),
    "guid": (r"0x[0-9a-fA-FxX*.]{1,18}", ibwords.guid),
    "name": (r".*", lambda text: text[:200]),
    "type": (r"ca|switch|router|\?\?\?", lambda word: {"ca": "CA", "???": "unknown"}.get(word, word)),
}
_IBPING_LIKELY = first_of((0.97, "ibping statistics ---"), (0.9, "^Pong from "))
_IBTRACERT_LIKELY = first_of((0.97, r"^\[\d+\] -> (\w+ port )?\{0x"), (0.7, r"^From (ca|switch|router) \{0x"))
_IBROUTE_LIKELY = first_of(
    (0.97, r"Unicast lids \[0x"), (0.9, r"^0x[0-9a-fA-F]{4} \d{3} : \((?:Channel Adapter|Switch|Router) portguid 0x")
)
_IBADDR_LIKELY = first_of((0.95, r"^(GID \S+ )?LID start (0x)?[0-9a-f]+ end "))
_STAGES = r"^[ \t]{0,8}(?:-I- )?stage {1,60}(?:warnings {1,20}errors|errors {1,20}warnings)\b"
_IBDIAGNET_LIKELY = first_of(
    (0.97, rf"(?i){_STAGES}|^[ \t]{{0,8}}-I- stages status report"),
    (0.9, r"(?i)\bibdiagnet2?\.(?:log|db_csv)\b|nodes \(\d+ switches & \d+ ca-s\) discovered"),
    (0.6, r"^[ \t]{0,8}-[IWE]- .{1,300}\n(?:.*\n){0,3}?[ \t]{0,8}-[IWE]- "),
)
_IBSWINFO_LIKELY = first_of((0.95, r"^PSU\d status\s+\||^(psu\d\.|fan#\d)"), (0.8, r"^(part number|PSID)\s+\|"))
_PING_UNITS = {"loss": "%", "rtt_min": "ms", "rtt_avg": "ms", "rtt_max": "ms", "rtts": "ms"}
_VITAL_UNITS = {"uptime": "s", "temperature": "C", "temperature_max": "C", "power": "W", "fans": "rpm", "modules": "C"}
_DIAGNET_TITLE = "ibdiagnet: warnings and errors of each check of an InfiniBand fabric"
_SWINFO_TITLE = "ibswinfo: power, fans and temperatures of an unmanaged switch"
_OF_PING = ("host", "target", "sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max")
# Output and log of ibdiagnet: what the discovery found, complaints, and warnings and errors of each stage.
#
# Grammar: ibdiagnet 1 is public (ibutils, ``ibdebug_if.tcl``). Messages begin with ``-I-``, ``-W-`` or ``-E-``. Its
# ``Stages Status Report`` has the columns ``STAGE Errors Warnings``.
#
# Version 2 (NVIDIA, closed) keeps the marks and ends with ``Summary``, as in its manual and in public logs. Its columns
# are ``Stage Warnings Errors Comment``, so that their order is read from the heading.
_DIAGNET = kinds(
    r"""
    order  (?:-I- ?)?(?i:stage\s+(?P<first>warnings|errors)\s+(?:errors|warnings)(?:\s+comment)?)$
    stage  (?:-I- ?)?(?P<stage>\S.{0,80}?)\s{2,200}<first:int>\s{1,40}<second:int>(?:\s{1,40}(?P<comment>.{1,200}))?$
    begin  -<level:level>-\s*(?P<text>\S.{0,299})
    more   [^-].*
    fact   .*?(?i:<nodes:int> nodes \(<switches:int> switches & <hosts:int> ca-s\) discovered)
    fact   .*?(?i:ibdiagnet(?:[ _-]?version)?:? +(?:version:? +)?"?v?(?P<version>\d+\.\d[\w.-]{0,40}))
    """,
    level=("[WE]", {"W": "warning", "E": "error"}.__getitem__),
)
#: Maximum number of complaints that are kept.
_MOST = 1000
_SWINFO = kinds(
    r"""
    rule     [=-]{3,}$
    name     [^|]*$
    of_psu   (?:PSU|psu)<psu:int>[ .](?P<part>status|dc|fan|power|part_number|serial)<:value>
    of_psu   (?P<part>P/N|S/N|DC power|fan status|power|status)<:value>
    of_part  (?P<kind>fan)#<at:int>(?:\.speed)?<:value>
    of_part  (?P<kind>QSFP)#<at:int>(?:\.temp)?<:value>
    vital    (?P<label>[A-Za-z][\w#./ -]{0,40}?)<:value>
    left     \S
    """,
    value=r"\s*(?:\((?P<unit>[^()|]{1,20})\)\s*)?[|:]\s*(?P<value>.*)$",
)
_UPTIME = re.compile(r"([0-9]{1,6})d-([0-9]{1,2}):([0-9]{2}):([0-9]{2})", re.ASCII)
_VITALS = {
    "part number": "part", "part_number": "part", "serial number": "serial", "serial": "serial",
    "product name": "product", "product_name": "product", "revision": "revision", "PSID": "psid", "GUID": "guid",
    "firmware version": "firmware", "fw_version": "firmware", "CPLD": "cpld", "cpld": "cpld",
    "node_desription": "name", "node_description": "name", "fan status": "fan_status", "fans": "fan_status",
    "ports": "ports", "temperature": "temperature", "cur.temp": "temperature", "max temp": "temperature_max",
    "max.temp": "temperature_max", "uptime": "uptime",
}  # fmt: skip
_OF_PSU = {"P/N": "part", "part_number": "part", "S/N": "serial", "DC power": "dc", "fan status": "fan"}
_OF_SWITCH: Values = {**dict.fromkeys(("name", *_VITALS.values())), "psus": {}, "fans": {}, "modules": {}}


class _Tool(Tables):
    """Reads the output of a tool; a line that is not part of it is a complaint, or not understood."""

    lines = staticmethod(ibwords.lines)

    def left(self, values: Values, line: str) -> None:
        ibwords.leftover(line, self.notes)


class _Ibroute(
    _Tool,
    lines=kinds(
        r"""
        switch  Unicast lids \[0x\w{1,6}-0x\w{1,6}\] of switch .{1,120}? guid <guid:guid> \(<name:name>\):
        route   <lid:lid> <port:int>(?:\s*: \((?P<type>.{1,40}?) portguid <guid:guid>: '<name:name>'\))?
                (?:\s*: \((?P<other>.*)\))?$
        fact    <count:int> (?:valid )?lids dumped
        skip    Lid\s+Out|Port\s+Info
        left    \S
        """,
        **_WORDS,
    ),
    facts={"switch": {"guid": None, "name": None}, "routes": [], "count": None},
):
    """Reads ``{"switch": {"guid", "name"}, "routes": [{"lid", "port", "type", "guid", "name"}], "count"}``."""

    def switch(self, values: Values, line: str) -> None:
        self.facts["switch"] = values

    def route(self, values: Values, line: str) -> None:
        other = values.pop("other")
        self.facts["routes"].append({**values, "type": values["type"] or other})

    def reading(self) -> Reading:
        count, known = self.facts["count"], len(self.facts["routes"])
        if count not in (None, known):
            self.notes.warn(f"{known} of {count} routes are in the text")
        return super().reading()


class _Ibaddr(
    _Tool,
    lines=kinds(
        r"""
        fact  (?:GID (?P<gid>\S{2,45}) )?LID start <lid_start:lid> end <lid_end:lid>$
        left  \S
        """,
        **_WORDS,
    ),
    facts=("gid", "lid_start", "lid_end"),
):
    """Reads ``{"gid", "lid_start", "lid_end"}``."""


class _Ibtracert(
    _Tool,
    lines=kinds(
        r"""
        end   (?P<which>From|To) <type:type> \{<guid:guid>\} portnum <port:int> lid <lid:int>-\d{1,6} "<name:name>"$
        hop   \[<out:int>\] -> <type:type> port \{<guid:guid>\}\[<port:int>\] lid <lid:int>-\d{1,6} "<name:name>"$
        end   (?P<which>From|To) \{<guid:guid>\}\[<port:int>\]$
        hop   \[<out:int>\] -> \{<guid:guid>\}\[<port:int>\]$
        left  \S
        """,
        **_WORDS,
    ),
    facts={"from": None, "to": None, "hops": []},
):
    """Reads ``{"from", "to", "hops"}``.

    Ends: ``type``, ``guid`` (of the node), ``port``, ``lid``, ``name``. Each hop: ``out`` (the port it leaves the one
    before by), ``type``, ``guid`` (of the port it enters), ``in``, ``lid``, ``name``. ``to`` is None where the way
    was not found to its end.
    """

    def end(self, values: Values, line: str) -> None:
        self.facts[values["which"].lower()] = {**_place(values), "port": values["port"]}

    def hop(self, values: Values, line: str) -> None:
        self.facts["hops"].append({"out": values["out"], **_place(values), "in": values["port"]})


def _place(values: Values) -> Values:
    return {"type": "unknown", "guid": None, "lid": None, "name": None} | {
        name: value for name, value in values.items() if name in ("type", "guid", "lid", "name")
    }


class _Ibping(
    _Tool,
    lines=kinds(
        r"""
        pong   Pong from (?P<host>.{1,200}) \((?P<target>.{1,100}?)\): time <rtt:num> ms
        title  --- (?P<host>.{0,200}?) ?\((?P<target>.{1,100}?)\) ibping statistics ---
        fact   <sent:int> packets transmitted, <received:int> received, <loss:num>% packet loss, time \d{1,12} ms
        times  rtt min/avg/max = <rtt_min:num>/<rtt_avg:num>/<rtt_max:num> ms
        left   \S
        """
    ),
    facts={**dict.fromkeys(_OF_PING), "rtts": []},
):
    """Reads ``{"host", "target", "sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max", "rtts"}``.

    Without an answer the times are None: the tool prints zeros then, and exits with 0.
    """

    def pong(self, values: Values, line: str) -> None:
        self.facts["rtts"].append(values.pop("rtt"))
        self.facts.update(values)

    def title(self, values: Values, line: str) -> None:
        self.facts.update(target=values["target"], host=values["host"].strip() or self.facts["host"])

    def times(self, values: Values, line: str) -> None:
        if self.facts["received"]:
            self.facts.update(values)


class _Ibdiagnet(Tables, lines=_DIAGNET, facts=("version", "nodes", "switches", "hosts"), fresh={"level": None}):
    """Reads ``nodes``, ``switches``, ``hosts``, ``stages`` and ``complaints`` with how often each was printed."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[Values] = []
        #: Names of the two counts of a stage, and whether a complaint may continue.
        self.counts: tuple[str, ...] = ()
        self.open = False

    def take(self, line: str) -> bool:
        self.open = self.open and line.startswith("    ")
        return super().take(line)

    def order(self, values: Values, line: str) -> None:
        self.counts = ("errors", "warnings") if values["first"].lower() == "errors" else ("warnings", "errors")

    def stage(self, values: Values, line: str) -> bool:
        counts = dict(zip(self.counts, (values["first"], values["second"]), strict=False))
        if counts and not self.open:
            named = {"stage": values["stage"], "errors": counts["errors"], "warnings": counts["warnings"]}
            self.stages.append({**named, "comment": values["comment"]})
        return bool(counts) and not self.open

    def begin(self, values: Values, line: str) -> None:
        super().begin(values, line)
        self.open = True

    def more(self, values: Values, line: str) -> bool:
        """Take what follows a complaint, indented: it belongs to it."""
        if self.open:
            self.tables[-1]["text"] = f"{self.tables[-1]['text']} {line.strip()}"[:300]
        return self.open

    def reading(self) -> Reading:
        notes, counts = self.notes, dict[tuple[str, str], int]()
        for stage in self.stages:
            if stage["errors"] or stage["warnings"]:
                notes.warn(f"{stage['stage']}: {stage['errors']} errors, {stage['warnings']} warnings")
        for row in self.tables:
            key = row["level"], row["text"]
            if key in counts or len(counts) < _MOST:
                counts[key] = counts.get(key, 0) + 1
            if row["level"] == "error":
                notes.warn(row["text"])
        if not self.stages:
            notes.warn("the summary of the stages is missing: the run did not end, or the text is a part of it")
        complaints = [{"level": level, "text": text, "count": count} for (level, text), count in counts.items()]
        return notes.reading({**self.facts, "stages": self.stages, "complaints": complaints})


class _Ibswinfo(_Tool, lines=_SWINFO, facts=_OF_SWITCH):
    """Reads the vitals of the switch; None for missing values.

    Its ``name``, ``part``, ``serial``, ``product``, ``revision``, ``ports``, ``psid``, ``guid``,
    ``firmware``, ``uptime`` (s), ``psus`` ({"0": {"status", "part", "serial", "dc", "fan", "power"}}),
    ``temperature``, ``temperature_max``, ``fan_status``, ``fans`` and ``modules`` (by number).
    """

    def __init__(self) -> None:
        super().__init__()
        self.psu: int | None = None
        self.ruled = False

    def take(self, line: str) -> bool:
        if ibwords.complaint(line):
            self.left({}, line)
            return True
        return super().take(line)

    def rule(self, values: Values, line: str) -> None:
        self.ruled, self.psu = True, None

    def name(self, values: Values, line: str) -> bool:
        taken = self.ruled and self.facts["name"] is None and ":" not in line
        if taken:
            self.facts["name"] = line.strip()[:200]
        return taken

    def of_psu(self, values: Values, line: str) -> bool:
        """Take a value of a power supply, whose number is on its first line alone."""
        if line[0].isspace():
            values.setdefault("psu", self.psu)
        if (psu := values.get("psu")) is None:
            return False
        self.psu = psu if line.startswith("PSU") else self.psu
        part, value = _OF_PSU.get(values["part"], values["part"]), values["value"][:100]
        self.facts["psus"].setdefault(str(psu), {})[part] = number(value) if part == "power" else value or None
        return True

    def of_part(self, values: Values, line: str) -> None:
        part = "fans" if values["kind"] == "fan" else "modules"
        self.facts[part][str(values["at"])] = number(values["value"])

    def vital(self, values: Values, line: str) -> None:
        name, value = _VITALS.get(values["label"]), values["value"][:100]
        if name is None:
            if values["label"] != "warn threshold":
                self.notes.puzzled(line)
        elif name == "uptime":
            self.facts[name] = number(value) if values["unit"] == "sec" else _seconds(value)
        elif name in ("ports", "temperature", "temperature_max"):
            count = number(value)
            self.facts[name] = int(count) if count is not None and name == "ports" else count
        else:
            self.facts[name] = value or None


def _seconds(value: str) -> float | None:
    if (uptime := _UPTIME.fullmatch(value)) is None:
        return None
    days, hours, minutes, seconds = map(int, uptime.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


FORMATS = [
    Format("ibping", "ibping: round trips of management packets", _IBPING_LIKELY, _Ibping.parse, units=_PING_UNITS),
    Format("ibtracert", "ibtracert: the path from one port to another", _IBTRACERT_LIKELY, _Ibtracert.parse),
    Format("ibroute", "ibroute: the forwarding table of a switch", _IBROUTE_LIKELY, _Ibroute.parse),
    Format("ibaddr", "ibaddr: the addresses of a port", _IBADDR_LIKELY, _Ibaddr.parse),
    Format("ibdiagnet", _DIAGNET_TITLE, _IBDIAGNET_LIKELY, _Ibdiagnet.parse, aliases="ibdiagnet2"),
    Format("ibswinfo", _SWINFO_TITLE, _IBSWINFO_LIKELY, _Ibswinfo.parse, units=_VITAL_UNITS),
]
