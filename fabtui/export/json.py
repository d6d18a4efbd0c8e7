"""Session as one JSON object."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Domain
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.merge_findings import in_order
from fabtui.diagnosis.pairs.p2p_vs_world import comparison_text, relayed
from fabtui.diagnosis.pairs.traffic_path import carrier
from fabtui.diagnosis.running_job.job_verdict import JobVerdict
from fabtui.export.atomic_write import write_atomically
from fabtui.export.collectives_table import sweep_json
from fabtui.export.csv_table import when
from fabtui.export.json_schemas import FORMATS, address, cleaned
from fabtui.model.facts.link_limits import LinkLimits
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.healthy_text import as_json as healthy_json
from fabtui.presentation.published_text import as_json as published_json
from fabtui.presentation.verdict_line import sentence_of


def as_json(found: Diagnosis) -> dict[str, Any]:
    """Return a session as a JSON object; text from nodes is cleaned, times are ISO 8601 in UTC."""
    model = found.model
    notes, limits = PortNotes(model), LinkLimits(model)
    value = {
        **_head(found),
        "options": model.options,
        "nodes": [_node(record) for record in model.nodes.values()],
        "endpoints": [
            {**asdict(end), "id": str(end), "leaf": model.table.leaves.get(end.number)} for end in model.rows
        ],
        "measurements": [_measured(model, measurement, notes, limits) for measurement in model.measurements()],
        "suspects": [{"src": src, "dst": dst, "text": text} for (src, dst), text in model.suspects.items()],
        "relayed": [{"src": src, "dst": dst, "text": comparison_text(model, src, dst)} for src, dst in relayed(model)],
        "comparison": model.comparison,
        "arms": [_measured(model, measurement, notes, limits) for measurement in model.results.arms()],
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
    whole: dict[str, Any] = cleaned(value)
    return whole


def overview_json(found: Diagnosis) -> dict[str, Any]:
    """Return what a session came to, without what grows with its pairs and its time: the same members as `as_json`."""
    model = found.model
    value = {
        **_head(found),
        "nodes": [
            {"name": record.name, "state": record.state, "text": record.text, "hint": record.hint, "note": record.note}
            for record in model.nodes.values()
        ],
        "published": published_json(model),
        "carriers": found.carriers.sentence or None,
        "not_tested": found.not_examined,
        "findings": [finding_json(one) for one in found.findings],
        **_conclusions(found),
    }
    whole: dict[str, Any] = cleaned(value)
    return whole


def pair_json(found: Diagnosis, src: str, dst: str) -> list[dict[str, Any]]:
    """Return the measurements of an ordered pair of endpoints or nodes, as `as_json` has them."""
    model = found.model
    notes, limits = PortNotes(model), LinkLimits(model)
    mine = (one for one in model.measurements() if (one.src, one.dst) == (src, dst))
    whole: list[dict[str, Any]] = cleaned([_measured(model, one, notes, limits) for one in mine])
    return whole


def _head(found: Diagnosis) -> dict[str, Any]:
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
        "lab": model.lab,
        "faults": model.faults,
    }


def _conclusions(found: Diagnosis) -> dict[str, Any]:
    return {
        "healthy": healthy_json(found.healthy),
        **({} if found.job is None else {"job": job_values(found.job)}),
        "preflight": [finding_json(one) for one in in_order(found.model, found.preflight.findings)],
    }


def write_json(found: Diagnosis, path: Path) -> None:
    """Write a session as JSON, whole or not at all (OSError)."""
    text = json.dumps(as_json(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))


def _measured(model: Model, measurement: Measurement, notes: PortNotes, limits: LinkLimits) -> dict[str, Any]:
    counters = model.counters.of(measurement)
    carried = carrier(model, measurement)
    port_notes, limit = notes.of(measurement.src, measurement.dst), limits.of(measurement)
    return {
        **measurement.to_json(),
        "time": when(measurement.time),
        "class": model.key_of(measurement).kind,
        "verdict": model.verdict(measurement),
        **({"counters": counters} if counters else {}),
        **({"carrier": {**carried._asdict(), "text": carried.text}} if carried is not None else {}),
        **({"notes": port_notes} if port_notes else {}),
        **({"limit": limit._asdict()} if limit is not None else {}),
    }


def _node(record: NodeRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": record.state,
        "text": record.text,
        "hint": record.hint,
        "backend": record.backend,
        "note": record.note,
        "since": when(record.since),
        "inventory": record.inventory,
        "first_looks": record.first_probe_results,
        "looks": record.probe_results,
    }


def job_values(verdict: JobVerdict) -> dict[str, Any]:
    """Return a verdict about a running job as a JSON object; text is cleaned, times are ISO 8601 in UTC."""
    late = {place.rank for place in verdict.behind}
    value = {
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
                "rank": row.rank,
                "node": row.place.node,
                "endpoint": row.endpoint,
                "pid": row.place.pid,
                "state": str(row.state),
                "behind": row.rank in late,
                "why": row.why,
                "utilization": row.utilization,
                "power": row.power,
                "nvlink": row.nvlink,
                "nic": row.nic,
                "cpu": row.cpu,
            }
            for row in verdict.ranks
        ],
        "sources": [
            {"name": one.name, "text": one.text, "blind": one.blind or None, "at": when(one.at)}
            for one in verdict.sources
        ],
    }
    whole: dict[str, Any] = cleaned(value)
    return whole
