"""Logs of NCCL (``NCCL_DEBUG=INFO``): transports between ranks, NICs, warnings."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.lines import plain_lines
from fabtui_node.parsers.nccl import log_lines
from fabtui_node.parsers.nccl.log_lines import Line

_BARE = re.compile(r"^\s*NCCL (INFO|WARN) (.*)$")
_USING = re.compile(r"NET/(\S{1,40}?) : Using((?: \[\d{1,4}\][^\s;]{1,120})+)( \[RO\])?(?:\s*; OOB (\S{1,120}))?")
_ENTRY = re.compile(r"\[(\d{1,4})\]([^\s:]+):([^\s;]+)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (\S{1,120})")
_NETWORK = re.compile(r"Using network (.{1,40}?)\s*$")
_VERSION = re.compile(r"NCCL version (\d[\w.]{0,20})(?:\+cuda([\d.]{1,10}))?")
_COMM = re.compile(
    r"(?:comm|nccl\w*) ?(?:comm )?0x[0-9a-fA-F]+ rank (\d{1,9}) nranks (\d{1,9}) cudaDev (\d{1,5})(?: nvmlDev"
    r" (\d{1,5}))?"
    r"(?: busId ([0-9a-fA-F]{1,12}))?(?: commId (\w{1,40}))?.{0,120}- Init (START|COMPLETE)"
)
_CHANNELS = re.compile(
    r"(?P<coll>\d{1,5}) coll channels(?:, (?P<collnet>\d{1,5}) collnet channels)?"
    r"(?:, (?P<nvls>\d{1,5}) nvls channels)?, (?P<p2p>\d{1,5}) p2p channels"
)
_NODES = re.compile(r"\bnNodes (\d{1,7})\b")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for (?:HCA|GPU) ?(\d{1,4})?(?: '(\S{1,60})')?")
_RETURNS = re.compile(r"^\s*(\S{1,120}:\d{1,7}) -> (\d{1,3})\b")
_ENV = re.compile(r"\b(NCCL_[A-Z0-9_]{2,60}) set (?:by environment )?to (\S{1,120}?)\.?\s*$")
_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>\S+) )?with (?:error (?P<e0>\d{1,5}), ?opcode (?P<o0>\d{1,5}), len "
    r"(?P<l0>\d{1,12}),"
    r" vendor err (?P<v0>\d{1,7})|status=(?:(?P<sname>\w+)\()?(?P<s>\d{1,5})\)? opcode=(?:\w+\()?(?P<o>\d{1,5})\)?"
    r"(?: len=(?P<l>\d{1,12}))? vendor[ _]err[= ](?P<v>\d{1,7}))(?:.{0,20}?\((?P<direction>Recv|Send|Read|Write)\))?"
)
_PEER = re.compile(
    r"(?:Connect to|connect to|remote peer|Call to recv from|Call to send to|from peer) (\S{1,120}<\d{1,6}>)"
)
#: What the result codes in ``file:line -> N`` mean.
_RESULTS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
    7: "in progress",
}
#: Maximum number of pairs whose transports are kept.
_MOST_EDGES = 4096


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.lines = 0
        self.edges: dict[tuple[int, int], dict[str, Any]] = {}
        self.values: dict[str, Any] = {
            "version": None,
            "cuda": None,
            "hosts": [],
            "nranks": None,
            "nodes": None,
            "network": None,
            "bootstrap": None,
        }
        self.hosts: dict[str, None] = {}
        self.nics: list[dict[str, Any]] = []
        self.ranks: dict[int, dict[str, Any]] = {}
        self.warns: list[dict[str, Any]] = []
        self.returns: dict[int, int] = {}
        self.channels: dict[str, int] | None = None
        self.gdr: dict[str, str] = {}
        self.env: dict[str, str] = {}
        self._wrapped = False

    def line(self, line: str) -> None:
        """Take one line in."""
        found = log_lines.parse_line(line)
        bare = None if found else _BARE.match(line)
        if version := _VERSION.search(line):
            self.values["version"], self.values["cuda"] = version[1], version[2] or self.values["cuda"]
        if found is None and bare is None:
            if self._wrapped and line.strip() and self.warns:
                self.warns[-1]["text"] = f"{self.warns[-1]['text']} {line.strip()}"[:400]
            self._wrapped = False
            return
        self.lines += 1
        if found:
            self.hosts.setdefault(found.host)
        level, text = (found.level, found.text) if found else (bare[1], bare[2]) if bare else ("", "")
        self._wrapped = level in ("WARN", "ERROR")
        if self._wrapped:
            self._warn(found, text)
        else:
            self._info(found, text)

    def _warn(self, found: Line | None, text: str) -> None:
        if len(self.warns) < 500:
            host, device, at = (None, None, None) if found is None else (found.host, found.device, found.where)
            self.warns.append({"host": host, "device": device, "at": at, "text": text.strip()[:400]})

    def _info(self, found: Line | None, text: str) -> None:
        if channel := log_lines.parse_channel(text):
            self._edge(channel, found)
        elif using := _USING.search(text):
            self._nics(using, found)
        elif comm := _COMM.search(text):
            self._comm(comm, found)
        elif channels := _CHANNELS.search(text):
            self.channels = {name: int(count) for name, count in channels.groupdict().items() if count}
        elif returns := _RETURNS.match(text):
            code = int(returns[2])
            self.returns[code] = self.returns.get(code, 0) + 1
        elif network := _NETWORK.search(text):
            self.values["network"] = network[1]
        elif bootstrap := _BOOTSTRAP.search(text):
            self.values["bootstrap"] = self.values["bootstrap"] or bootstrap[1]
        elif gdr := _GDR.search(text):
            self.gdr[gdr[3] or gdr[2] or "?"] = gdr[1].lower()
        elif env := _ENV.search(text):
            self.env[env[1]] = env[2]
        if nodes := _NODES.search(text):
            self.values["nodes"] = int(nodes[1])

    def _edge(self, found: log_lines.Channel, line: Line | None) -> None:
        src, dst, via = found.src, found.dst, found.via
        if (src, dst) not in self.edges and len(self.edges) >= _MOST_EDGES:
            return
        edge = self.edges.setdefault((src, dst), {"src": src, "dst": dst, "via": via, "channels": [], "ways": []})
        if found.name not in edge["channels"] and len(edge["channels"]) < 64:
            edge["channels"].append(found.name)
        if via not in edge["ways"] and len(edge["ways"]) < 16:
            edge["ways"].append(via)
        # A pair may mix transports; the worst one is shown.
        edge["via"] = log_lines.worst(edge["ways"])
        if line is not None and found.direction != "receive":
            self.ranks.setdefault(src, {"rank": src, "host": line.host, "device": line.device, "init": "unknown"})

    def _nics(self, found: re.Match[str], line: Line | None) -> None:
        names = []
        for _, name, rest in _ENTRY.findall(found[2]):
            layer = rest.partition("/")[2] or None
            names.append({"name": name, "layer": layer, "port": rest.partition("/")[0] if layer else None})
        entry = {
            "net": found[1],
            "nics": [entry["name"] for entry in names],
            "layers": [entry["layer"] for entry in names],
            "oob": found[4],
            "host": None if line is None else line.host,
        }
        if entry not in self.nics and len(self.nics) < 200:
            self.nics.append(entry)
        layers = {name["layer"] for name in names if name["layer"]}
        if len(layers) > 1:
            odd = [name["name"] for name in names if name["layer"] == "RoCE"]
            self.notes.warn(f"InfiniBand and RoCE are mixed: {', '.join(odd)} (see NCCL_IB_HCA)")

    def _comm(self, found: re.Match[str], line: Line | None) -> None:
        rank = int(found[1])
        self.values["nranks"] = max(self.values["nranks"] or 0, int(found[2]))
        kept = self.ranks.setdefault(rank, {"rank": rank, "host": None, "device": None, "init": "unknown"})
        kept.update(host=None if line is None else line.host, device=int(found[3]), bus=found[5])
        if kept["init"] != "complete":
            kept["init"] = {"START": "started", "COMPLETE": "complete"}[found[7]]

    def reading(self) -> Reading:
        """Return what was found."""
        for warn in self.warns:
            _explain(warn)
            self.notes.warn(
                f"{warn['host'] or '?'} [{'?' if warn['device'] is None else warn['device']}] {warn['text']}"
            )
        hung = [rank for rank, found in sorted(self.ranks.items()) if found["init"] == "started"]
        if hung and any(found["init"] == "complete" for found in self.ranks.values()):
            self.notes.warn(f"ranks that began to initialise and did not end: {', '.join(map(str, hung[:20]))}")
        if any(edge["via"].startswith("NET/Socket") for edge in self.edges.values()):
            self.notes.warn("pairs are connected over sockets (TCP), not over RDMA")
        if not self.lines:
            self.notes.warn("no line of NCCL")
        self.values["hosts"] = list(self.hosts)[:4096]
        first = log_lines.root([warn["text"] for warn in self.warns])
        return self.notes.reading(
            {
                **self.values,
                "first_cause": first,
                "nics": self.nics,
                "edges": [self.edges[key] for key in sorted(self.edges)],
                "ranks": [self.ranks[rank] for rank in sorted(self.ranks)][:4096],
                "channels": self.channels,
                "gpu_direct": self.gdr,
                "environment": self.env,
                "warns": self.warns,
                "returns": [
                    {"code": code, "means": _RESULTS.get(code, "unknown"), "lines": count}
                    for code, count in sorted(self.returns.items())
                ],
            }
        )


def _explain(warn: dict[str, Any]) -> None:
    """Add the peer that a warning names, and the codes of a failed completion."""
    text = warn["text"]
    if peer := _PEER.search(text):
        warn["peer"] = peer[1]
    if done := _COMPLETION.search(text):
        warn["peer"] = done["peer"] or warn.get("peer")
        warn["error"] = int(done["e0"] or done["s"])
        warn["vendor_err"] = int(done["v0"] or done["v"])
        warn["direction"] = done["direction"]


def parse(text: str) -> Reading:
    """Return ``edges`` (ranks ``src``, ``dst``; worst transport ``via``), ``nics``, ``ranks``, ``warns``, ``returns``.

    Ranks are those of a communicator; a log of several communicators mixes them. ``first_cause`` is the first warning
    that is not a consequence of another.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    return parser.reading()


def likely(text: str) -> float:
    """Return the likelihood that a text is a log of NCCL."""
    found = len(re.findall(r"\bNCCL (?:INFO|WARN|TRACE) ", text))
    if not found:
        return 0.0
    lines = sum(1 for line in text.splitlines() if line.strip())
    return 0.5 + 0.4 * min(1.0, found / max(lines, 1))


FORMATS = [
    Format(
        name="nccl-log",
        title="NCCL's log (NCCL_DEBUG=INFO): transports between ranks, NICs, warnings",
        argv=(),
        units={},
        likely=likely,
        parse=parse,
    )
]
