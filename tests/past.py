"""A history for tests: four nodes, a GPU that degrades after it moved, a port that flaps, and a new finding."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fabtui.history.components import Component, Counted, PartKind
from fabtui.history.file import HistoryWriter, Noted, PartShare, SessionEntry, reading
from fabtui.history.query import SiteHistory

DAY = 86400.0
#: Start of the first session, 60 days before those that tests make, and number of sessions, two days apart.
BEGAN, SESSIONS = 1_700_000_000.0 - 60 * DAY, 30
NODES = ("n012", "n060", "n061", "n062")
#: GPU that was at n012:3 for ten sessions, and is at n061:3 since.
MOVED = "GPU-5d1a7c33-0000-4000-8000-000000000003"
_STAYED = 10
PORT = "0x506b4b0300aa0001"


def entry(number: int, later: float = 0.0) -> SessionEntry:
    """Return a session of the history, that many seconds later."""
    started = BEGAN + 2 * DAY * number + later
    place = "n012:3" if number < _STAYED else "n061:3"
    gpu = Component(PartKind.GPU, MOVED, place)
    port = Component(PartKind.PORT, PORT, "n060 mlx5_0/1")
    others = [Component(PartKind.NODE, f"machine-{node}", node) for node in NODES]
    worse = max(0, number - _STAYED) * 0.025
    shares = [PartShare(gpu, "p2p same-rail", 1.0 - worse, int(worse > 0.3))]
    shares += [PartShare(one, "p2p same-rail", 1.0 + 0.004 * (number % 3), 0) for one in others]
    findings = []
    if number in (5, 6, 8, 9, 12, 24, 26, 28):
        findings.append(Noted("flap", "FT030", "warn", port, "n060 mlx5_0", "n060 mlx5_0/1: link went down"))
    if worse > 0.3:
        findings.append(
            Noted("slow", "FT020", "bad", gpu, place, f"{place} is slow: {100 - 100 * worse:.0f} % of usual")
        )
    if number == SESSIONS - 1:
        findings.append(Noted("new", "FT120", "warn", others[3], "n062", "n062: memlock is 64 KiB"))
    counted = [Counted(gpu, "replay", 40 + 3 * max(0, number - _STAYED) ** 2, 2)]
    return SessionEntry(
        f"session-{number}",
        started,
        started + 240,
        f"session-{number}.jsonl.gz",
        "0.3.0",
        NODES,
        16,
        int(bool(findings)),
        "",
        "",
        components=[gpu, port, *others],
        shares=shares,
        findings=findings,
        counted=counted,
    )


def write_past(path: Path, later: float = 0.0) -> Path:
    """Write the history into a file, and return its path."""
    HistoryWriter(path).add([entry(number, later) for number in range(SESSIONS)])
    return path


@contextlib.contextmanager
def open_history(path: Path) -> Iterator[SiteHistory]:
    with reading(path) as base:
        assert base is not None
        yield SiteHistory(base)
