"""Findings that the user knows about: in the recording, in the state folder and in the next session."""

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import RULES, Domain, rules_of
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.export.json import as_json
from fabtui.model.events import Acknowledged
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.report.summary import summary
from fabtui.session.acknowledgement_file import LONGEST_NOTE, AcknowledgementFile, file_of_site
from tests.conftest import ModelMaker
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import feed_of

HOSTILE = "\x1b[31mticket\x1b]0;t\x07 [bold]4711[/bold]\u202e\r\n" + "x" * 1000


def two_dead_pairs() -> ModelMaker:
    maker = (
        ModelMaker().start(["a", "b"]).endpoints({"a": 4, "b": 4}).pairs([f"{n}:{i}" for n in "ab" for i in range(4)])
    )
    maker.measured("p2p", "a:0", "b:1", "failed", error="connect: refused")
    return maker.measured("p2p", "a:2", "b:3", "timeout", error="connect: timed out")


def note(model: Model, place: int, text: str = "ticket 4711", since: float = 0.0) -> Acknowledged:
    return Acknowledged(
        finding=finding_key(diagnose(model).findings[place]),
        title="a title",
        note=text,
        since=since,
        time=1_700_000_000.0,
    )


def test_a_known_finding_comes_last_with_its_note_and_changes_no_exit_code() -> None:
    model = two_dead_pairs().model()
    first, second = (finding_key(one) for one in diagnose(model).findings)
    code = diagnose(model).code
    model.apply(note(model, 0))
    assert [finding_key(one) for one in diagnose(model).findings] == [second, first]
    assert diagnose(model).code == code == 1
    text = summary(diagnose(model))
    assert "findings: 2, 1 of them known" in text
    assert text.index("a:2 > b:3") < text.index("known since 2023-11-14: ticket 4711")
    fresh, known = as_json(diagnose(model))["findings"]
    assert fresh["acknowledged"] is None
    assert known["acknowledged"] == {"note": "ticket 4711", "since": "2023-11-14T22:13:20Z"}
    assert "a title: known: ticket 4711" in [line.text for line in model.log]
    model.apply(note(model, 1, ""))
    assert [finding_key(one) for one in diagnose(model).findings] == [first, second]
    assert "known" not in summary(diagnose(model))


def test_other_pairs_without_a_common_cause_are_another_finding() -> None:
    rule = next(one for one in RULES if one.name == "pairs-slow")
    keys = {finding_key(rule.finding(cells=pairs)) for pairs in ([("a:0", "b:1")], [("a:0", "b:1"), ("a:1", "b:0")])}
    assert len(keys) == 2
    about = [
        finding_key(rule.finding("a:0", nodes=["a"], cells=pairs)) for pairs in ([("a:0", "b:1")], [("a:0", "b:2")])
    ]
    assert about[0] == about[1], "a component is the same with other pairs"


def test_another_problem_of_the_preflight_is_another_finding() -> None:
    (summed,) = rules_of(Domain.SUMMARY)
    rule = next(one for one in RULES if one.domain is Domain.NODES)
    checks = [rule.finding(topic, nodes=["a"]) for topic in ("memlock", "driver")]
    (one,), (other,) = (summed.findings(some) for some in (checks[:1], checks))
    assert one.subject == other.subject
    assert finding_key(one) != finding_key(other)


