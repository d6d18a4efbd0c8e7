"""Common parts of outputs of InfiniBand tools: lines, complaints, numbers, widths and speeds."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Optional

from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.lines import without_escapes
from fabtui_node.system import sysfs

#: Longer lines are cut: no tool prints such.
LINE_LIMIT = 4096

#: Gb/s of a lane as the tools print them (with the bits of the line code), and as data rates of links are named.
LANE_RATES: Dict[float, float] = {
    2.5: 2.5, 5.0: 5.0, 10.0: 10.0, 14.0625: 14.0, 25.78125: 25.0, 53.125: 50.0, 106.25: 100.0, 212.5: 200.0,
}  # fmt: skip
#: Gb/s of a lane by the name of the speed.
SPEED_NAMES: Dict[str, float] = {
    "SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip

#: Counters of a port by where they stop when read in their short form (``perfquery`` without ``-x``), each followed
#: by the name that older tools have for it.
_LIMITED: Dict[int, str] = {
    0xF: "LocalLinkIntegrityErrors LinkIntegrityErrors ExcessiveBufferOverrunErrors ExcBufOverrunErrors",
    0xFF: "LinkErrorRecoveryCounter LinkRecovers LinkDownedCounter LinkDowned PortXmitConstraintErrors"
    " XmtConstraintErrors PortRcvConstraintErrors RcvConstraintErrors",
    0xFFFF: "SymbolErrorCounter SymbolErrors PortRcvErrors RcvErrors PortRcvRemotePhysicalErrors RcvRemotePhysErrors"
    " PortRcvSwitchRelayErrors RcvSwRelayErrors PortXmitDiscards XmtDiscards QP1Dropped VL15Dropped",
    0xFFFFFFFF: "PortXmitData XmtData PortRcvData RcvData PortXmitPkts XmtPkts PortRcvPkts RcvPkts PortXmitWait",
}
COUNTER_LIMITS: Dict[str, int] = {name: limit for limit, names in _LIMITED.items() for name in names.split()}
#: Units of counters.
COUNTER_UNITS = {"PortXmitData": "words of 4 B", "PortRcvData": "words of 4 B", "PortXmitWait": "ticks"}
#: Physical states of a port as verbs and netlink name them, in ibstat's words.
PHYSICAL_STATES = {"LINK_UP": "LinkUp", "POLLING": "Polling", "DISABLED": "Disabled", "SLEEP": "Sleep"}

_COMPLAINT = re.compile(
    r"ibpanic:|ibwarn:|iberror|fatal error|\bfailed\b|can't|cannot|no such|permission denied|bad status|timed out"
    r"|not implemented|not found|no (ib )?devices|invalid argument|not permitted|operation not",
    re.IGNORECASE,
)
_PROMPT = re.compile(r"\[?[\w.-]{1,64}@[\w.-]{1,64}[ :][^#$]{0,120}[#$] ")
#: The lines around the outputs that are kept as samples.
_HEADING = re.compile(r"# (SIM_HOST=|exit status -?[0-9]{1,4}$)", re.ASCII)
_INTEGER = re.compile(r"[0-9]{1,20}", re.ASCII)

#: Return the decimal or hexadecimal number that a word is, else None.
integer = sysfs.to_integer


def lines(text: str) -> Iterator[str]:
    """Yield the lines of an output, without colours, shell prompts and what samples have around them."""
    for line in without_escapes(text).splitlines():
        line = line[:LINE_LIMIT]
        if line.strip() and not _HEADING.match(line) and not _PROMPT.match(line):
            yield line


def complaint(line: str) -> bool:
    return _COMPLAINT.search(line) is not None


def leftover(line: str, notes: Notes) -> None:
    """Keep a line that is not part of an output: a complaint as a warning, anything else as not understood."""
    (notes.warn if complaint(line) else notes.puzzled)(line)


def digits(word: Optional[str]) -> Optional[int]:
    """Return the decimal number that a word is, else None."""
    return int(word) if word is not None and _INTEGER.fullmatch(word) else None


def guid(word: Optional[str]) -> Optional[str]:
    """Return a GUID as ibstat writes it, 0x and 16 digits; None for anything else."""
    digits_ = (word or "").strip().lower()
    digits_ = digits_[2:] if digits_.startswith("0x") else digits_
    digits_ = digits_.replace(":", "")
    if not re.fullmatch("[0-9a-f]{1,16}", digits_) or not digits_.strip("0"):
        return None
    return "0x" + digits_.rjust(16, "0")


def lanes(word: Optional[str]) -> Optional[int]:
    """Return the lanes of a width such as ``4X``, None for what is not a width."""
    match = re.fullmatch(r"(1|2|4|8|12)[xX]", (word or "").strip())
    return int(match[1]) if match else None


def gbps(word: Optional[str]) -> Optional[float]:
    """Return the Gb/s in a text such as ``53.125 Gbps``, or None."""
    match = re.match(r"\s*([0-9]{1,6}(?:\.[0-9]{1,9})?) Gbps", word or "", re.ASCII)
    return float(match[1]) if match else None


def link_rate(width: Optional[int], lane: Optional[float]) -> Optional[float]:
    """Return the data rate of a link in Gb/s, from its lanes and the Gb/s of one as the tools print it."""
    return None if width is None or lane is None else width * LANE_RATES.get(lane, lane)


def saturated(counters: Dict[str, int]) -> List[str]:
    """Return the counters, read in their short form, that are at their limit: more may have happened."""
    return [name for name, count in counters.items() if count == COUNTER_LIMITS.get(name)]
