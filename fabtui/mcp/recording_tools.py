"""Tools about recorded sessions: findings, one pair, differences, and the history of a site."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabtui.config import values
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Finding
from fabtui.errors import InputError
from fabtui.export.history import json_text as history_text
from fabtui.export.json import pair_json
from fabtui.export.session_diff import json_text as diff_text
from fabtui.history.components import node_at
from fabtui.history.file import history_file
from fabtui.history.query import Overview, read_overview, usual_start
from fabtui.importers.session import compared
from fabtui.mcp.answer import Answer, steps_of
from fabtui.mcp.file_access import checked_file
from fabtui.mcp.latest_session import ReadSession
from fabtui.mcp.session_answer import not_asked_lines, session_answer
from fabtui.mcp.tool import FINDINGS, ROWS, SENTENCE, SESSION_BODY, Tool, ToolCall, switch, text
from fabtui.mcp.worker_threads import answered_in_thread, reading
from fabtui.model.endpoints import node_of
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.paths import RECORDING, shipped_recordings_folder
from fabtui.presentation.component_history import empty_text, overview_sentence
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wording import verdict_words
from fabtui.report.recordings import recordings_in
from fabtui.sanitize import one_line


def recording_of(given: dict[str, Any], folder: Path) -> Path:
    """Return the file of a session that a call names; by default the newest recording in the user's folder.

    Raises:
        InputError: There is none, or it is not to be read.
    """
    if "demo" in given:
        if "file" in given:
            raise InputError("give either file or demo")
        return _demo(given["demo"])
    if "file" in given:
        name = given["file"]
        # A recording is named without its folder, too.
        inside = folder / name
        return checked_file(str(inside) if "/" not in name and inside.is_file() else name, "file", folder)
    # An empty one belongs to a session that has only begun.
    newest = next((path for path in recordings_in(folder) if path.stat().st_size), None)
    if newest is None:
        raise InputError(f"there is no recording in {folder}; give file, or call preflight or run")
    return checked_file(str(newest), "file", folder)


def _demo(name: str) -> Path:
    known = {path.name.removesuffix(RECORDING): path for path in shipped_recordings_folder().glob(f"*{RECORDING}")}
    if name not in known:
        raise InputError(f"demo: no recording {one_line(name, 60)!r}; there are {', '.join(sorted(known))}")
    return known[name]


def diagnosed(call: ToolCall, path: Path) -> ReadSession:
    """Return the session of a file; blocks.

    Raises:
        InputError: It holds no session, or nodes that are not allowed.
    """
    found = call.latest.read(path, reading(call, path.name))
    call.permission.check(found.diagnosis.model.nodes, f"{path.name}: nodes of the session")
    return found


def _findings(call: ToolCall) -> Answer:
    path = recording_of(call.given, call.requests.recordings)
    found, problems = diagnosed(call, path)
    return session_answer(found, path, problems)


def _pair(call: ToolCall) -> Answer:
    (src, dst), *_ = values.pairs([call.given["pair"]], "pair")
    call.permission.check([node_of(src), node_of(dst)], "pair")
    path = recording_of(call.given, call.requests.recordings)
    found, problems = diagnosed(call, path)
    model = found.model
    for end in (src, dst):
        if model.table.number(end) is None:
            known = one_line(fold(model.nodes), 200)
            raise InputError(f"pair: there is no endpoint {end!r} in {path.name}; it has the nodes {known!r}")
    directions = [_direction(found, *ends) for ends in ((src, dst), (dst, src))]
    mine = [one for one in found.all_findings if {(src, dst), (dst, src)} & one.cells]
    about = [one for one in found.all_findings if one not in mine and _is_about(one, {src, dst})]
    shown = "; ".join(f"{one['src']} > {one['dst']}: {one['summary']}" for one in directions)
    return Answer(
        shown,
        {
            "directions": directions,
            "findings": [finding_json(one) for one in mine],
            "findings_of_its_ends": [finding_json(one) for one in about],
            "session": sentence_of(found),
        },
        examined=[
            f"{one['src']} > {one['dst']}: {count(len(one['measurements']), 'measurement')}" for one in directions
        ],
        not_examined=[
            *problems,
            *(f"{one['src']} > {one['dst']}: {one['untested']}" for one in directions if one["untested"]),
            *not_asked_lines(model),
        ],
        recording=path,
        next=steps_of([*mine, *about]),
    )


def _is_about(one: Finding, ends: set[str]) -> bool:
    """Return whether a finding is about endpoints or their nodes; one that explains pairs is about its subject."""
    nodes = set(map(node_of, ends))
    return one.subject.name in ends | nodes or (not one.cells and not nodes.isdisjoint(one.nodes))


def _direction(found: Diagnosis, src: str, dst: str) -> dict[str, Any]:
    measured = pair_json(found, src, dst)
    verdicts = {one["layer"]: verdict_words(one["verdict"]) for one in measured}
    why = found.model.untested.get((src, dst), "")
    untested = one_line(why, 400) or ("" if measured else "not tested in this session")
    summary = ", ".join(f"{layer} {verdict}" for layer, verdict in verdicts.items())
    return {
        "src": src,
        "dst": dst,
        "summary": summary or (f"not tested: {untested}" if why else untested),
        "untested": untested or None,
        "measurements": measured,
    }


def _diff(call: ToolCall) -> Answer:
    paths = [checked_file(call.given[name], name, call.requests.recordings) for name in ("before", "after")]
    names = (str(paths[0]), str(paths[1]))
    found = compared(names, lambda path: reading(call, path.name))
    call.permission.check([*found.then.nodes, *found.now.nodes], "nodes of the sessions")
    diff = found.diff
    worse = "something is worse" if diff.worse else "nothing is worse"
    changes = ", ".join(f"{count(len(getattr(diff, name)), 'finding')} {name}" for name in ("new", "gone", "still"))
    return Answer(
        f"Between {paths[0].name} and {paths[1].name} {worse}: {changes}.",
        json.loads(diff_text(names, diff)),
        examined=[*_sizes(paths, (found.then, found.now))],
        not_examined=[*found.notices, *_uncompared(found.then, found.now)],
        code=1 if diff.worse else 0,
        recording=paths[1],
        next=steps_of(diff.new),
    )


def _sizes(paths: Iterable[Path], models: Iterable[Model]) -> Iterable[str]:
    for path, model in zip(paths, models, strict=True):
        yield f"{path.name}: {count(len(model.nodes), 'node')}, {count(len(model.endpoints), 'endpoint')}"


def _uncompared(then: Model, now: Model) -> Iterable[str]:
    for name, one, other in (("earlier", then, now), ("later", now, then)):
        if alone := [node for node in one.nodes if node not in other.nodes]:
            yield f"{one_line(fold(alone), 200)}: only in the {name} session, so not compared"


_UNKNOWN_TO_HISTORY = "what no recorded session has tested, and what has happened since the last one"


def _history(call: ToolCall) -> Answer:
    given, subject = call.given, str(call.given.get("subject", "")).strip()
    lab = bool(given.get("labs"))
    since = values.since(given["since"], "since") if "since" in given else usual_start(subject)
    found = read_overview(history_file(lab), since, subject)
    if subject and not found.courses:
        call.permission.check([node_at(subject)], "subject")
        raise InputError(f"{one_line(subject, 80)!r} is not a node, endpoint, port or identity in the history")
    # An identity has no name of a node in it, and may have been in several.
    places = {course.component.node for course in found.courses}
    places |= {node_at(stay.place) for course in found.courses for stay in course.stays}
    call.permission.check(sorted(places - {""}), "subject")
    shown, left_out = _allowed(call, found)
    return Answer(
        empty_text(shown) if not shown.total else overview_sentence(shown),
        json.loads(history_text(shown)),
        examined=[f"the history of this site: {count(len(shown.sessions), 'session')}; no node was asked"],
        not_examined=[
            "everything: no session is known" if not shown.total else _UNKNOWN_TO_HISTORY,
            *([f"{count(left_out, 'session')} on nodes that are not allowed"] if left_out else []),
        ],
        code=None,
    )


def _allowed(call: ToolCall, found: Overview) -> tuple[Overview, int]:
    if not call.permission.nodes:
        return found, 0
    sessions = [one for one in found.sessions if call.permission.is_within(one.nodes)]
    standouts = [
        one for one in found.standouts if one.component.node and call.permission.is_within([one.component.node])
    ]
    # Versions are those of all nodes.
    kept = replace(found, total=len(sessions), sessions=sessions, standouts=standouts, version_steps=())
    return kept, found.total - len(sessions)


_FILE = text("Recording, CSV or JSON of a session: a path, or a name in the folder of recordings. Default: the newest.")
_DEMO = text("Instead of file: name of a recording that ships with fabtui, such as h200x4-lab-2x2-faults.", 100)
RECORDING_TOOLS = (
    Tool(
        name="findings",
        title="Findings of a recorded session",
        description=(
            "Returns the verdict and the findings of a recorded session, the worst first, each with rule, confidence, "
            "evidence and next commands. It asks no node: what the session has not tested is in not_examined."
        ),
        seconds=120.0,
        answer=answered_in_thread(_findings),
        arguments={"file": _FILE, "demo": _DEMO},
        body=SESSION_BODY,
    ),
    Tool(
        name="pair",
        title="One pair of GPUs",
        description="Returns all measurements of one pair in both directions, and the findings about it and its ends.",
        seconds=120.0,
        answer=answered_in_thread(_pair),
        arguments={"pair": text("Two endpoints: n060:3>n061:5.", 600), "file": _FILE, "demo": _DEMO},
        required=("pair",),
        body={"directions": ROWS, "findings": FINDINGS, "findings_of_its_ends": FINDINGS, "session": SENTENCE},
    ),
    Tool(
        name="diff",
        title="Differences between two sessions",
        description="Compares two recorded sessions: pairs, facts of nodes and findings that are worse, new or gone.",
        seconds=120.0,
        answer=answered_in_thread(_diff),
        arguments={"before": text("Earlier recording, CSV or JSON."), "after": text("Later one.")},
        required=("before", "after"),
        body={"worse": {"type": "boolean"}, "pairs": ROWS, "findings": {"type": "object"}},
    ),
    Tool(
        name="history",
        title="What earlier sessions saw",
        description=(
            "Returns components that are getting worse, flapping or new, or the course of one over all sessions."
        ),
        seconds=60.0,
        answer=answered_in_thread(_history),
        arguments={
            "subject": text("A node, endpoint, port or identity; none: what stands out.", 200),
            "since": text("Since a date, or a time ago: 2026-09-01, 30d, 2w, 1y.", 40),
            "labs": switch("The history of the labs on this machine, kept in its own file."),
        },
        body={"sessions": ROWS, "standouts": ROWS, "courses": ROWS},
    ),
)