def test_notes_are_kept_changed_and_removed(tmp_path: Path) -> None:
    file = AcknowledgementFile(tmp_path / "new" / "site.json")
    assert file.read() == ([], "")
    for key in ("a", "b", "c"):
        assert file.write(Acknowledged(finding=key, title=f"title {key}", note=f"note {key}")) == ""
    file.write(Acknowledged(finding="b", title="title b"))
    file.write(Acknowledged(finding="a", title="title a", note="other"))
    notes, problem = file.read()
    assert problem == ""
    assert [(one.finding, one.title, one.note) for one in notes] == [
        ("c", "title c", "note c"),
        ("a", "title a", "other"),
    ]
    assert all(one.since > 1_700_000_000 for one in notes), "a note of an earlier session has its own time"
    assert file.path.parent.stat().st_mode & 0o77 == 0, "readable by this user alone"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"notes": {"a": 1}}', '{"notes": {"a": {"note": 7}}}', "[" * 100_000, "\xff"]
)
def test_a_damaged_file_is_kept_beside_a_new_one(tmp_path: Path, text: str) -> None:
    file = AcknowledgementFile(tmp_path / "site.json")
    file.path.write_text(text, "latin-1")
    notes, problem = file.read()
    assert notes == []
    assert problem.startswith(f"notes about known findings cannot be read from {file.path}")
    assert "\n" not in problem
    problem = file.write(Acknowledged(finding="a", title="t", note="n"))
    (aside,) = tmp_path.glob("*.unreadable-*")
    assert str(aside) in problem
    assert aside.read_text("latin-1") == text
    assert [one.note for one in file.read()[0]] == ["n"]


def test_values_of_the_file_are_bounded_and_cleaned(tmp_path: Path) -> None:
    file = AcknowledgementFile(tmp_path / "site.json")
    value = {"note": HOSTILE, "title": ["x"], "since": "soon"}
    file.path.write_text(json.dumps({"notes": {"k" * 5000: value, "b": {"note": " ", "since": 1e300}}}))
    (one, other), _ = file.read()
    assert one.note.isprintable()
    assert len(one.note) == LONGEST_NOTE
    assert one.note.startswith("[31mticket")
    assert len(one.finding) < 5000
    assert (other.note, other.since) == ("known", 1.0)


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    file = AcknowledgementFile(tmp_path / "folder" / "site.json")
    problem = file.write(Acknowledged(finding="a", title="t", note="n"))
    assert problem.startswith("the note is in this session alone")
    assert "\n" not in problem


def test_a_session_that_writes_at_the_same_time_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.session.acknowledgement_file._LOCK_PATIENCE", 0.0)
    import fcntl

    file = AcknowledgementFile(tmp_path / "site.json")
    with (tmp_path / "site.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another session is writing it" in file.write(Acknowledged(finding="a", title="t", note="n"))
    assert file.write(Acknowledged(finding="a", title="t", note="n")) == ""


def test_login_hosts_of_a_site_share_a_file_and_labs_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for host in ("login1.cluster", "Login02.cluster", "../12"):
        monkeypatch.setattr("os.uname", lambda host=host: SimpleNamespace(nodename=host))
        names.append(file_of_site(lab=False).name)
    assert names == ["host-login.cluster.json", "host-login.cluster.json", "host-...json"]
    assert file_of_site(lab=True).name == "lab.json"


async def test_a_note_is_in_the_recording_and_in_the_next_session(tmp_path: Path) -> None:
    record = tmp_path / "one.jsonl.gz"
    feed, _ = feed_of(Script({"a": 1, "b": 1}), record=record)
    await feed.run()
    async with asyncio.timeout(10):
        await feed.acknowledge("FT017|a", "a failed", HOSTILE)
    await feed.close()
    (event,) = [one for one in read_events(record) if isinstance(one, Acknowledged)]
    assert (event.finding, event.title) == ("FT017|a", "a failed")
    assert event.note.startswith("[31mticket")
    assert len(event.note) == LONGEST_NOTE
    feed, _ = feed_of(Script({"a": 1, "b": 1}))
    await feed.run()
    await feed.close()
    found = feed.model.acknowledgements.about("FT017|a")
    assert found is not None
    assert found.note == event.note
    assert not [line for line in feed.model.log if "FT017" in line.text or "ticket" in line.text], (
        "notes of earlier sessions are not logged"
    )
    os.unlink(file_of_site(lab=False))


async def test_a_damaged_file_is_a_line_of_the_log(tmp_path: Path) -> None:
    path = file_of_site(lab=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{")
    try:
        feed, _ = feed_of(Script({"a": 1, "b": 1}))
        await feed.run()
        await feed.close()
    finally:
        path.unlink()
    (line,) = [line for line in feed.model.log if "notes about known findings" in line.text]
    assert line.level == "warning"
