"""The file of the history: its tables, how several sessions open it at a time, and how its size stays bounded."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtui.errors import InputError
from fabtui.history.components import Component
from fabtui.paths import UnsafeFileError, open_strictly, private_folder, wait_for_lock
from fabtui.paths import history_file as history_file
from fabtui.sanitize import one_line

try:
    import sqlite3
except ModuleNotFoundError:
    # Python was built where SQLite was missing, as happens on login nodes.
    _WITHOUT_SQLITE = "this Python was built without SQLite (module sqlite3); use a different one"
else:
    _WITHOUT_SQLITE = ""

if TYPE_CHECKING:
    # It needs numpy, which nobody who reads the file does.
    from fabtui.history.entry import SessionEntry

#: Seconds of a day, the step in which sessions are summed up and compared.
DAY = 86400.0
#: Marks a file of SQLite as one of ours ("fbtu").
_APPLICATION = 0x66627475
#: What to do with a file that cannot be read, unless it is for want of room.
_REMEDY, _FULL = "; move it away, and add your recordings again", "its disk is full"
#: Time (s) that another writer gets.
LOCK_PATIENCE = 5.0
#: Pages (4 KiB) of the cache of a connection, as a negative number of KiB.
_CACHE = -16384
#: Size (B) of the file beyond which detail of the oldest sessions is dropped.
MOST_BYTES = 200 << 20
#: Share of the size that is freed at once, so that not every session thins it again; sessions thinned in one step.
_SPARE, _STEP = 0.1, 200
#: State of sessions whose detail is being dropped.
_MARKED = 2
#: What drops the detail of marked sessions (what days saw, and findings, stay), and what drops the rest of them.
_OF_MARKED = "DELETE FROM {} WHERE session IN (SELECT number FROM session WHERE thinned = 2)"
_DROP_DETAIL = tuple(map(_OF_MARKED.format, ("seen", "share", "usual", "xid")))
_DROP_REST = (_OF_MARKED.format("finding"), "DELETE FROM session WHERE thinned = 2")
#: What drops the sums of days before one, and of days without a session.
_DROP_DAYS = tuple(
    map(
        "DELETE FROM {} WHERE day < ? OR sessions < 1".format,  # nosec B608: names of tables, below
        ("share_day", "reading", "seen_day", "usual_day"),
    )
)
#: What reading of values that no fabtui wrote raises: a damaged disk, or another program, left them in the file.
_READING_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
#: The latest time (epoch seconds) that dates can have, end of the year 9999.
_LATEST = 253_402_300_799.0
#: What makes each version of the tables from the one before; a new file has all steps. Steps that files have stay as
#: they are.
_STEPS = (
    """
CREATE TABLE session(number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, started REAL NOT NULL, ended REAL NOT NULL,
    recording TEXT NOT NULL, software TEXT NOT NULL, nodes TEXT NOT NULL, endpoints INTEGER NOT NULL, exit INTEGER,
    text TEXT NOT NULL, lab TEXT NOT NULL, verdicts TEXT NOT NULL, versions TEXT NOT NULL, settings TEXT NOT NULL,
    thinned INTEGER NOT NULL DEFAULT 0);
CREATE INDEX session_by_time ON session(started);
CREATE TABLE component(number INTEGER PRIMARY KEY, kind TEXT NOT NULL, identity TEXT NOT NULL, by_name INTEGER NOT NULL,
    UNIQUE(kind, identity, by_name));
