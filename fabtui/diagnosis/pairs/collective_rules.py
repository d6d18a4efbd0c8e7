"""Rules about collectives, which use more of the hardware than pairs do."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from fabtui.diagnosis.experiment import GroupFact
from fabtui.diagnosis.finding import (
    Finding,
    Kind,
    Rule,
    Severity,
    Subject,
    register,
)
from fabtui.diagnosis.knowledge.error_catalogue import ErrorFact, Meaning, meaning_of_measurement
from fabtui.diagnosis.knowledge.failure_stage import stage_failure
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.pairs.pair_context import PairContext
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import Path, path_of

_NVLS = "nvls"
#: Least share of the bandwidth of its pairs that an all_reduce over GPUs of one NVLink domain has in a ring: on H200,
#: 339 of 360 GB/s with 256 MiB.
_RING_SHARE = 0.75
#: Maximum number of pairs of a group that are inspected.
_MOST_PAIRS = 64


@register
class NvlinkSharp(Rule[PairContext]):
    """A collective fails where NVLink SHARP is set up, or is slower with it than a ring of the same GPUs would be."""

    id = "FT046"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        model = context.model
        failed: list[tuple[Measurement, set[str]]] = []
        slow: list[tuple[Measurement, set[str]]] = []
        for group in context.groups:
            yield None
            one, nodes = group.measured, set(group.nodes)
            if not (one.src == one.dst == "all" or {one.src, one.dst} <= model.nodes.keys()):
                # Rails, and the first ranks of all nodes.
                continue
            if one.value is None:
                meaning = None if one.made else _meaning(one)
                if meaning is not None and (meaning.id == f"stage-{_NVLS}" or meaning.stages == (_NVLS,)):
                    failed.append((one, nodes))
            elif one.layer is Layer.BUSBW and _NVLS in str((one.extra or {}).get("algorithm")).lower():
                level = _pair_level(model, nodes, one)
                if level is not None and one.value < _RING_SHARE * level:
                    slow.append((one, nodes))
        for groups, what in ((failed, "cannot be set up"), (slow, "is slower than a ring")):
            # Those that have no smaller one of them within, whose fault they have.
            least = [(one, mine) for one, mine in groups if not any(other < mine for _, other in groups)]
            if least:
                yield self._found(model, least, what)

    def _found(self, model: Model, groups: list[tuple[Measurement, set[str]]], what: str) -> Finding:
        nodes = [name for name in model.nodes if any(name in mine for _, mine in groups)]
        first, mine = groups[0]
        facts: dict[str, Any] = {
            "where": fold(nodes),
            "what": what,
            "groups": tuple(GroupFact(one.src, one.dst, one.value, one.unit) for one, _ in groups),
        }
        if first.value is None:
            meaning = _meaning(first)
            facts |= {
                "collective": str(first.layer.spec.collective),
                "group": fold(sorted(mine)),
                "error": ErrorFact(one_line(first.error or "failed", 200)),
                **({} if meaning is None else meaning.facts),
            }
        else:
            algorithm = one_line(str((first.extra or {}).get("algorithm")), 40)
            level = _pair_level(model, mine, first)
            facts |= {"algorithm": algorithm, "busbw": first.value, "unit": first.unit, "pairs_have": level}
        commands = [
            on_node(nodes[0], one, model)
            for one in ("nvidia-smi -q | grep -A4 Fabric", "systemctl status nvidia-fabricmanager")
        ]
        return self.finding(
            nodes[0] if len(nodes) == 1 else "",
            severity=Severity.BAD if first.value is None else Severity.WARN,
            nodes=nodes,
            facts=facts,
            commands=commands,
            blames=Subject(Kind.NODE, nodes[0]) if len(nodes) == 1 else None,
        )


def _meaning(one: Measurement) -> Meaning | None:
    if (found := meaning_of_measurement(one)) is not None:
        return found
    lines = (line for text in (one.error, one.raw) if text for line in text.splitlines())
    return next((failure for line in lines if (failure := stage_failure(line, True)) is not None), None)


def _pair_level(model: Model, nodes: Iterable[str], one: Measurement) -> float | None:
    """Return the median bandwidth of the pairs of a group; None where one is bad, unknown or leaves NVLink and PCIe."""
    ends = [str(end) for name in sorted(nodes) for end in model.table.of_node(name) if end.kind == "gpu"]
    pairs = [(ends[at], ends[(at + by) % len(ends)]) for by in range(1, len(ends)) for at in range(len(ends))]
    values = []
    for way in pairs[:_MOST_PAIRS]:
        pair = model.latest(Layer.P2P, *way)
        if pair is None:
            continue
        if pair.value is None or model.verdict(pair).bad or path_of(pair.transport) is not Path.P2P:
            return None
        if (pair.bytes or 0) <= (one.asked_bytes or 0):
            values.append(pair.value)
    return statistics.median(values) if values else None
