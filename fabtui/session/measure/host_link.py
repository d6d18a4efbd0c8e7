"""Host link: each endpoint alone, one of each node at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import PhaseStart, ProbeResult
from fabtui.sanitize import one_line
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.p2p_result import number
from fabtui.session.options import MIB
from fabtui.session.ranks.gather import Gathering, GroupRequest, failure
from fabtui_node.probes.hostlink import summary

#: Bytes of a buffer on a GPU and on CPU ranks: two on each side, far below what tests may take.
SIZE, CPU_SIZE = 128 * MIB, 8 * MIB
#: Deadline (s) of one endpoint.
DEADLINE = 10.0
_NUMBERS = ("h2d", "d2h", "both", "own", "h2d_lag", "d2h_lag", "link", "link_most", "product", "wrong")


class HostLinks:
    """Measures endpoints alone."""

    def __init__(self, context: MeasurementContext) -> None:
        self._context = context

    async def run(self, nodes: Sequence[str]) -> None:
        """Measure the ready endpoints of nodes, and report a result of each node."""
        await self._context.settled()
        ready = self._context.ready()
        here = [end for end in self._context.endpoints if end.node in nodes and end.number in ready]
        if not here:
            return
        self._context.pump.emit(PhaseStart(name="hostlink", total=0))
        values = await self.measured(here)
        for node in dict.fromkeys(end.node for end in here):
            gpus = [{"index": end.index, **values[end.number]} for end in here if end.node == node]
            self._context.pump.emit(ProbeResult(node=node, probe="hostlink", value=summary(gpus)))

    async def measured(self, ends: Sequence[Endpoint]) -> dict[int, dict[str, Any]]:
        """Return the values of endpoints by their numbers: bytes, operations and seconds, unless there is an error."""
        values: dict[int, dict[str, Any]] = {}
        for wave in _waves(ends):
            requests = [self._request(end) for end in wave]
            await Gathering(self._context).run(requests)
            for end, request in zip(wave, requests, strict=True):
                reports = request.last_reports("hosted")
                report = reports[end.number] or {}
                numbers = {name: number(report.get(name)) for name in _NUMBERS}
                row: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
                if report.get("ok") is not True:
                    row["error"] = failure(request, reports, self._context.endpoints).text
                elif report.get("no_product"):
                    row["no_product"] = one_line(str(report["no_product"]), 300)
                values[end.number] = row
        return values

    def _request(self, end: Endpoint) -> GroupRequest:
        gloo = self._context.host_of(end.number).engine.name == "gloo"
        message = {"op": "host", "ranks": [end.number], "bytes": CPU_SIZE if gloo else SIZE, "deadline": DEADLINE}
        return GroupRequest((end.number,), message, DEADLINE)


def _waves(ends: Sequence[Endpoint]) -> Iterator[list[Endpoint]]:
    """Yield endpoints of different nodes together: those of one node share its memory and its switches."""
    nodes: dict[str, list[Endpoint]] = {}
    for end in ends:
        nodes.setdefault(end.node, []).append(end)
    for wave in itertools.zip_longest(*nodes.values()):
        yield [end for end in wave if end is not None]
