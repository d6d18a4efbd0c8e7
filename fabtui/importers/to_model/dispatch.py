"""From what was read to a model: matrices, tables of pairs, collectives and snapshots become measurements.

Nothing is invented: a benchmark that names no host gets a node named after its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fabtui.diagnosis.diagnosis import Diagnosis, Evidence, diagnose, with_errors
from fabtui.diagnosis.finding import Domain, Finding
from fabtui.diagnosis.knowledge.log_causes import Causes, LogReader
from fabtui.diagnosis.merge_findings import in_order
from fabtui.errors import InputError
from fabtui.export.csv import rows
from fabtui.importers.catalogue import formats, is_ours
from fabtui.importers.formats import fabtui_files
from fabtui.importers.formats.fabtui_files import ENDPOINT_FIELDS, add_arms, add_snapshot
from fabtui.importers.result import Result
from fabtui.importers.to_model.session_draft import SessionDraft, node_name
from fabtui.model.events import APPLY_ERRORS, Event
from fabtui.model.session_model import Model
from fabtui_node.parsers.base import Notes

_RECORDING = "fabtui-recording"
#: Minimum length of the part of a line by which its place in the text is found.
_PART = 12


def convertible(kind: str) -> bool:
    """Return True if outputs of a kind can be turned into measurements."""
    return kind == _RECORDING or (kind in formats() and formats()[kind].convert is not None)


def check_comparable(results: Iterable[Result], advice: str = "", *, ours: bool = False) -> None:
    """Raise InputError, with an advice, if pairs would be in one layer although they are measured in different ways.

    ``ours``: whether there are measurements of fabtui besides.
    """
    kinds: dict[str, None] = {"fabtui": None} if ours else {}
    for result in results:
        if is_ours(result.kind):
            kinds.setdefault("fabtui")
        elif result.known and formats()[result.kind].incomparable:
            kinds.setdefault(result.kind)
    if len(kinds) > 1:
        raise InputError(f"the pair values of {' and '.join(kinds)} are not comparable{advice}")


def events(results: Iterable[Result]) -> list[Event]:
    """Return events with the contents of files, as if from a session; a single recording gives its own events.

    Nothing is in them for a file whose kind has no pairs, no collectives and no facts of a node.
    """
    files = list(results)
    if len(files) == 1 and files[0].kind == _RECORDING:
        return _recorded(files[0].source.text)
    draft = SessionDraft()
    for result in files:
        if result.kind == _RECORDING:
            _add_recording(draft, result.source.text)
        elif result.known:
            form, name = formats()[result.kind], stem(result.source.name)
            if form.convert is not None:
                form.convert(draft, result.values, name)
            if form.facts is not None:
                for node, probes in form.facts(result.values).items():
                    draft.facts(node_name(node) if node else draft.unique(name), probes)
            if form.job:
                draft.conclusion(form.job, result.values)
    return draft.events()


def model(results: Iterable[Result]) -> Model:
    return fabtui_files.applied(events(results), Notes())


def without_facts(session: Model) -> Model:
    """Return the model of what a CSV snapshot holds of a session: the measurements, and no facts of nodes."""
    draft = SessionDraft()
    add_snapshot(draft, {"measurements": rows(session)}, "")
    return fabtui_files.applied(draft.events(), Notes())


def stem(name: str) -> str:
    """Return what a file is called without its folder and endings: ``runs/n060.nccl.txt`` is ``n060.nccl``."""
    if name == "-":
        return "stdin"
    bare = Path(name).name
    bare = bare.removesuffix(next(filter(bare.endswith, (".gz", ".xz", ".bz2", ".zst")), ""))
    return bare.rpartition(".")[0] or bare


def _recorded(text: str) -> list[Event]:
    model = Model()
    happened = []
    for event in fabtui_files.events(text, Notes()):
        try:
            model.apply(event)
        except APPLY_ERRORS:
            continue
        happened.append(event)
    return happened


def _add_recording(draft: SessionDraft, text: str) -> None:
    session = fabtui_files.applied(fabtui_files.events(text, notes := Notes()), notes)
    draft.lab = draft.lab or session.lab
    for name, record in session.nodes.items():
        draft.node(name)
        draft.records.setdefault(name, record)
    for end in session.endpoints:
        draft.endpoint(end.node, end.index, **{name: getattr(end, name) for name in ENDPOINT_FIELDS})
    add_arms(draft, session.comparison)
    draft.measurements += [*session.measurements(), *session.results.arms()]
    for probe in session.options.get("probes", []):
        draft.probes.setdefault(str(probe))
    draft.untested += [(src, dst, why) for (src, dst), why in session.untested.items()]


def errors_in(result: Result, diagnosis: Diagnosis) -> Causes:
    """Return the errors in an output that may have lines of a log, or problems of a node that no rule explains."""
    reader = LogReader()
    form, findings = formats().get(result.kind), diagnosis.findings
    explained = not findings or any(finding.code or finding.facts.get("action") for finding in findings)
    if form is not None and (form.errors or (form.facts is not None and not explained)):
        reader.add(result.source.text)
    return reader.result()


def examined(result: Result) -> Diagnosis:
    """Return the diagnosis of an output; nothing is found in one whose format is unknown."""
    diagnosis = diagnose(Evidence(model([result])))
    if is_ours(result.kind):
        return diagnosis
    # A session has its preflight for notes, for more findings than it lists, and for those that go with another.
    others = [finding for finding in diagnosis.all_findings if finding.rule.domain is not Domain.NODES]
    every = in_order(diagnosis.model, [*others, *diagnosis.preflight.findings])
    if (form := formats().get(result.kind)) is not None and form.log and form.facts is not None:
        # Equally grave lines of one log stay in the order in which they happened.
        text = result.source.text
        places = {id(one): _place(str(one.facts.get("text", "")), text) for one in every}
        every.sort(key=lambda one: (one.known, one.severity.rank, places[id(one)]))
    return replace(diagnosis, findings=every, all_findings=every)


def _place(quote: str, text: str) -> int:
    """Return where a text has the line that a finding quotes, as far as it does in its words."""
    places = (text.find(part) for part in re.split(r"[:,] ", quote) if len(part) >= _PART)
    return next((place for place in places if place >= 0), len(text))


def findings_about(result: Result) -> list[Finding]:
    """Return all findings about an output, with errors in lines of logs, the first one first."""
    diagnosis = examined(result)
    return with_errors(diagnosis, errors_in(result, diagnosis)).all_findings
