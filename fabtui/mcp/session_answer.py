"""Answers about sessions: recordings, tests and preflights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fabtui.config.values import PAIR_LAYERS
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.running_job.job_verdict import JobVerdict
from fabtui.diagnosis.running_job.running_job_rules import SOURCE_OF_FACT
from fabtui.export.json import overview_json
from fabtui.mcp.answer import Answer, steps_of
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wording import verdict_words
from fabtui.report.session_notes import mesh_lines
from fabtui.report.summary import head_lines
from fabtui.sanitize import one_line
from fabtui_node.registry import TESTS, probes_in

#: Number of findings whose commands an answer has.
_MOST_FINDINGS = 10
#: Usual sources of evidence about a running job; few jobs run with the Inspector.
_SOURCES = tuple(name for fact, name in SOURCE_OF_FACT.items() if fact != "inspector")
#: Tests that a session runs by default.
_TESTS = (*probes_in("mesh", "load"), *TESTS)


def session_answer(found: Diagnosis, recording: Path | None, problems: tuple[str, ...] = ()) -> Answer:
    """Return the answer about a session.

    Args:
        found: Its diagnosis.
        recording: Its recording; None without one.
        problems: Why it is not whole, one line each.
    """
    return Answer(
        sentence_of(found),
        overview_json(found),
        examined=[*examined_lines(found.model), *(seen_lines(found.job) if found.job else ())],
        not_examined=[*problems, *not_examined_lines(found), *(unseen_lines(found.job) if found.job else ())],
        code=found.code,
        recording=recording,
        next=steps_of(found.findings[:_MOST_FINDINGS]),
    )


def examined_lines(model: Model) -> Iterator[str]:
    """Yield what a session has examined: its nodes, and for each layer the number of pairs by verdict."""
    yield from head_lines(model)
    inspected = [
        record.name
        for record in model.nodes.values()
        if any(value.keys() != {"error"} for value in record.probe_results.values())
    ]
    if inspected:
        yield f"{count(len(inspected), 'node')} inspected: {one_line(fold(inspected), 400)}"
    for layer in model.layers:
        verdicts = Counter(model.verdicts_in(layer))
        shown = ", ".join(f"{number} {verdict_words(one)}" for one, number in verdicts.most_common())
        if shown:
            yield f"{layer}: {count(verdicts.total(), 'pair')}: {shown}"
    yield from mesh_lines(model)


def not_examined_lines(found: Diagnosis) -> list[str]:
    model = found.model
    lines = [*found.not_examined, *_uninspected(found), *_without_hardware(model)]
    if model.options.get("looks_only"):
        lines.append("no pair of endpoints and no collective was tested: the session only inspected nodes")
    else:
        ends = len(model.endpoints)
        tested = found.tally.counts.total()
        # What could not be tested has a reason of its own.
        if (left := ends * (ends - 1) - tested - len(model.untested)) > 0 and tested:
            lines.append(f"{left} of {count(ends * (ends - 1), 'pair')} were not chosen: only some were to be tested")
        elif not tested and not lines:
            lines.append("no pair of endpoints was tested")
        lines += not_asked_lines(model)
    return [*dict.fromkeys(one_line(line, 600) for line in lines)]


def seen_lines(verdict: JobVerdict) -> Iterator[str]:
    yield from (f"{one.name}: {one.text}" for one in verdict.sources)


def unseen_lines(verdict: JobVerdict) -> Iterator[str]:
    """Yield what the sources cannot see of a running job, and which show nothing."""
    yield from (f"{one.name}: {one.blind}" for one in verdict.sources if one.blind)
    if verdict.needs:
        yield verdict.needs
    names = {one.name for one in verdict.sources}
    if silent := [name for name in _SOURCES if name not in names]:
        yield f"nothing was seen by {', '.join(silent)}"


def not_asked_lines(model: Model) -> Iterator[str]:
    """Yield which tests a session was not asked for; a snapshot does not have what was asked for."""
    probes, layers = model.asked("probes"), model.asked("layers")
    others = [name for name in _TESTS if probes and name not in probes]
    others += [f"layer {name}" for name in PAIR_LAYERS if "p2p" in probes and layers and name not in layers]
    if others:
        yield f"not asked for: {', '.join(others)}"


def _without_hardware(model: Model) -> Iterator[str]:
    """Yield the inspected nodes without any GPU or RDMA port: what should be there is unknown."""
    for key, what in (("gpus", "GPU"), ("ib", "RDMA port")):
        without = [one.name for one in model.nodes.values() if one.inventory is not None and not one.inventory.get(key)]
        if without and model.lab is None:
            yield f"{fold(without)}: no {what} was found, so none was examined"


def _uninspected(found: Diagnosis) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for nodes, line in found.preflight.missing:
        alike.setdefault(line.removeprefix(f"{fold(nodes)}: "), []).extend(nodes)
    yield from (f"{fold(nodes)}: {text}" for text, nodes in alike.items())
