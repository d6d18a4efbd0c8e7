"""Exit code of a session, and what it could not test."""

from __future__ import annotations

from fabtui.exit_status import ALL_OK, BAD, INTERRUPTED, NOT_TESTED
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold

#: Maximum number of endpoints named per reason.
_MOST_ENDS = 8


def exit_code(model: Model, slow_by_load: bool = False) -> int:
    """Return 1 if anything is bad (`Model.confirmed`); else 3 if something wanted could not be tested; else 0."""
    if any(verdict.bad for verdict in model.confirmed(slow_by_load)):
        return BAD
    return NOT_TESTED if not_tested(model) else ALL_OK


def exit_code_if_left(model: Model) -> int:
    """Return the exit code of a live session that is left before its end: 1, or 3 if any node is gone, or 130."""
    code = exit_code(model)
    gone = any(record.state.gone for record in model.nodes.values())
    return code if code == BAD or gone else INTERRUPTED


def wants_endpoints(model: Model) -> bool:
    """Return True if endpoint tests were requested; probes and the mesh do not need endpoints."""
    return any(probe in ("p2p", "all_reduce") for probe in model.asked("probes", ["p2p"]))


def untested_reasons(model: Model) -> dict[str, list[tuple[str, str]]]:
    """Return the untested ordered pairs by reason; reasons that differ only in the endpoint are merged."""
    alike: dict[str, dict[tuple[str, str], str]] = {}
    for pair, why in model.untested.items():
        end, _, rest = why.partition(": ")
        # The reason of an endpoint begins with its name.
        named = rest and end in pair
        alike.setdefault(rest if named else why, {})[pair] = end if named else ""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for text, ends in alike.items():
        names = sorted({end for end in ends.values() if end})
        shown = ", ".join(names[:_MOST_ENDS]) + (
            f" and {len(names) - _MOST_ENDS} more" if len(names) > _MOST_ENDS else ""
        )
        by_reason[f"{shown}: {text}" if names else text] = list(ends)
    return by_reason


def _too_few(model: Model) -> str:
    """Explain why there was nothing to measure, if that is because tests need two ends."""
    if len(model.nodes) != 1 or any(record.state.gone for record in model.nodes.values()):
        return ""
    if wants_endpoints(model):
        return ": there is one endpoint, and a test needs two" if len(model.endpoints) == 1 else ""
    return ": there is one node, and pings go from node to node"


def not_tested(model: Model) -> list[str]:
    """Return what was requested and could not be tested, one line each."""
    lines: list[str] = []
    probes = model.asked("probes", ["p2p"])
    wants_ends = wants_endpoints(model)
    alike: dict[str, list[str]] = {}
    for record in model.nodes.values():
        reasons_here = [
            f"{probe}: {look['error']}" for probe, look in record.probe_results.items() if look.keys() == {"error"}
        ]
        if record.state.gone:
            # Its probes failed for the same reason.
            reasons_here = [record.text or str(record.state)]
        elif record.note and wants_ends:
            reasons_here.insert(0, record.note)
        for text in reasons_here:
            alike.setdefault(text.replace(f" on {record.name}", ""), []).append(record.name)
    lines.extend(f"{fold(names)}: {text}" for text, names in alike.items())
    gone = {record.text for record in model.nodes.values() if record.state.gone}
    reasons = untested_reasons(model).items()
    lines.extend(f"{count(len(pairs), 'pair')}: {text}" for text, pairs in reasons if text not in gone)
    counts = model.counts()
    if vague := counts.get(Verdict.INCONCLUSIVE, 0):
        lines.append(f"{vague} measurement{'s' if vague != 1 else ''} inconclusive")
    if model.phase.name != "done":
        of = f", after {model.done} of {model.phase.total} tests" if model.phase.total else ""
        lines.append(f"the session was not finished: it ended in {model.phase.name}{of}")
    probed = any(look.keys() != {"error"} for record in model.nodes.values() for look in record.probe_results.values())
    wants_tests = wants_ends or any(probe in ("ping", "udp") for probe in probes)
    measured = any(counts.get(verdict) for verdict in Verdict if verdict is not Verdict.SKIPPED)
    # What a GPU shows by itself is a result of a node with one GPU.
    measured = measured or any(
        (record.probe_results.get("hostlink") or {}).get("gpus") for record in model.nodes.values()
    )
    if not measured and (wants_tests or not (probed or model.job)):
        lines.append(f"nothing was measured{_too_few(model)}")
    return lines
