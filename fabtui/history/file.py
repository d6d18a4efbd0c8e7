"""The file of the history: its tables, how several sessions open it at a time, and how its size stays bounded."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.errors import InputError
from fabtui.history.components import Component, Counted
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
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
#: Size (B) of the file beyond which the oldest sessions are dropped.
MOST_BYTES = 200 << 20
#: Share of the size that is freed at once, so that not every session thins it again; sessions dropped in one step.
_SPARE, _STEP = 0.1, 200
#: What reading of values that no fabtui wrote raises: a damaged disk, or another program, left them in the file.
_READING_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
#: The latest time (epoch seconds) that dates can have, end of the year 9999.
_LATEST = 253_402_300_799.0
#: Version of the tables: a file with a different one is refused.
FORMAT = 3
_OF_SESSION = "session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE"
_TABLES = f"""
CREATE TABLE session(number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, started REAL NOT NULL, ended REAL NOT NULL,
    recording TEXT NOT NULL, software TEXT NOT NULL, nodes TEXT NOT NULL, endpoints INTEGER NOT NULL, exit INTEGER,
    text TEXT NOT NULL, lab TEXT NOT NULL, versions TEXT NOT NULL,
    day INTEGER AS (cast(started / 86400 AS INTEGER)));
CREATE INDEX session_by_time ON session(started);
CREATE TABLE component(number INTEGER PRIMARY KEY, kind TEXT NOT NULL, identity TEXT NOT NULL, by_name INTEGER NOT NULL,
    UNIQUE(kind, identity, by_name));
CREATE TABLE stay(component INTEGER, place TEXT, since REAL, until REAL, PRIMARY KEY(component, place)) WITHOUT ROWID;
CREATE TABLE carrier(gpu INTEGER, port INTEGER, until REAL, PRIMARY KEY(gpu, port)) WITHOUT ROWID;
CREATE TABLE reading(component INTEGER, counter TEXT, day INTEGER, first REAL, time REAL, total INTEGER,
    increase INTEGER, hours REAL, sessions INTEGER, PRIMARY KEY(component, counter, day)) WITHOUT ROWID;
CREATE TABLE seen({_OF_SESSION}, component INTEGER, place TEXT, PRIMARY KEY(session, component)) WITHOUT ROWID;
CREATE TABLE share({_OF_SESSION}, component INTEGER, kind TEXT, share REAL, bad INTEGER,
    PRIMARY KEY(session, component, kind)) WITHOUT ROWID;
CREATE TABLE usual({_OF_SESSION}, kind TEXT, size INTEGER, value REAL, PRIMARY KEY(session, kind, size)) WITHOUT ROWID;
CREATE TABLE finding({_OF_SESSION}, key TEXT NOT NULL, rule TEXT NOT NULL, severity TEXT NOT NULL, component INTEGER,
    place TEXT NOT NULL, subject TEXT NOT NULL, title TEXT NOT NULL);