CREATE TABLE word(number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE seen(component INTEGER, session INTEGER, place INTEGER, PRIMARY KEY(component, session)) WITHOUT ROWID;
CREATE TABLE stay(component INTEGER, place INTEGER, since REAL, until REAL, PRIMARY KEY(component, place))
    WITHOUT ROWID;
CREATE INDEX stay_by_place ON stay(place);
CREATE TABLE carrier(gpu INTEGER, port INTEGER, until REAL, PRIMARY KEY(gpu, port)) WITHOUT ROWID;
CREATE TABLE share(component INTEGER, kind INTEGER, session INTEGER, share REAL, pairs INTEGER, bad INTEGER,
    PRIMARY KEY(component, kind, session)) WITHOUT ROWID;
CREATE TABLE share_day(component INTEGER, kind INTEGER, day INTEGER, first REAL, total REAL, lowest REAL,
    sessions INTEGER, bad INTEGER, PRIMARY KEY(component, kind, day)) WITHOUT ROWID;
CREATE INDEX share_by_day ON share_day(day);
CREATE TABLE reading(component INTEGER, counter INTEGER, day INTEGER, first REAL, time REAL, total INTEGER,
    increase INTEGER, hours REAL, sessions INTEGER, PRIMARY KEY(component, counter, day)) WITHOUT ROWID;
CREATE INDEX reading_by_day ON reading(day);
CREATE TABLE usual(session INTEGER, kind INTEGER, size INTEGER, value REAL, PRIMARY KEY(kind, size, session))
    WITHOUT ROWID;
CREATE TABLE finding(session INTEGER NOT NULL, key INTEGER NOT NULL, rule INTEGER NOT NULL, severity TEXT NOT NULL,
    component INTEGER, subject INTEGER NOT NULL, title INTEGER NOT NULL);
CREATE INDEX finding_by_session ON finding(session);
CREATE INDEX finding_by_component ON finding(component, rule);
CREATE INDEX finding_by_key ON finding(key);
CREATE TABLE xid(component INTEGER, session INTEGER, xid INTEGER, count INTEGER, PRIMARY KEY(component, session, xid))
    WITHOUT ROWID;
""",
    # What is read for each overview, summed up by day: 10,000 sessions take 0.1 s less.
    """
CREATE TABLE seen_day(component INTEGER, day INTEGER, sessions INTEGER, PRIMARY KEY(component, day)) WITHOUT ROWID;
INSERT INTO seen_day SELECT component, cast(started / 86400 AS INTEGER), count(*) FROM seen
    JOIN session ON session = number GROUP BY 1, 2;
CREATE TABLE usual_day(kind INTEGER, size INTEGER, day INTEGER, first REAL, total REAL, sessions INTEGER,
    PRIMARY KEY(kind, size, day)) WITHOUT ROWID;
INSERT INTO usual_day SELECT kind, size, cast(started / 86400 AS INTEGER), min(started), total(value), count(*)
    FROM usual JOIN session ON session = number GROUP BY 1, 2, 3;
""",
)
#: Version of the tables. A newer file is refused; an older one gets the steps that it lacks.
FORMAT = len(_STEPS)


def moment(value: Any) -> float:
    """Return a time (epoch seconds); raise ValueError if dates cannot have it."""
    seconds = float(value)
    if not 0.0 <= seconds <= _LATEST:
        raise ValueError("no time")
    return seconds


@lru_cache(1024)
def mapping(text: Any) -> dict[str, Any]:
    """Return an object of JSON, which stays as it is; raise ValueError if the text is not one."""
    value = json.loads(str(text))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _reason(path: Path, error: Exception) -> str:
    if not isinstance(error, OSError):
        with contextlib.suppress(OSError):
            disk = os.statvfs(path)
            # SQLite may call it an error of the disk: a page and what readers share (32 KiB) need room.
            if disk.f_bavail * disk.f_frsize < 64 << 10:
                return _FULL
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)


def _unreadable(path: Path, error: Exception) -> InputError:
    why = _reason(path, error)
    return _refuse(path, f"cannot be read: {why}{'' if why == _FULL else _REMEDY}")


def _refuse(path: Path, why: str) -> InputError:
    return InputError(f"the history {path} {why}")


def _foreign(path: Path, error: Exception) -> InputError:
    why = one_line(f"{type(error).__name__}: {error}", 200)
    return _refuse(path, f"cannot be read: it has a value that no fabtui wrote ({why}){_REMEDY}")


def _connect(path: Path, *, create: bool) -> sqlite3.Connection:
    if create:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    os.close(open_strictly(path))
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    # Its files beside it get the mode of the file itself.
    return sqlite3.connect(
        f"file:{quoted}?mode=rw", uri=True, timeout=LOCK_PATIENCE, isolation_level=None, check_same_thread=False
    )


def _version(path: Path, base: sqlite3.Connection) -> int:
    """Return the version of the tables, 0 without any; a file of another program or of a newer fabtui is refused."""
    (owner,), (version,) = (
        base.execute("PRAGMA application_id").fetchone(),
        base.execute("PRAGMA user_version").fetchone(),
    )
    if owner != _APPLICATION:
        if base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise _refuse(path, "is a file of another program; move it away")
        return 0
    if version > FORMAT:
        raise _refuse(path, f"was written by a newer fabtui (format {version}, this one knows {FORMAT}); update fabtui")
    return int(version)


def _make_tables(path: Path, base: sqlite3.Connection) -> None:
    # Before anything is written: it cannot be changed later.
    base.execute("PRAGMA auto_vacuum = INCREMENTAL")
    base.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[_version(path, base) :]:
            for statement in step.split(";"):
                if statement.strip():
                    base.execute(statement)
        base.execute(f"PRAGMA application_id = {_APPLICATION}")
        base.execute(f"PRAGMA user_version = {FORMAT}")
        base.execute("COMMIT")
    except BaseException:
        base.rollback()
        raise


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Yield a connection that only reads; None if there is no history yet.

    Raises:
        InputError: It cannot be read, or should not.
    """
    if not path.exists():
        yield None
        return
    if _WITHOUT_SQLITE:
        raise _refuse(path, f"is not read: {_WITHOUT_SQLITE}")
    if 0 < _version_of(path) < FORMAT:
        with writing(path):
            # It has the tables of this version now.
            pass
    with _opened(path) as base:
        base.execute("PRAGMA query_only = ON")
        base.execute(f"PRAGMA cache_size = {_CACHE}")
        yield base if _version(path, base) else None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        base = _connect(path, create=False)
    except (UnsafeFileError, OSError, sqlite3.Error) as error:
        raise _refuse(path, f"is not read: {_reason(path, error)}") from None
    try:
        yield base
    except sqlite3.Error as error:
        raise _unreadable(path, error) from None
    except _READING_ERRORS as error:
        raise _foreign(path, error) from error
    finally:
        base.close()


def _version_of(path: Path) -> int:
    with _opened(path) as base:
        return _version(path, base)


@contextlib.contextmanager
def writing(path: Path, patience: float = LOCK_PATIENCE) -> Iterator[sqlite3.Connection]:
    """Yield a connection that writes, while no other session does.

    A lock beside the file keeps the sessions of all login nodes apart. What is not committed is not kept.

    Raises:
        InputError: It cannot be written, or should not.
    """
    if _WITHOUT_SQLITE:
        raise _refuse(path, f"is not written: {_WITHOUT_SQLITE}, or --no-history")
    try:
        private_folder(path.parent)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _refuse(path, f"is not written: {_reason(path.parent, error)}") from None
    try:
        try:
            wait_for_lock(lock, patience)
        except TimeoutError:
            raise _refuse(path, "is not written: another session is writing it") from None
        except OSError as error:
            why = f"its file system has no locks: {_reason(path.parent, error)}; set XDG_STATE_HOME to a local folder"
            raise _refuse(path, f"is not written: {why}") from None
        yield from _written(path)
    finally:
        os.close(lock)


def _written(path: Path) -> Iterator[sqlite3.Connection]:
    base = None
    try:
        base = _connect(path, create=True)
        base.execute(f"PRAGMA cache_size = {_CACHE}")
        if _version(path, base) < FORMAT:
            _make_tables(path, base)
        yield base
    except (OSError, sqlite3.Error) as error:
        raise _refuse(path, f"is not written: {_reason(path, error)}") from None
    except _READING_ERRORS as error:
        raise _foreign(path, error) from error
    finally:
        if base is not None:
            with contextlib.suppress(sqlite3.Error):
                base.close()


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
        words = (entry.recording, entry.software, _json(entry.nodes), entry.endpoints, entry.exit_code, entry.text)
        number = base.execute(
            "INSERT INTO session(key, started, ended, recording, software, nodes, endpoints, exit, text, lab, versions,"
            " verdicts, settings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '{}', '{}')",
            (entry.key, entry.started, entry.ended, *words, entry.lab, _json(entry.versions)),
        ).lastrowid
        assert number is not None
        self._add_places(number, entry)
        self._add_shares(number, entry)
        self._add_readings(entry)
        self._add_usual(number, entry)
        self._add_findings(number, entry)
        return True

    def _word(self, text: str) -> int:
        if (number := self._words.get(text)) is None:
            self._base.execute("INSERT OR IGNORE INTO word(text) VALUES (?)", (text,))
            (number,) = self._base.execute("SELECT number FROM word WHERE text = ?", (text,)).fetchone()
            self._words[text] = number
        return number

    def _component(self, part: Component) -> int:
        key = str(part.kind), part.identity, part.by_name
        if (number := self._components.get(key)) is None:
            self._base.execute("INSERT OR IGNORE INTO component(kind, identity, by_name) VALUES (?, ?, ?)", key)
            (number,) = self._base.execute(
                "SELECT number FROM component WHERE kind = ? AND identity = ? AND by_name = ?", key
            ).fetchone()
            self._components[key] = number
        return number

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
            [
                (self._component(part), self._word(name), day, entry.started, entry.ended, total, increase, hours)
                for part, name, total, increase in entry.counted
            ],
        )

    def _add_findings(self, session: int, entry: SessionEntry) -> None:
        word = self._word
        self._base.executemany(
            "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (session, *map(word, (key, rule)), severity, part and self._component(part), *map(word, texts))
                for key, rule, severity, part, *texts in entry.findings
            ],
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
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
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
