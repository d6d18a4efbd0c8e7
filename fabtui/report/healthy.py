"""Healthy set as text: a section of the summary, and the whole output of ``fabtui nodes``."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.healthy_set import HealthySet
from fabtui.diagnosis.knowledge.next_commands import session_command
from fabtui.diagnosis.rank_order import Hop
from fabtui.model.endpoints import node_of
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.presentation.healthy_text import by_cause, drain_commands, shares, slurm_options, stray_text
from fabtui.presentation.numbers import spoken_text
from fabtui.presentation.wrapping import aligned
from fabtui.report.document import Block, Items, Lines
from fabtui.report.text import capped, text
from fabtui.sanitize import one_line

_WHERE = "--json has them all"
#: Maximum length of a line with a command in the summary.
_LONGEST = 500
#: Maximum number of lines of a section, and of characters of its names.
_MOST, _MOST_NAMES = 8, 60


def what_to_do(one: Diagnosis) -> Iterator[Items]:
    """Yield what to do now, in at most five lines; nothing if no node is lost or has bad pairs."""
    model = one.model
    bad = one.tally.bad or any(map(model.gone, model.nodes))
    healthy = one.healthy if bad and _names_nodes(one) else None
    if healthy is None or not healthy.left_out:
        return
    lines = [f"{_headline(model, healthy)}: {' '.join(slurm_options(healthy))}"]
    if (other := _other_end(one, healthy)) is not None:
        (left,) = healthy.left_out
        lines.append(f"either end of the path may be left out: {other} instead of {left} works as well")
    if healthy.most:
        lines.append(f"with fewer GPUs per node: {_number(healthy, len(healthy.most))}")
    elif joining := shares(healthy.joining):
        names, number, variable = joining[0]
        more = f", and {len(joining) - 1} more" if len(joining) > 1 else ""
        lines.append(f"also usable: {names} with {variable or count(number, 'endpoint')}{more}")
    if drain := drain_commands(healthy):
        lines.append(f"to drain: {drain[0]}" + (f", and {len(drain) - 1} more" if len(drain) > 1 else ""))
    if healthy.strays:
        lines.append(f"{stray_text(healthy)}: retest them first: fabtui nodes RECORDING --strays FILE")
    else:
        lines.append("host file, rank order and more: fabtui nodes RECORDING")
    yield Items("what to do now", [one_line(line, _LONGEST) for line in lines], whole=True)


def _other_end(one: Diagnosis, found: HealthySet) -> str | None:
    """Return the node whose absence would mend the bad pairs as well as that of the only one left out, or None."""
    if len(found.left_out) != 1 or found.drain:
        return None
    pairs = [{node_of(end) for end in pair} for pair in one.tally.bad]
    common = set[str].intersection(*pairs) - set(found.left_out) if pairs else set()
    return one_line(common.pop()) if len(common) == 1 else None


def _names_nodes(one: Diagnosis) -> bool:
    """Return False if an output of a tool names no nodes to leave out, or has a single pair, which blames neither."""
    unnamed = one.model.options.get("unnamed")
    return unnamed is None or (not unnamed and len(one.tally.table or ()) > 2)


def healthy_text(model: Model, found: HealthySet, strict: HealthySet | None = None) -> str:
    """Return the text of a healthy set; ``strict`` is the one that no stray pair is in."""
    return text(_blocks(model, found, strict))


def _blocks(model: Model, found: HealthySet, strict: HealthySet | None) -> Iterator[Block]:
    head = [_headline(model, found) + ("" if found.exact else " (a larger set may exist)")]
    if found.relayed:
        relayed = count(found.relayed, "pair")
        head.append(f"{relayed} across rails fail alone and pass in world: jobs run if NCCL can relay (PXN)")
    if found.untested:
        pairs = count(found.untested, "ordered pair")
        head.append(f"nothing was tested between {pairs} of these nodes, which count as healthy")
    yield Items("", head)
    if found.left_out:
        causes = by_cause(found, sorted(found.left_out, key=lambda node: isinstance(found.left_out[node], str))).items()
        rows = [[one_line(fold(nodes), _MOST_NAMES), cause] for cause, nodes in causes]
        yield Lines("left out", capped(aligned(rows, (0, 1)), "causes", _MOST, _WHERE, indent="  "))
    if found.nodes:
        yield Items("Slurm", [f"srun --nodes={len(found.nodes)} {' '.join(slurm_options(found))}"])
    if drain := drain_commands(found):
        head_drain = "to drain the nodes that findings blame (check first; fabtui does not run this)"
        yield Items(head_drain, capped(drain, "commands", _MOST, _WHERE))
    if found.strays:
        yield Items(f"{stray_text(found)} among these nodes: retest them first", _retests(model, found, strict))
    if len(found.domains) > 1 or len(found.nodes) > sum(map(len, found.domains.values())) > 0:
        domains = [[name, fold(nodes), count(len(nodes), "node")] for name, nodes in found.domains.items()]
        head_domains = "of these, together in an NVLink domain, which is faster than the network"
        yield Lines(head_domains, capped(aligned(domains, (0, 1, 2)), "domains", _MOST, _WHERE, indent="  "))
    if found.ring is not None:
        yield _ring(found)
    head_joining = "also usable with some of their GPUs, which work with all nodes above and with each other"
    head_most = f"instead of whole nodes, the largest healthy set of GPUs: {_number(found, len(found.most))}"
    for title, ends in ((head_joining, found.joining), (head_most, found.most)):
        if lines := [f"{names}  slots={number} {variable}".rstrip() for names, number, variable in shares(ends)]:
            yield Items(title, capped(lines, "groups of nodes", _MOST, _WHERE))
    if found.nodes:
        yield Items("", ["host file, in rank order: --hostfile FILE"])


def _retests(model: Model, found: HealthySet, strict: HealthySet | None) -> list[str]:
    ends = {node_of(end) for pair in found.strays for end in pair}
    again = session_command(model, "--pairs-from", "FILE", "--probes", "p2p", of=[n for n in model.nodes if n in ends])
    lines = ["list of the pairs: --strays FILE", f"test them: {again}"]
    if strict is not None:
        lines.append(f"without any stray pair: {count(len(strict.nodes), 'node')} (--strict)")
    return lines


def _headline(model: Model, found: HealthySet) -> str:
    total = count(len(model.nodes), "node")
    if not found.nodes:
        return f"none of {total} is healthy with all its GPUs"
    if len(found.nodes) == 1:
        if len(model.nodes) > 1:
            name, number = one_line(found.nodes[0]), _number(found, len(found.endpoints))
            return f"no two nodes work together; largest healthy set: {name} ({number})"
        return f"1 of {total} is healthy, with {_number(found, len(found.endpoints))}"
    what = "have no fault of their own" if found.strays else "are healthy together"
    return f"{len(found.nodes)} of {total} {what}, with {_number(found, len(found.endpoints))}"


def _number(found: HealthySet, number: int) -> str:
    ends = (*found.endpoints, *found.joining, *found.most)
    return f"{number} of {count(found.total, 'GPU' if all(end.kind == 'gpu' for end in ends) else 'endpoint')}"


def _ring(found: HealthySet) -> Items:
    assert found.ring is not None
    before, after = found.ring
    lines = [f"{_hop(before)} {'with the nodes of a domain together' if found.domains else 'in the given order'}"]
    if after is not before:
        lines.append(f"{_hop(after)} in the order of the host file")
    else:
        lines[0] += "; no better order was found"
    return Items("slowest hop of a ring over the nodes, between their fastest NICs", lines)


def _hop(hop: Hop) -> str:
    return f"{spoken_text(hop.value, 'GB/s')} ({one_line(hop.source)} - {one_line(hop.destination)})"
