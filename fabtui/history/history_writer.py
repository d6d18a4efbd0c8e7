"""Writes sessions into the history, and keeps its size bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fabtui.history.component import Component
from fabtui.history.course import DAY
from fabtui.history.history_file import LOCK_PATIENCE, writing
from fabtui.history.parts import Counted
from fabtui.history.session_entry import SessionEntry

if TYPE_CHECKING:
    import sqlite3

#: Size (B) of the file beyond which detail of the oldest sessions is dropped.
MOST_BYTES = 200 << 20
#: Share of the size that is freed at once, so that not every session thins it again.
_SPARE = 0.1
#: Number of sessions that are thinned in one step.
_STEP = 200
#: State of sessions whose detail is being dropped.
_MARKED = 2
#: What drops the detail of marked sessions: what days saw, and findings, stay.
_DROP_DETAIL = (
    "DELETE FROM seen WHERE session IN (SELECT number FROM session WHERE thinned = 2)",
    "DELETE FROM share WHERE session IN (SELECT number FROM session WHERE thinned = 2)",
    "DELETE FROM usual WHERE session IN (SELECT number FROM session WHERE thinned = 2)",
    "DELETE FROM xid WHERE session IN (SELECT number FROM session WHERE thinned = 2)",
)
#: What drops the rest of them.
_DROP_REST = (
    "DELETE FROM finding WHERE session IN (SELECT number FROM session WHERE thinned = 2)",
    "DELETE FROM session WHERE thinned = 2",
)
#: What drops the sums of days before one, and of days without a session.
_DROP_DAYS = (
    "DELETE FROM share_day WHERE day < ? OR sessions < 1",
    "DELETE FROM reading WHERE day < ? OR sessions < 1",
    "DELETE FROM seen_day WHERE day < ? OR sessions < 1",
    "DELETE FROM usual_day WHERE day < ? OR sessions < 1",
)


class HistoryWriter:
    """Writes sessions into the file of a site.

    Args:
        path: The file.
        most_bytes: Size beyond which detail of the oldest sessions is dropped.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._most = most_bytes

    def add(self, entries: Iterable[SessionEntry], patience: float = LOCK_PATIENCE) -> int:
        """Add sessions, all or none; return how many are new or longer than before.

        Raises:
            InputError: The file cannot be written: what it held stays.
        """
        added = 0
        with writing(self.path, patience) as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                batch = _Batch(base)
                for entry in entries:
                    added += batch.add(entry)
                base.execute("COMMIT")
            except BaseException:
                base.rollback()
                raise
            if added:
                _thin(base, self._most)
        return added


