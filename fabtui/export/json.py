"""Session, and a running job, as one JSON object."""

from __future__ import annotations

from dataclasses import asdict

from msgspec import to_builtins

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Domain, Finding
from fabtui.diagnosis.job.job_verdict import JobVerdict
from fabtui.diagnosis.job.logs.iteration_times import Iteration
from fabtui.diagnosis.job.logs.report import JobReport
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.merge_findings import in_order
from fabtui.diagnosis.pairs.bisection_rules import outcome_sentence
from fabtui.diagnosis.pairs.p2p_vs_world import comparison_text, relayed
from fabtui.diagnosis.pairs.traffic_path import carrier
from fabtui.export.collectives_table import published_json, sweep_json
from fabtui.export.formats import FORMATS, JsonObject, address, cleaned, cleaned_object, head, json_text, members, when
from fabtui.model.facts.link_limits import LinkLimits
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.findings import evidence, placed_title
from fabtui.presentation.healthy_text import as_json as healthy_json
from fabtui.presentation.verdict_line import sentence_of

#: Iterations of a job's report that are listed, and lines at the end of each log.
_ITERATIONS, _TAIL = 100, 3


def bisection_text(model: Model) -> str:
    """Return the latest search by halves as JSON; in its rounds, units have their numbers."""
    log, last = model.bisection, model.bisection.last
    value: JsonObject = {
        "format": 1,
        "outcome": None,
        "sentence": outcome_sentence(model),
        "culprits": [],
        "rounds": [],
    }
    if log.start is not None and last is not None:
        start = log.start
        value |= {"collective": start.collective, "bytes": start.bytes, "ranks": start.ranks, "units": start.units}
        value |= {
            "outcome": last.outcome,
            "problem": last.problem or None,
            "culprits": [*map(log.names, last.culprits)],
        }
        names = ("number", "purpose", "groups", "left", "cleared")
        rounds = (entry for entry in log.rounds.values() if entry.groups)
        value["rounds"] = [{name: to_builtins(getattr(entry, name)) for name in names} for entry in rounds]
    return json_text(cleaned_object(value))


def as_json(found: Diagnosis) -> JsonObject:
    """Return a session as a JSON object; text from nodes is cleaned, times are ISO 8601 in UTC."""
    model = found.model
    measured = _Measured(model)
    value = {
        **_head(found),
        "options": model.options,
        "nodes": [_node(record) for record in model.nodes.values()],
        "endpoints": [
            {**asdict(end), "id": str(end), "leaf": model.table.leaves.get(end.number)} for end in model.rows
        ],
        "measurements": [*map(measured.as_json, model.measurements())],
        "suspects": [{"src": src, "dst": dst, "text": text} for (src, dst), text in model.suspects.items()],
        "relayed": [{"src": src, "dst": dst, "text": comparison_text(model, src, dst)} for src, dst in relayed(model)],
        "comparison": model.comparison,
        "arms": [*map(measured.as_json, model.results.arms())],
        "group_sweep": sweep_json(model),
        "published": published_json(model),
        "carriers": found.carriers.sentence or None,
        "untested": [{"src": src, "dst": dst, "error": why} for (src, dst), why in model.untested.items()],
        "not_tested": found.not_examined,
        "findings": [finding_json(one) for one in found.findings],
        "mesh": [finding_json(one) for one in found.findings if one.rule.domain is Domain.MESH],
        **_conclusions(found),
        "log": [{**line._asdict(), "time": when(line.time)} for line in model.log],
    }
    return cleaned_object(value)


def session_text(found: Diagnosis) -> str:
    return json_text(as_json(found))


def overview_json(found: Diagnosis) -> JsonObject:
    """Return what a session came to, without what grows with its pairs and its time: the same members as `as_json`."""
    model = found.model
    value = {
        **_head(found),
        "nodes": [members(record, "name", "state", "text", "hint", "note") for record in model.nodes.values()],
        "published": published_json(model),
        "carriers": found.carriers.sentence or None,
        "not_tested": found.not_examined,
        "findings": [finding_json(one) for one in found.findings],
        **_conclusions(found),
    }
    return cleaned_object(value)


def pair_json(found: Diagnosis, src: str, dst: str) -> list[JsonObject]:
    """Return the measurements of an ordered pair of endpoints or nodes, as `as_json` has them."""
    mine = (one for one in found.model.measurements() if (one.src, one.dst) == (src, dst))
    whole: list[JsonObject] = cleaned([*map(_Measured(found.model).as_json, mine)])
    return whole


def _head(found: Diagnosis) -> JsonObject:
    model = found.model
    return {
        "format": FORMATS["session"],
        # Readers recognise the file by the first two.
        "software": f"fabtui {model.software}",
        "$schema": address("session"),
        "started": when(model.started),
        "ended": when(model.now),
        "exit": found.code,
        "sentence": sentence_of(found),
        **members(model, "lab", "faults"),
    }


def _conclusions(found: Diagnosis) -> JsonObject:
    return {
        "healthy": healthy_json(found.healthy),
        **({} if found.job is None else {"job": _running(found.job)}),
        "past": [*map(_past, found.past)],
        "preflight": [finding_json(one) for one in in_order(found.model, found.preflight.findings)],
    }


