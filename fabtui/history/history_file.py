"""The file of the history: where it is, its tables, and how it is opened by several sessions at a time."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fabtui.errors import InputError
from fabtui.history.foreign_values import READING_ERRORS, foreign_column
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

#: Marks a file of SQLite as one of ours ("fbtu").
_APPLICATION = 0x66627475
#: What to do with a file that cannot be read.
_REMEDY = "; move it away, and add your recordings again"
#: Time (s) that another writer gets.
LOCK_PATIENCE = 5.0
#: Pages (4 KiB) of the cache of a connection, as a negative number of KiB.
_CACHE = -16384
#: File systems whose files several machines share: SQLite's log (WAL) needs memory that they do not share.
_SHARED = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|lustre|gpfs|beegfs\w*|ceph|glusterfs|afs|9p|pvfs2|orangefs|wekafs|panfs|ocfs2|gfs2"
    r"|fuse(\.(?!fuse-overlayfs|rofiles).*)?"
)
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


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds a path, or "" if it is unknown; ``mounts`` is a mountinfo."""
    if mounts is None:
        with contextlib.suppress(OSError):
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    target, found, longest = os.path.realpath(path), "", -1
    for line in (mounts or "").splitlines():
        own, _, other = line.partition(" - ")
        words, kind = own.split(), other.split()
        if len(words) < 5 or not kind:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        # The last one that is mounted at a place hides the others.
        if inside and len(point) >= longest:
            found, longest = kind[0], len(point)
    return found


def is_shared(path: Path, mounts: str | None = None) -> bool:
    """Return whether a path is on a file system that several machines may have mounted."""
    return bool(_SHARED.fullmatch(file_system_of(path, mounts)))


def reason(error: Exception) -> str:
    """Return an error of the file in one line."""
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)


def _is_full(path: Path) -> bool:
    """Return whether a disk has no room for what SQLite shares between readers (32 KiB), and a page."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 64 << 10


def _refuse(path: Path, why: str) -> InputError:
    return InputError(f"the history {path} {why}")


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
    """Give a file the tables of this version, all or none of them."""
    # Before anything is written: it cannot be changed later.
    base.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if not is_shared(path):
        base.execute("PRAGMA journal_mode = WAL")
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
        raise _refuse(path, f"is not read: {reason(error)}") from None
    try:
        yield base
    except sqlite3.Error as error:
        # SQLite calls it an error of the disk.
        why = "its disk is full" if _is_full(path) else f"{reason(error)}{_REMEDY}"
        raise _refuse(path, f"cannot be read: {why}") from None
    except READING_ERRORS:
        _refuse_foreign(path, base)
        raise
    finally:
        base.close()


def _refuse_foreign(path: Path, base: sqlite3.Connection) -> None:
    """Refuse a file with values that no fabtui wrote; an error without any is one of fabtui."""
    try:
        column = foreign_column(base)
    except sqlite3.Error as error:
        raise _refuse(path, f"cannot be read: {reason(error)}{_REMEDY}") from None
    if column:
        raise _refuse(path, f"cannot be read: {column} has a value that no fabtui wrote{_REMEDY}") from None


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
        raise _refuse(path, f"is not written: {reason(error)}") from None
    try:
        try:
            wait_for_lock(lock, patience)
        except TimeoutError:
            raise _refuse(path, "is not written: another session is writing it") from None
        except OSError as error:
            where = f"its file system ({file_system_of(path.parent) or 'unknown'}) has no locks: {reason(error)}"
            raise _refuse(path, f"is not written: {where}; set XDG_STATE_HOME to a local folder") from None
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
        # In a log, a crash of the machine may lose the latest session, and never the file.
        base.execute(f"PRAGMA synchronous = {'FULL' if is_shared(path) else 'NORMAL'}")
        yield base
    except (OSError, sqlite3.Error) as error:
        raise _refuse(path, f"is not written: {'its disk is full' if _is_full(path) else reason(error)}") from None
    except READING_ERRORS:
        if base is not None:
            _refuse_foreign(path, base)
        raise
    finally:
        if base is not None:
            with contextlib.suppress(sqlite3.Error):
                base.close()
