"""Text of a healthy set: options and commands for the shell, lines of a host file, rank orders, JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.healthy_set import HealthySet
from fabtui.diagnosis.rank_order import Hop, RankOrder
from fabtui.model.endpoints import Endpoint
from fabtui.nodeset import count, fold
from fabtui.presentation.findings import title
from fabtui.presentation.numbers import spoken_text, spoken_texts
from fabtui.presentation.wording import verdict_words
from fabtui.sanitize import one_line

_LONGEST = 200


def cause_text(cause: Finding | str) -> str:
    return title(cause) if isinstance(cause, Finding) else one_line(cause, _LONGEST)


def slurm_options(found: HealthySet) -> list[str]:
    named = (("--nodelist", found.nodes), ("--exclude", found.left_out))
    return [f"{option}={shlex.quote(fold(nodes))}" for option, nodes in named if nodes]


def by_cause(found: HealthySet, nodes: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(cause_text(found.left_out[node]), []).append(node)
    return groups


def drain_commands(found: HealthySet) -> list[str]:
    return [
        f"scontrol update NodeName={shlex.quote(one_line(fold(nodes)))} State=DRAIN "
        f"Reason={shlex.quote(one_line(f'fabtui: {cause}', _LONGEST))}"
        for cause, nodes in by_cause(found, found.drain).items()
    ]


def stray_text(found: HealthySet) -> str:
    """Return number and verdicts of the stray pairs: ``186 stray pairs (112 slow, 74 timed out)``."""
    kinds = sorted(Counter(found.strays.values()).items(), key=lambda item: -item[1])
    verdicts = ", ".join(f"{number} {verdict_words(verdict)}" for verdict, number in kinds)
    return f"{count(len(found.strays), 'stray pair')} ({verdicts})"


def stray_lines(found: HealthySet) -> list[str]:
    """Return the lines of a list of pairs for ``fabtui run --pairs-from``, each pair once, for both directions."""
    pairs = {frozenset(pair): pair for pair in sorted(found.strays, reverse=True)}
    return [f"# {stray_text(found)}, each tested both ways", *(">".join(pair) for pair in sorted(pairs.values()))]


def host_lines(ends: Iterable[Endpoint]) -> list[str]:
    return [f"{one_line(node)} slots={len(mine)}" for node, mine in _by_node(ends).items()]


def shares(ends: Iterable[Endpoint]) -> list[tuple[str, int, str]]:
    groups: dict[tuple[int, str], list[str]] = {}
    for node, mine in _by_node(ends).items():
        groups.setdefault((len(mine), visible_devices(mine)), []).append(node)
    return [(fold(nodes), number, variable) for (number, variable), nodes in groups.items()]


def visible_devices(ends: Sequence[Endpoint]) -> str:
    """Return the variable that limits the ranks of a node to some of its GPUs; "" for CPU ranks."""
    if any(end.kind != "gpu" for end in ends):
        return ""
    return f"CUDA_VISIBLE_DEVICES={','.join(str(end.index) for end in ends)}"


def as_json(found: HealthySet | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "nodes": list(found.nodes),
        "rank_order": [str(end) for end in found.endpoints],
        "exact": found.exact,
        "joining": _devices(found.joining),
        "most_endpoints": _devices(found.most),
        "left_out": [
            {"node": node, "rule": cause.rule.id if isinstance(cause, Finding) else None, "text": cause_text(cause)}
            for node, cause in found.left_out.items()
        ],
        "strays": [
            {"src": src, "dst": dst, "verdict": str(verdict)} for (src, dst), verdict in sorted(found.strays.items())
        ],
        "relayed_pairs": found.relayed,
        "untested_node_pairs": found.untested,
        "hostfile": host_lines(found.endpoints),
        "slurm": slurm_options(found),
        "drain": drain_commands(found),
        "ring": None if found.ring is None else {name: hop._asdict() for name, hop in found.ring._asdict().items()},
    }


def _devices(ends: Iterable[Endpoint]) -> list[dict[str, Any]]:
    return [
        {"node": node, "endpoints": [str(end) for end in mine], "environment": visible_devices(mine)}
        for node, mine in _by_node(ends).items()
    ]


def _by_node(ends: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {}
    for end in ends:
        found.setdefault(end.node, []).append(end)
    return found


def order_lines(order: RankOrder, ring: bool) -> list[str]:
    """Return what the order gains, and how much of it is unknown: ``slowest neighbour 4.10 -> 9.80 GB/s``."""
    shape = "ring" if ring else "pipeline"
    before, after = order.before, order.after
    if before is None or after is None:
        return [f"{shape} in the given order: the bandwidth of no neighbours is known"]
    if after is before:
        lines = [f"slowest neighbour {_text(before)} ({_pair(before)}) in the given order; no better {shape} was found"]
    else:
        then, now = _text(before), _text(after)
        if before.value and after.value:
            then, now = spoken_texts([before.value, after.value], "GB/s")
        lines = [f"slowest neighbour {then} -> {now} ({_pair(before)} before, {_pair(after)} in this {shape})"]
    if order.unknown:
        lines.append(f"{count(order.unknown, 'pair')} of neighbours was not tested")
    return lines


def _text(hop: Hop) -> str:
    return spoken_text(hop.value, "GB/s") if hop.value else "without a path"


def _pair(hop: Hop) -> str:
    return f"{one_line(hop.source)} - {one_line(hop.destination)}"
