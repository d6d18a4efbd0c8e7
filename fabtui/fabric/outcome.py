"""What a session comes to, as an exit code."""

from __future__ import annotations

from fabtui.fabric.measurement import Verdict
from fabtui.fabric.model import Model
from fabtui.fabric.nodeset import fold

ALL_OK = 0
BAD = 1
NOT_TESTED = 3


def exit_code(model: Model) -> int:
    """Return 1 if anything is slow, failed or timed out; else 3 if something wanted could not be tested; else 0."""
    counts = model.counts()
    if any(verdict.bad for verdict in counts):
        return BAD
    return NOT_TESTED if not_tested(model) else ALL_OK


def wants_endpoints(model: Model) -> bool:
    """Say whether tests of endpoints were wanted: what a node has none for is no loss to looks and to the mesh."""
    return any(probe in ("p2p", "all_reduce") for probe in model.options.get("probes", ["p2p"]))


def not_tested(model: Model) -> list[str]:
    """Return what was wanted and could not be tested, a line each; empty when all was."""
    lines: list[str] = []
    probes = model.options.get("probes", ["p2p"])
    wants_ends = wants_endpoints(model)
    alike: dict[str, list[str]] = {}
    for record in model.nodes.values():
        said = [f"{probe}: {look['error']}" for probe, look in record.looks.items() if look.keys() == {"error"}]
        if record.state.gone:
            said.insert(0, record.text or str(record.state))
        elif record.note and wants_ends:
            said.insert(0, record.note)
        for text in said:
            alike.setdefault(text.replace(f" on {record.name}", ""), []).append(record.name)
    lines.extend(f"{fold(names)}: {text}" for text, names in alike.items())
    reasons: dict[str, int] = {}
    for text in model.untested.values():
        reasons[text] = reasons.get(text, 0) + 1
    lines.extend(f"{number} pair{'s' if number != 1 else ''}: {text}" for text, number in reasons.items())
    counts = model.counts()
    if vague := counts.get(Verdict.INCONCLUSIVE, 0):
        lines.append(f"{vague} measurement{'s' if vague != 1 else ''} inconclusive")
    if model.phase.name != "done":
        of = f", after {model.done} of {model.phase.total} tests" if model.phase.total else ""
        lines.append(f"the session was not finished: it ended in {model.phase.name}{of}")
    looked = any(look.keys() != {"error"} for record in model.nodes.values() for look in record.looks.values())
    wants_tests = wants_ends or any(probe in ("ping", "udp") for probe in probes)
    measured = any(counts.get(verdict) for verdict in Verdict if verdict is not Verdict.SKIPPED)
    if not measured and (wants_tests or not looked):
        lines.append("nothing was measured")
    return lines