class _Batch:
    """Sessions of one transaction."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self._words: dict[str, int] = {}
        self._components: dict[tuple[str, str, bool], int] = {}

    def add(self, entry: SessionEntry) -> bool:
        base = self._base
        known = base.execute("SELECT number, ended FROM session WHERE key = ?", (entry.key,)).fetchone()
        if known is not None:
            if known[1] >= entry.ended:
                return False
            # It was resumed: its recording is longer now.
            self._forget(known[0])
        row = (entry.key, entry.started, entry.ended, entry.recording, entry.software, _json(entry.nodes))
        row += (entry.endpoints, entry.exit_code, entry.text, entry.lab)  # type: ignore[assignment]
        more = (_json(entry.verdicts), _json(entry.versions), _json(entry.settings))
        number = base.execute(
            "INSERT INTO session(key, started, ended, recording, software, nodes, endpoints, exit, text, lab,"
            " verdicts, versions, settings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, *more),
        ).lastrowid
        assert number is not None
        self._add_places(number, entry)
        self._add_shares(number, entry)
        self._add_readings(entry)
        self._add_usual(number, entry)
        self._add_findings(number, entry)
        return True

    def _word(self, text: str) -> int:
        if (found := self._words.get(text)) is None:
            self._base.execute("INSERT OR IGNORE INTO word(text) VALUES (?)", (text,))
            (found,) = self._base.execute("SELECT number FROM word WHERE text = ?", (text,)).fetchone()
            self._words[text] = found
        return found

    def _component(self, one: Component) -> int:
        key = str(one.kind), one.identity, one.by_name
        if (found := self._components.get(key)) is None:
            self._base.execute("INSERT OR IGNORE INTO component(kind, identity, by_name) VALUES (?, ?, ?)", key)
            (found,) = self._base.execute(
                "SELECT number FROM component WHERE kind = ? AND identity = ? AND by_name = ?", key
            ).fetchone()
            self._components[key] = found
        return found

    def _add_places(self, session: int, entry: SessionEntry) -> None:
        links = {one.component for one in entry.counted}
        rows = {self._component(one): self._word(one.place) for one in (*entry.components, *links)}
        self._base.executemany(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", [(one, session, at) for one, at in rows.items()]
        )
        self._base.executemany(
            "INSERT INTO stay VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " since = min(since, excluded.since), until = max(until, excluded.until)",
            [(one, at, entry.started, entry.started) for one, at in rows.items()],
        )
        self._base.executemany(
            "INSERT INTO seen_day VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET sessions = sessions + 1",
            [(one, int(entry.started // DAY)) for one in rows],
        )
        self._base.executemany(
            "INSERT INTO carrier VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
            [(self._component(gpu), self._component(port), entry.started) for gpu, port in entry.carriers],
        )

    def _add_shares(self, session: int, entry: SessionEntry) -> None:
        day = int(entry.started // DAY)
        rows = [
            (self._component(one.component), self._word(one.kind), round(one.share, 4), one.pairs, one.bad)
            for one in entry.shares
        ]
        self._base.executemany(
            "INSERT OR REPLACE INTO share VALUES (?, ?, ?, ?, ?, ?)",
            [(part, kind, session, share, pairs, bad) for part, kind, share, pairs, bad in rows],
        )
        self._base.executemany(
            "INSERT INTO share_day VALUES (?, ?, ?, ?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET"
            " first = min(first, excluded.first), total = total + excluded.total,"
            " lowest = min(lowest, excluded.lowest), sessions = sessions + 1, bad = bad + excluded.bad",
            [(part, kind, day, entry.started, share, share, int(bad > 0)) for part, kind, share, _, bad in rows],
        )

    def _add_usual(self, session: int, entry: SessionEntry) -> None:
        values = {(self._word(one.kind), one.size): one.value for one in entry.usual}
        self._base.executemany(
            "INSERT INTO usual VALUES (?, ?, ?, ?)", [(session, *key, value) for key, value in values.items()]
        )
        self._base.executemany(
            "INSERT INTO usual_day VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
            " first = min(first, excluded.first), total = total + excluded.total, sessions = sessions + 1",
            [(*key, int(entry.started // DAY), entry.started, value) for key, value in values.items()],
        )

    def _add_readings(self, entry: SessionEntry) -> None:
        day, hours = int(entry.started // DAY), max(0.0, entry.ended - entry.started) / 3600
        self._base.executemany(
            "INSERT INTO reading VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
            " first = min(first, excluded.first),"
            " total = CASE WHEN excluded.time >= time THEN excluded.total ELSE total END,"
            " time = max(time, excluded.time),"
            " increase = increase + excluded.increase, hours = hours + excluded.hours, sessions = sessions + 1",
            [self._reading(one, day, entry, hours) for one in entry.counted],
        )

    def _reading(self, one: Counted, day: int, entry: SessionEntry, hours: float) -> tuple[object, ...]:
        part, name = self._component(one.component), self._word(one.name)
        return part, name, day, entry.started, entry.ended, one.total, one.increase, hours

    def _add_findings(self, session: int, entry: SessionEntry) -> None:
        self._base.executemany(
            "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    session,
                    self._word(one.key),
                    self._word(one.rule),
                    one.severity,
                    None if one.component is None else self._component(one.component),
                    self._word(one.subject),
                    self._word(one.title),
                )
                for one in entry.findings
            ],
        )
        self._base.executemany(
            "INSERT OR REPLACE INTO xid VALUES (?, ?, ?, ?)",
            [(self._component(one.component), session, one.xid, one.times) for one in entry.xids],
        )

    def _forget(self, session: int) -> None:
        """Remove a session. What its day saw of it is corrected; readings are, as totals, replaced by later ones."""
        base = self._base
        (started,) = base.execute("SELECT started FROM session WHERE number = ?", (session,)).fetchone()
        day = int(started // DAY)
        base.execute(
            "UPDATE share_day SET total = total - gone.share, sessions = sessions - 1,"
            " bad = share_day.bad - (gone.bad > 0)"
            " FROM share AS gone WHERE gone.session = ? AND day = ?"
            " AND share_day.component = gone.component AND share_day.kind = gone.kind",
            (session, day),
        )
        base.execute(
            "UPDATE usual_day SET total = total - gone.value, sessions = sessions - 1 FROM usual AS gone"
            " WHERE gone.session = ? AND day = ? AND usual_day.kind = gone.kind AND usual_day.size = gone.size",
            (session, day),
        )
        base.execute(
            "UPDATE seen_day SET sessions = sessions - 1"
            " WHERE day = ? AND component IN (SELECT component FROM seen WHERE session = ?)",
            (day, session),
        )
        for statement in _DROP_DAYS:
            base.execute(statement, (0,))
        base.execute("UPDATE session SET thinned = ? WHERE number = ?", (_MARKED, session))
        for statement in (*_DROP_DETAIL, *_DROP_REST):
            base.execute(statement)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _size(base: sqlite3.Connection) -> int:
    pages, free, size = (
        base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _thin(base: sqlite3.Connection, most: int) -> None:
    """Drop detail of the oldest sessions until the file is small enough; at last these sessions, and what days saw."""
    if _size(base) <= most:
        return
    while _size(base) > most * (1 - _SPARE):
        oldest = base.execute(
            "SELECT number, started, thinned FROM session ORDER BY thinned, started LIMIT ?", (_STEP,)
        )
        rows = oldest.fetchall()
        if not rows:
            break
        again = all(thinned for *_, thinned in rows)
        base.execute("BEGIN IMMEDIATE")
        base.executemany("UPDATE session SET thinned = 2 WHERE number = ?", [(number,) for number, *_ in rows])
        for statement in (*_DROP_DETAIL, *(_DROP_REST if again else ())):
            base.execute(statement)
        if again:
            before = int(rows[-1][1] // DAY)
            for statement in _DROP_DAYS:
                base.execute(statement, (before,))
        base.execute("UPDATE session SET thinned = 1 WHERE thinned = 2")
        base.execute("COMMIT")
    # As a script: `execute` would stop after the first page.
    base.executescript("PRAGMA incremental_vacuum")