CREATE INDEX finding_by_session ON finding(session);
"""


class PartShare(NamedTuple):
    """Bandwidth of a component in a session."""

    component: Component
    kind: str  #: Layer and class: ``p2p same-rail``.
    share: float  #: Median of its pairs over what is usual; 1.0 is usual.
    bad: int  #: Number of its pairs with a bad verdict.


class UsualValue(NamedTuple):
    """Usual value of a class in a session."""

    kind: str  #: Layer, class and hardware.
    size: int  #: Message size (B); 0 if unknown.
    value: float  #: In the unit of the layer.


def usual_name(model: Model, layer: Layer, kind: PairClass) -> str:
    """Return the kind of a usual value: its layer and class, and the hardware of the session."""
    models = sorted({end.name for end in model.endpoints if end.name})
    return one_line(" ".join((layer, kind, *models)), 200)


class Noted(NamedTuple):
    """A finding of a session."""

    key: str  #: Key of the finding, by which notes of the user find it as well.
    rule: str  #: Id of the rule, with the code of the error catalogue where there is one.
    severity: str
    component: Component | None  #: What it blames, if that is one component.
    subject: str
    title: str


@dataclass(frozen=True)
class SessionEntry:
    """One session for the history."""

    key: str  #: Identifies the session; copies of its recording have the same.
    started: float  #: Epoch seconds.
    ended: float  #: Epoch seconds.
    recording: str
    software: str
    nodes: tuple[str, ...]
    endpoints: int
    exit_code: int | None
    text: str
    lab: str
    versions: dict[str, str] = field(default_factory=dict)
    components: list[Component] = field(default_factory=list)
    carriers: list[tuple[Component, Component]] = field(default_factory=list)  #: Each GPU with a port that it uses.
    shares: list[PartShare] = field(default_factory=list)
    usual: list[UsualValue] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    findings: list[Noted] = field(default_factory=list)


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


def _is_ours(path: Path, base: sqlite3.Connection) -> bool:
    """Return False for an empty file; a file of another program or with tables of another version is refused."""
    (owner,), (version,) = (base.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if owner != _APPLICATION:
        if base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise _refuse(path, "is a file of another program; move it away")
        return False
    if version > FORMAT:
        raise _refuse(path, f"was written by a newer fabtui (format {version}, this one knows {FORMAT}); update fabtui")
    if version < FORMAT:
        raise _refuse(path, f"was written by an earlier fabtui (format {version}, this one has {FORMAT}){_REMEDY}")
    _check_tables(path, base)
    return True


def _check_tables(path: Path, base: sqlite3.Connection) -> None:
    """Refuse tables that no fabtui made: views, triggers and computed columns would run queries of others."""
    with contextlib.closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(_TABLES)
        schemas = [
            set(each.execute("SELECT type, name, sql FROM sqlite_master WHERE sql > ''")) for each in (base, ours)
        ]
    if schemas[0] != schemas[1]:
        raise _refuse(path, f"has tables, views or triggers that no fabtui wrote{_REMEDY}")


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
    try:
        base = _connect(path, create=False)
    except (UnsafeFileError, OSError, sqlite3.Error) as error:
        raise _refuse(path, f"is not read: {_reason(path, error)}") from None
    try:
        base.execute("PRAGMA query_only = ON")
        base.execute(f"PRAGMA cache_size = {_CACHE}")
        yield base if _is_ours(path, base) else None
    except sqlite3.Error as error:
        why = _reason(path, error)
        raise _refuse(path, f"cannot be read: {why}{'' if why == _FULL else _REMEDY}") from None
    except _READING_ERRORS as error:
        raise _foreign(path, error) from error
    finally:
        base.close()


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
        base = None
        try:
            base = _connect(path, create=True)
            base.execute("PRAGMA foreign_keys = ON")
            base.execute(f"PRAGMA cache_size = {_CACHE}")
            if not _is_ours(path, base):
                # Before anything is written: it cannot be changed later.
                base.execute("PRAGMA auto_vacuum = INCREMENTAL")
                marks = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {FORMAT};"
                base.executescript(f"BEGIN IMMEDIATE; {_TABLES} {marks} COMMIT;")
            yield base
        except (OSError, sqlite3.Error) as error:
            raise _refuse(path, f"is not written: {_reason(path, error)}") from None
        except _READING_ERRORS as error:
            raise _foreign(path, error) from error
        finally:
            if base is not None:
                with contextlib.suppress(sqlite3.Error):
                    base.close()
    finally:
        os.close(lock)


class HistoryWriter:
    """Writes sessions into the file of a site, which loses its oldest sessions beyond `most_bytes`."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._most = most_bytes
        self._components: dict[tuple[str, str, bool], int] = {}

    def add(self, entries: Iterable[SessionEntry], patience: float = LOCK_PATIENCE) -> int:
        """Add sessions, all or none; return how many are new or longer than before.

        Raises:
            InputError: The file cannot be written: what it held stays.
        """
        with writing(self.path, patience) as base:
            # Numbers of a transaction that failed are not kept.
            self._components.clear()
            base.execute("BEGIN IMMEDIATE")
            try:
                added = sum([self._add(base, entry) for entry in entries])
                base.execute("COMMIT")
            except BaseException:
                base.rollback()
                raise
            if added:
                _thin(base, self._most)
        return added

    def _add(self, base: sqlite3.Connection, entry: SessionEntry) -> bool:
        known = base.execute("SELECT ended FROM session WHERE key = ?", (entry.key,)).fetchone()
        if known is not None and known[0] >= entry.ended:
            return False
        # One that was resumed has a longer recording now.
        base.execute("DELETE FROM session WHERE key = ?", (entry.key,))
        session = base.execute(
            "INSERT INTO session(key, started, ended, recording, software, nodes, endpoints, exit, text, lab, versions)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(entry.key, entry.started, entry.ended, entry.recording, entry.software, _json(entry.nodes)),
                *(entry.endpoints, entry.exit_code, entry.text, entry.lab, _json(entry.versions)),
            ),
        ).lastrowid
        self._add_places(base, session, entry)

        def number(part: Component) -> int:
            return self._component(base, part)

        day, hours = int(entry.started // DAY), max(0.0, entry.ended - entry.started) / 3600
        base.executemany(
            "INSERT INTO reading VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
            " first = min(first, excluded.first),"
            " total = CASE WHEN excluded.time >= time THEN excluded.total ELSE total END,"
            " time = max(time, excluded.time),"
            " increase = increase + excluded.increase, hours = hours + excluded.hours, sessions = sessions + 1",
            [
                (number(part), name, day, entry.started, entry.ended, total, increase, hours)
                for part, name, total, increase in entry.counted
            ],
        )
        base.executemany(
            "INSERT OR REPLACE INTO share VALUES (?, ?, ?, ?, ?)",
            [(session, number(part), kind, round(share, 4), bad) for part, kind, share, bad in entry.shares],
        )
        usual = [(session, *value) for value in entry.usual]
        base.executemany("INSERT OR REPLACE INTO usual VALUES (?, ?, ?, ?)", usual)
        base.executemany(
            "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (session, key, rule, severity, part and number(part), part.place if part else "", *texts)
                for key, rule, severity, part, *texts in entry.findings
            ],
        )
        return True

    def _component(self, base: sqlite3.Connection, part: Component) -> int:
        key = str(part.kind), part.identity, part.by_name
        if key not in self._components:
            base.execute("INSERT OR IGNORE INTO component(kind, identity, by_name) VALUES (?, ?, ?)", key)
            (self._components[key],) = base.execute(
                "SELECT number FROM component WHERE kind = ? AND identity = ? AND by_name = ?", key
            ).fetchone()
        return self._components[key]

    def _add_places(self, base: sqlite3.Connection, session: int | None, entry: SessionEntry) -> None:
        links = {count.component for count in entry.counted}
        places = {self._component(base, part): part.place for part in (*entry.components, *links)}
        base.executemany("INSERT INTO seen VALUES (?, ?, ?)", [(session, *place) for place in places.items()])
        base.executemany(
            "INSERT INTO stay VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " since = min(since, excluded.since), until = max(until, excluded.until)",
            [(*place, entry.started, entry.started) for place in places.items()],
        )
        base.executemany(
            "INSERT INTO carrier VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
            [(self._component(base, gpu), self._component(base, port), entry.started) for gpu, port in entry.carriers],
        )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _size(base: sqlite3.Connection) -> int:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int((pages - free) * size)


def _thin(base: sqlite3.Connection, most: int) -> None:
    """Drop the oldest sessions, and readings of days before the others, until a file that is too large is small."""
    if _size(base) <= most:
        return
    dropped = 1
    while dropped and _size(base) > most * (1 - _SPARE):
        dropped = base.execute(
            "DELETE FROM session WHERE number IN (SELECT number FROM session ORDER BY started LIMIT ?)", (_STEP,)
        ).rowcount
        base.execute("DELETE FROM reading WHERE day < (SELECT min(started) FROM session) / ? - 1", (DAY,))
    # As a script: `execute` would stop after the first page.
    base.executescript("PRAGMA incremental_vacuum")
