"""Release of the communicators that tests have left on the rank hosts, while no test runs."""

from __future__ import annotations

from fabtui.sanitize import one_line
from fabtui.session.measure.context import TestBed
from fabtui.session.node_client import GRACE
from fabtui.session.ranks.gather import Gathering, GroupRequest

#: Deadline (s) of the release; rank hosts that miss it are ended.
DEADLINE = 20.0


async def release_communicators(bed: TestBed, *, whole: bool) -> list[str]:
    """Have all ranks release their communicators; rank hosts that hang in it are ended.

    Args:
        bed: Shared state of the tests; none may be running.
        whole: Whether intact communicators are released too, not only the broken ones.

    Returns:
        The problems, one line each.
    """
    ready = tuple(sorted(bed.ready()))
    if not ready:
        return []
    request = GroupRequest(ready, {"op": "rest", "whole": whole}, DEADLINE - GRACE)
    await Gathering(bed, paused_too=True).run([request])
    problems = [
        f"{bed.endpoints[rank].node}: {one_line(str(report['error']), 300)}"
        for rank, report in request.last_reports("rested").items()
        if report and report.get("error")
    ]
    nodes = {bed.endpoints[rank].node: text for rank, text in request.gone.items()}
    return problems + [f"{node}: communicators were not released: {text}" for node, text in nodes.items()]
