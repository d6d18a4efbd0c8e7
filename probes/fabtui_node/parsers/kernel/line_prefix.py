"""The beginnings of a line of the kernel's log: all the ways in which time, host and level are written before it."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"

_KMSG = re.compile(r"([0-9]{1,6}),[0-9]{1,12},([0-9]{1,18}),[^;]{0,40};(.{0,4000})", re.DOTALL)
_LEVEL = re.compile(r"<[0-9]{1,4}>|(?:kern|user|mail|daemon|auth|syslog|local[0-7]) {0,3}:[a-z]{3,6} {0,3}: {0,2}")
_UPTIME = re.compile(r"\[ {0,12}([0-9]{1,12}\.[0-9]{1,9})\] ?")
_CALLER = re.compile(r"\[ {0,10}[TC][0-9]{1,10}\] ?")
_WALL = re.compile(r"\[(%s %s [ 0-9][0-9] [0-9:]{8} [0-9]{4}|%s)\] ?" % (_DAY, _MONTH, _ISO))
_STAMP = re.compile(
    r"(%s [ 0-9]?[0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?|(?:%s )?%s(?: [A-Z]{3,5})?) " % (_MONTH, _DAY, _ISO)
)
_HOST = re.compile(r"([A-Za-z0-9_.:-]{1,64}) kernel(?:\[[0-9]{1,10}\])?: ?|kernel: ?")


class Line(NamedTuple):
    """A line of the log.

    Attributes:
        time: The time as it is written, in the clock and zone of the node; None where only the uptime is.
        uptime: Seconds since the node was started, None where not written.
        text: What is behind.
    """

    time: Optional[str]
    uptime: Optional[float]
    text: str


def split(line: str) -> Line:
    """Take the beginnings off a line of ``dmesg`` (plain, ``-T``, iso, ``-x``, ``-r``), syslog, journal or kmsg."""
    line = line[:4000]
    kmsg = _KMSG.fullmatch(line)
    if kmsg:
        return Line(None, int(kmsg.group(2)) / 1e6, kmsg.group(3))
    time: Optional[str] = None
    uptime: Optional[float] = None
    rest = line
    for _ in range(8):
        wall, stamp, up = _WALL.match(rest), _STAMP.match(rest), _UPTIME.match(rest)
        plain = _LEVEL.match(rest) or _CALLER.match(rest) or _HOST.match(rest)
        if wall or stamp:
            found = wall or stamp
            assert found is not None
            time = time or found.group(1)
        elif up:
            found = up
            uptime = float(up.group(1)) if uptime is None else uptime
        elif plain:
            found = plain
        else:
            break
        rest = rest[found.end() :]
    return Line(time, uptime, rest.lstrip(" "))


def has_start(line: str) -> bool:
    """Return True if a line begins like those of the kernel's log."""
    found = split(line)
    return found.time is not None or found.uptime is not None


def is_kernels(line: str) -> bool:
    """Return True if a line begins with a mark of the kernel: its facility, its uptime or its name."""
    found = split(line)
    return found.uptime is not None or bool(_LEVEL.match(line) and "kern" in line[:8]) or " kernel: " in line[:120]
