import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from fabtui.cli import main as entry
from fabtui.cli.commands import run as command
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Kind, Severity
from fabtui.diagnosis.job.job_verdict import JobState, RankState
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.diagnosis.session_diff import Status, session_diff
from fabtui.export.formats import FORMATS, schema
from fabtui.export.json import as_json
from fabtui.export.preflight import json_text as preflight_text
from fabtui.importers.result import read
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.importers.to_model.dispatch import without_facts
from fabtui.model.endpoints import PairClass
from fabtui.model.events import NodeState
from fabtui.model.facts.compare import Compare
from fabtui.model.layers import all_layers
from fabtui.model.measurement import UNITS, Verdict
from fabtui.report.session_diff import json_text as diff_text
from fabtui.session.feeds import live
from tests.conftest import replayed
from tests.unit.session.fakenodes import FakeNodes, Script

Maker = Callable[[], Any]
RECORDINGS = sorted((Path(__file__).parents[3] / "tests" / "samples" / "sessions").glob("*.jsonl.gz"))
HOSTILE = 'n"1\x1b[31m\u202e\ud800</script>'
#: Objects that may have more than the schema names: what is in them depends on probes, rules, layers and versions.
OPEN = {"options", "inventory", "looks", "first_looks", "facts", "extra", "counters", "layers", "cluster_info"}
OPEN |= {"versions", "shares", "rates", "slurm", "iterations", "settings", "by_node", "logs"}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the schema that ``fabtui help --schema`` prints."""
    assert entry.main(["help", "--schema", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_unknown_schema_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["help", "--schema", "jobs"]) == 2
    assert (
        "there is no schema 'jobs'; there are session, preflight, diff, planner, history, job\n"
        in capsys.readouterr().err
    )


def validate(name: str, value: Any) -> None:
    Draft202012Validator(schema(name)).validate(json.loads(json.dumps(value)))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_the_json_of_every_recording_is_valid(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["replay", str(path), "--text", "--json", str(tmp_path / "s.json")]) in (0, 1)
    capsys.readouterr()
    value = json.loads((tmp_path / "s.json").read_text())
    found = printed(capsys)
    Draft202012Validator(found).validate(value)
    assert value["$schema"] == found["$id"]
    assert len(value["measurements"]) > 50 or value["job"]["behind"]
    model = replayed(path)
    validate("preflight", json.loads(preflight_text(model, preflight(model))))


@pytest.mark.parametrize("bare", [False, True])
def test_the_json_of_a_diff_is_valid(bare: bool) -> None:
    models = [replayed(path) for path in RECORDINGS if "2x4" in path.name]
    then, now = map(without_facts, models) if bare else models
    value = json.loads(diff_text(("a", "b"), session_diff(then, now)))
    assert (value["facts"] is None) is bare
    assert value["pairs"]
    validate("diff", value)


@pytest.mark.parametrize(
    "words",
    [
        ("--ab", "NCCL_P2P_DISABLE=0,1", "--bidirectional", "--confirm", "--bytes", "8M,64M"),
        ("--probes", "all_reduce", "--groups", "2,4,8", "--ab", "NCCL_P2P_DISABLE=0,1", "--sizes", "1M"),
        ("--probes", "ping"),
        ("--read-only",),
    ],
)
def test_the_json_of_a_run_is_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    nodes = FakeNodes(Script({"a": 2, "b": 2, "c": 0}, silent={(0, 3)}, busy={("b", 1)}))
    real = live.LiveFeed
    monkeypatch.setattr(command, "LiveFeed", lambda options: real(options, nodes))
    path = tmp_path / "s.json"
    argv = ["run", "--nodes", "a,b,c", "--no-record", "--timeout", "0.5", "--quiet", "--json", str(path), *words]
    assert entry.main(argv) in (0, 1, 3)
    validate("session", json.loads(path.read_text()))


def test_the_json_of_hostile_and_of_imported_sessions_is_valid(make_model: Maker, tmp_path: Path) -> None:
    maker = make_model().start([HOSTILE, "n2"]).endpoints({HOSTILE: 2, "n2": 0})
    maker.measured("p2p", f"{HOSTILE}:0", f"{HOSTILE}:1", "failed", error=HOSTILE, extra={"ranks": 2, HOSTILE: HOSTILE})
    validate("session", as_json(diagnose(maker.model())))
    validate("session", as_json(diagnose(make_model().model())))
    path = tmp_path / "s.csv"
    recording = str(next(path for path in RECORDINGS if "faults" in path.name))
    assert entry.main(["replay", recording, "--text", "--csv", str(path)]) == 1
    validate("session", as_json(diagnose(model_of([read(source) for source in sources([str(path)])]))))


@functools.cache
def exported() -> dict[str, Any]:
    return as_json(diagnose(replayed(RECORDINGS[0])))


#: What later versions write in the same format.
ADDED = {"at_fault", "code", "expected", "job", "meaning", "published", "recurrence", "sentence", "steps"}


def as_earlier(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_earlier(one) for name, one in value.items() if name not in ADDED}
    return [as_earlier(one) for one in value] if isinstance(value, list) else value


def test_what_earlier_versions_wrote_in_the_format_stays_valid() -> None:
    assert exported()["preflight"]
    validate("session", as_earlier(exported()))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"exit": 7},
        {"surprise": 1},
        {"measurements": [{"layer": "p2p"}]},
        {"untested": [{"src": "a", "dst": "b", "error": 1}]},
        {"healthy": {}},
        {"started": "yesterday"},
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validate("session", {**exported(), **change})


def parts(value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all objects in a schema, with the name of what they describe."""
    if isinstance(value, dict):
        yield name, value
        for key, item in value.items():
            for inner in item.items() if key in ("properties", "$defs") else [(name, item)]:
                yield from parts(inner[1], inner[0])
    elif isinstance(value, list):
        for item in value:
            yield from parts(item, name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_schema_is_valid_strict_and_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, name)
    assert found == schema(name)
    Draft202012Validator.check_schema(found)
    assert found["properties"]["format"]["const"] == FORMATS[name]
    assert found["$id"].endswith(f"/{name}-{FORMATS[name]}.json")
    for about, part in parts(found):
        if part.get("type") == "object":
            assert part.get("additionalProperties") is False or about in OPEN, about
        for field, value in part.get("properties", {}).items():
            assert "description" in value or "$ref" in value, f"{about}.{field}"


def test_the_values_it_allows_are_those_of_the_code() -> None:
    defs = schema("session")["$defs"]
    measurement, node = defs["measurement"]["properties"], defs["node"]["properties"]
    assert defs["layer"]["enum"] == [layer for layer in all_layers() if not layer.spec.derived]
    assert defs["verdict"]["enum"] == list(Verdict)
    assert defs["subject"]["properties"]["kind"]["enum"] == list(Kind)
    assert defs["finding"]["properties"]["severity"]["enum"] == list(Severity)
    assert measurement["class"]["enum"] == list(PairClass)
    assert set(measurement["unit"]["enum"]) == UNITS
    assert node["state"]["enum"] == list(NodeState)
    changes = schema("diff")["properties"]
    assert changes["pairs"]["items"]["properties"]["status"]["enum"] == list(Status)
    facts = schema("preflight")["properties"]["facts"]["items"]["properties"]
    assert facts["compare"]["enum"] == list(Compare)


def test_a_schema_has_all_states_of_a_job() -> None:
    job = schema("session")["properties"]["job"]["properties"]
    assert set(job["state"]["enum"]) == set(JobState)
    assert set(job["ranks"]["items"]["properties"]["state"]["enum"]) == set(RankState)