class _Measured:
    """Measurements of a session as JSON objects."""

    def __init__(self, model: Model) -> None:
        self._model, self._notes, self._limits = model, PortNotes(model), LinkLimits(model)

    def as_json(self, m: Measurement) -> JsonObject:
        model, carried, limit = self._model, carrier(self._model, m), self._limits.of(m)
        known = {
            "counters": model.counters.of(m),
            "carrier": None if carried is None else {**carried._asdict(), "text": carried.text},
            "notes": self._notes.of(m.src, m.dst),
            "limit": None if limit is None else limit._asdict(),
        }
        judged = {"time": when(m.time), "class": model.key_of(m).kind, "verdict": model.verdict(m)}
        return {**m.to_json(), **judged, **{name: value for name, value in known.items() if value}}


def _past(finding: Finding) -> JsonObject:
    past = finding.facts["past"]
    return {
        "what": placed_title(finding),
        "subject": finding.subject._asdict(),
        "nodes": finding.nodes,
        "pairs": past.pairs,
        "from": when(past.since),
        "to": when(past.until),
        "start_seen": past.start_seen,
        "passes_now": past.passes_now,
        "evidence": evidence(finding),
    }


def _node(record: NodeRecord) -> JsonObject:
    return {
        **members(record, "name", "state", "text", "hint", "backend", "note"),
        "since": when(record.since),
        "inventory": record.inventory,
        "first_looks": record.first_probe_results,
        "looks": record.probe_results,
    }


def job_json(verdict: JobVerdict | None, report: JobReport | None = None, **more: object) -> JsonObject:
    """Return a job as a JSON object: what its ranks do, and what its logs and Slurm show of it.

    Members of what was not observed or read are absent. Texts are cleaned.
    """
    return cleaned_object(
        {
            **head("job"),
            **({"job": None, "state": None} if verdict is None else _running(verdict)),
            **({} if report is None else _reported(report)),
            **more,
        }
    )


def _running(verdict: JobVerdict) -> JsonObject:
    late = {place.rank for place in verdict.behind}
    return {
        "sentence": verdict.sentence,
        "state": str(verdict.state),
        "since": when(verdict.since),
        "at": when(verdict.at),
        "job": verdict.job or None,
        "nodes": list(verdict.nodes),
        "behind": [place.rank for place in verdict.behind],
        "where": verdict.where or None,
        "fabric": verdict.fabric or None,
        "per_minute": verdict.per_minute,
        "needs": verdict.needs or None,
        "next": list(verdict.next),
        "ranks": [
            {
                **{"rank": row.rank, "node": row.place.node, "endpoint": row.endpoint, "pid": row.place.pid},
                **{"state": str(row.state), "behind": row.rank in late},
                **members(row, "why", "utilization", "power", "nvlink", "nic", "cpu"),
            }
            for row in verdict.ranks
        ],
        "stacks": [{**one._asdict(), "activity": one.activity or None} for one in verdict.stacks],
        "sources": [
            {**members(one, "name", "text"), "blind": one.blind or None, "at": when(one.at)} for one in verdict.sources
        ],
    }


def _reported(report: JobReport) -> JsonObject:
    """Return what logs and Slurm show; times in s, memory in bytes."""
    status, facts, logs = report.status, report.facts, report.facts.logs
    times = logs.iterations
    known = {name: getattr(status, name) or None for name in ("state", "reason", "name", "user", "exit_code")}
    return {
        "job": status.job or None,
        "slurm": {**known, **members(status, "elapsed", "limit")},
        "when": facts.when,
        "verdict": report.verdict,
        "exit": report.exit_code,
        "findings": [
            {
                **{"rule": one.rule.id, "severity": str(one.severity), "text": one.facts["text"]},
                **{"nodes": list(one.nodes), "evidence": list(one.facts["evidence"] or ())},
                "next": "".join(one.next) or None,
            }
            for one in report.findings
        ],
        "quiet": logs.quiet(),
        "silence_limit": facts.silence_limit,
        "iterations": {
            **members(times, "median", "interval"),
            "warm_up": None if times.warm_up is None else _iteration(times.warm_up),
            "restarts": times.restarts,
            "latest": [_iteration(one) for one in times.all[-_ITERATIONS:]],
        },
        "settings": logs.settings.of,
        "by_node": [
            {
                **members(row, "node", "state", "quiet"),
                "iteration": row.iteration or None,
                **members(row, "errors", "ranks"),
                "gpus": None
                if row.sample is None
                else [{**gpu._asdict(), "busy": gpu.busy} for gpu in row.sample.gpus],
                "gpus_age": row.sample_age,
            }
            for row in report.rows
        ],
        "logs": [
            {
                **{"path": file.path, "node": file.node or None, "stream": file.stream, "lines": file.lines},
                **{"bytes": file.size, "skipped": file.skipped, "read_on": file.reader or None},
                **{"age": logs.age(file), "errors": file.errors.count, "tail": file.tail(_TAIL)},
            }
            for file in logs.files.values()
        ],
        "unread": list(report.unread),
    }


def _iteration(one: Iteration) -> JsonObject:
    return {"iteration": one.number, **members(one, "total", "seconds"), "loss": one.loss or None}
