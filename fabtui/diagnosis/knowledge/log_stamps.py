"""Time stamps of lines of logs: ISO 8601, those of the kernel's log and syslog, of PyTorch and glog (``E704``)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: PyTorch prints the month without a leading zero (``E704`` is 4 July), glog with one (``E0704``). ``dmesg -T`` prints
#: ``Fri Nov 20 10:12:40 2026``, syslog ``Nov 20 10:12:40``, the Fabric Manager ``Nov 20 2026 10:12:40``.
_STAMP = re.compile(
    r"(?P<iso>\d{4}[-/]\d\d[-/]\d\d)[T ](?P<at>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    r"|(?<![A-Za-z0-9_])[IWEF](?P<month>0?[1-9]|1[0-2])(?P<day>[0-3]\d) (?P<clock>\d\d:\d\d:\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
    rf"|(?<![A-Za-z])(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<number>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?"
    r"(?P<hour>\d\d:\d\d:\d\d)(?:\.(?P<second>\d{1,9}))?(?: (?P<last>(?:19|20)\d\d)\b)?",
    re.ASCII,
)
#: What each stamp has; it is found in half the time.
TIME = re.compile(r"\d\d:\d\d:\d\d", re.ASCII)
#: Length of a line in which its time stamp is looked for.
_LONGEST = 200


def stamp_of(line: str) -> datetime | None:
    """Return the first time stamp of a line, by the clock of this machine's zone; None without a valid one.

    A stamp without a zone is one of this zone. One without a year is of this year or, if it were in the future, of the
    last year that has its day.
    """
    head = line[:_LONGEST]
    found = _STAMP.search(head) if TIME.search(head) else None
    if found is None:
        return None
    part = (found["part"] or found["fraction"] or found["second"] or "0")[:6].ljust(6, "0")
    if found["iso"]:
        zone = (found["zone"] or "").replace("Z", "+00:00")
        time = _valid(f"{found['iso'].replace('/', '-')}T{found['at']}.{part}{zone}")
        return None if time is None else time.astimezone().replace(tzinfo=None) if zone else time
    month = _MONTHS.index(found["name"]) + 1 if found["name"] else int(found["month"])
    day = f"{month:02}-{int(found['day'] or found['number']):02}T{found['clock'] or found['hour']}.{part}"
    if year := found["year"] or found["last"]:
        return _valid(f"{year}-{day}")
    now = datetime.now()
    # A 29th of February may lie up to eight years back.
    times = (_valid(f"{now.year - back}-{day}") for back in range(9))
    return next((time for time in times if time is not None and time <= now + timedelta(days=1)), None)


def seconds_of(line: str) -> float | None:
    """Return the first time stamp of a line in s since the epoch, or None."""
    time = stamp_of(line)
    try:
        return None if time is None else time.timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _valid(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
