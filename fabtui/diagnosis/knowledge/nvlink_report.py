"""Reports of the driver about an NVLink: Xids 144 to 150 of NVLink5, and Xid 74."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from fabtui.diagnosis.knowledge.toml_data import load

#: Numbers of the reports of NVLink5.
NVLINK5 = range(144, 151)
_HOPPER = 74
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40})\s{1,8}(?P<fatal>Fatal|Non-?fatal)\s{1,8}XC ?[0-9]{1,2}\s{1,8}i ?[0-9]{1,2}\s{1,8}"
    r"Link (?P<link>-?[0-9]{1,3})(?: ?[(\[](?P<words>0x[0-9a-f]{1,8}(?:\s{1,4}0x[0-9a-f]{1,8}){0,7})[)\]])?",
    re.ASCII | re.IGNORECASE,
)
_REGISTERS = re.compile(
    r"NVLink: (?P<fatal>fatal|non-?fatal)?.{0,60}? link (?P<link>[0-9]{1,3}) ?"
    r"\((?P<words>0x[0-9a-f]{1,8}(?:, ?0x[0-9a-f]{1,8}){0,7})\)",
    re.ASCII | re.IGNORECASE,
)
_WORD = re.compile(r"0x[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)


class NvlinkReport(NamedTuple):
    """A report about an NVLink."""

    code: int  #: Number of the Xid.
    link: int | None  #: Number of the NVLink on its GPU; None if it is about no single one.
    fatal: bool | None  #: Whether it is fatal; None if that is unknown.
    unit: str  #: Part of the GPU that reports, such as ``NETIR_LINK_EVT``; "" for Xid 74.
    words: tuple[int, ...]  #: Numbers in parentheses, see ``xids.toml``.

    @property
    def subcode(self) -> int | None:
        return self.words[0] >> 20 & 0x3F if self.words and self.code in NVLINK5 else None

    @property
    def status(self) -> int | None:
        return self.words[1] if len(self.words) > 1 and self.code in NVLINK5 else None

    @property
    def ends_programs(self) -> bool:
        """True if it ends programs without being fatal."""
        ends = load("xids")["nvlink5_unit"].get(self.unit, {}).get("ends", 0)
        return bool(self.fatal is False and ends & (self.status or 0))

    @property
    def what(self) -> str:
        """The event: ``the link went down (NETIR_LINK_EVT, fatal)``."""
        words = [self.unit] if self.unit else []
        if self.status:
            words.append(f"status {self.status:#x}")
        if self.fatal is not None:
            words.append("fatal" if self.fatal else "not fatal")
        text: str = load("xids")["nvlink5_unit"].get(self.unit, {}).get("text", "error")
        return f"{text} ({', '.join(words)})" if words else text

    @property
    def details(self) -> list[str]:
        """Meanings of sub-code or registers in NVIDIA's tables."""
        if self.code == _HOPPER:
            rows = [
                (row, [bit for bit in row["bits"] if self._has(row["register"], bit)]) for row in load("xids")["xid74"]
            ]
            return [
                f"register {row['register']}, bit {', '.join(map(str, bits))}: {row['text']}"
                for row, bits in rows
                if bits
            ]
        found = load("xids")["nvlink5_subcode"].get(str(self.subcode)) if self.unit.startswith("NETIR_LINK") else None
        return [f"sub-code {self.subcode}: {found}"] if found and self.words else []

    def _has(self, register: int, bit: int) -> bool:
        return register <= len(self.words) and bool(self.words[register - 1] >> bit & 1)


def nvlink_report(code: Any, text: str) -> NvlinkReport | None:
    """Return the report about an NVLink in the text of an Xid; None if there is none, or its form is another."""
    pattern = _REGISTERS if code == _HOPPER else _NVLINK5 if code in NVLINK5 else None
    found = pattern.search(text[:1000]) if pattern else None
    if not found:
        return None
    values = found.groupdict()
    link = int(values["link"])
    word = (values["fatal"] or "").lower()
    numbers = tuple(int(one, 16) for one in _WORD.findall(values["words"] or ""))
    unit = (values.get("unit") or "").upper()
    return NvlinkReport(int(code), link if link >= 0 else None, word == "fatal" if word else None, unit, numbers)
