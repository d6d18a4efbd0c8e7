"""The history of a site: recordings that ship go in, and come out by component."""

import contextlib
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.history.components import PartKind
from fabtui.history.entry import entry_of
from fabtui.history.file import HistoryWriter, SessionEntry
from fabtui.history.query import read_overview
from fabtui.importers.session import replayed
from fabtui.paths import shipped_recordings_folder
from fabtui.presentation.findings import title
from tests.past import open_history

NAMES = ("h200x4-lab-2x2.jsonl.gz", "h200x4-lab-2x2-faults.jsonl.gz")


@pytest.fixture(scope="module")
def entries() -> list[SessionEntry]:
    found = []
    for name in NAMES:
        model, _ = replayed(shipped_recordings_folder() / name)
        found.append(entry_of(diagnose(model), name, title))
    return found


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "fabtui" / "history" / "site.sqlite"


def test_components_are_found_by_name_and_by_identity(path: Path, entries: list[SessionEntry]) -> None:
    assert HistoryWriter(path).add(entries) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with open_history(path) as past:
        assert [one.recording for one in past.sessions()] == [NAMES[1], NAMES[0]]
        (gpu,) = (one for one in past.find("n000:1") if one.kind is PartKind.GPU)
        assert gpu.identity.startswith("GPU-")
        assert past.find(gpu.identity) == [gpu]
        (course,) = past.courses([gpu])
        (day,) = course.shares["p2p same-node"]
        assert (day.sessions, day.bad) == (2, 1)
        assert day.lowest < 0.1
        assert course.rates["replay"][0].events == 0
        assert past.find("no such part") == []
        assert (past.worst(0.0), past.findings) == ([], [])


def test_a_session_is_kept_once_and_a_resumed_one_replaces_its_beginning(
    path: Path, entries: list[SessionEntry]
) -> None:
    writer = HistoryWriter(path)
    assert [writer.add(entries), writer.add(entries)] == [2, 0]
    with open_history(path) as past:
        usual = past.evidence.usual
    assert writer.add([replace(entries[0], ended=entries[0].ended + 60)]) == 1
    with open_history(path) as past:
        assert past.count() == 2
        assert {key: [(day, round(value, 6)) for day, value in days] for key, days in usual.items()} == {
            key: [(day, round(value, 6)) for day, value in days] for key, days in past.evidence.usual.items()
        }
        assert past.courses(past.find("n000:1")[:1])[0].shares["p2p same-rail"][0].sessions == 2


def test_a_file_of_another_version_and_one_of_others_are_refused(path: Path, entries: list[SessionEntry]) -> None:
    HistoryWriter(path).add(entries[:1])
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 2")
    with pytest.raises(InputError, match=r"written by an earlier fabtui .*; move it away"), open_history(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="written by a newer fabtui"):
        HistoryWriter(path).add(entries[1:])
    with pytest.raises(InputError, match="written by a newer fabtui"), open_history(path):
        pass
    path.chmod(0o666)
    with pytest.raises(InputError, match="others may write"), open_history(path):
        pass
    path.write_bytes(b"no database" * 100)
    path.chmod(0o600)
    with pytest.raises(InputError, match="not a database"), open_history(path):
        pass


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE stay SET until = 'x'",
        "UPDATE session SET nodes = '{'",
        "UPDATE session SET started = 1e300",
        "UPDATE share SET share = NULL",
        "UPDATE component SET kind = 'x'",
    ],
)
def test_values_that_no_fabtui_wrote_are_refused_in_one_line(
    path: Path, entries: list[SessionEntry], change: str
) -> None:
    HistoryWriter(path).add(entries)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute(change)
        base.commit()
    with pytest.raises(InputError, match=r"has a value that no fabtui wrote \([^\n]*\); move it away"):
        read_overview(path, 0.0, "n000")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE stay RENAME TO old; CREATE VIEW stay AS WITH RECURSIVE c(x) AS"
        " (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS component, '' AS place, x AS since, x AS until FROM c",
        "CREATE TRIGGER forget AFTER INSERT ON session BEGIN DELETE FROM component; END",
    ],
)
def test_queries_of_others_in_the_file_are_not_run(path: Path, entries: list[SessionEntry], change: str) -> None:
    HistoryWriter(path).add(entries[:1])
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.executescript(change)
    for use in (partial(read_overview, path, 0.0, "n000"), partial(HistoryWriter(path).add, entries[1:])):
        with pytest.raises(InputError, match="has tables, views or triggers that no fabtui wrote; move it away"):
            use()


def test_a_history_loses_its_oldest_sessions_when_it_is_too_large(path: Path, entries: list[SessionEntry]) -> None:
    many = [
        replace(entries[0], key=str(number), started=entries[0].started + number, ended=entries[0].ended + number)
        for number in range(300)
    ]
    HistoryWriter(path).add(many)
    whole = path.stat().st_size
    HistoryWriter(path, most_bytes=whole * 4 // 5).add([replace(many[-1], key="last", ended=many[-1].ended + 1)])
    with open_history(path) as past:
        assert path.stat().st_size < whole * 0.8
        (course,) = past.courses(past.find("n000:1")[:1])
        assert sum(one.sessions for one in course.shares["p2p same-rail"]) == past.count() == 101
        assert min(one.started for one in past.sessions()) == many[200].started


@pytest.mark.slow
def test_a_python_without_sqlite_has_no_history_and_reports_why(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.touch(0o600)
    start = "import sys; sys.modules['sqlite3'] = None; import fabtui.screen.app; from fabtui.cli.main import main"
    done = subprocess.run(
        [sys.executable, "-c", f"{start}; sys.exit(main(['history', '--file', sys.argv[1]]))", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"fabtui: error: the history {path} is not read: this Python was built without SQLite (module sqlite3); "
        "use a different one\n"
    )
