"""Rules about NVLinks and RDMA ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.links.rdma_ports import PortProblem, port_problems
from fabtui.model.endpoints import node_of
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.records import NodeRecord, listed, probed
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui_node.parsers.nvidia.smi_nvlink import ERRORS

_Link = dict[str, Any]


class _LinkRule(Rule[Model]):
    domain = Domain.LINKS


class _NvlinkRule(_LinkRule):
    severity = Severity.WARN

    def check(self, model: Model) -> Iterator[Finding]:
        for record in model.nodes.values():
            before = {
                _link_id(gpu, link): link
                for gpu in dicts(field(record.first_probe_results.get("nvlink"), "gpus"))
                for link in dicts(gpu.get("links"))
            }
            for gpu in probed(record, "nvlink", "gpus"):
                if facts := self._facts(dicts(gpu.get("links")), gpu, before):
                    index = one_line(str(gpu.get("index")), 8)
                    found = self.finding(
                        f"{record.name} GPU {index}",
                        nodes=(record.name,),
                        facts={"node": record.name, "gpu": index, **facts},
                        commands=[on_node(record.name, f"nvidia-smi nvlink -{letter}", model) for letter in "se"],
                        weight=1,
                    )
                    yield found.replace(blames=Subject(Kind.GPU, f"{record.name}:{index}"))

    def _facts(self, links: list[_Link], gpu: dict[str, Any], before: dict[tuple[str, str], _Link]) -> dict[str, Any]:
        raise NotImplementedError


@register
class NvlinkInactive(_NvlinkRule):
    """NVLinks of a GPU that were active when the session started are no longer active.

    That a GPU has fewer active NVLinks than the others is rule FT120: links without a bridge are inactive by design.
    """

    id = "FT101"
    name = "nvlink-inactive"
    title = "NVLinks no longer active"
    message = "{node} GPU {gpu}: {inactive} of {links} NVLinks are no longer active"
    evidence = ("link {numbers}",)
    next_step = "Compare `nvidia-smi nvlink -s` of all GPUs; reset the GPU, then check the board."

    def _facts(self, links: list[_Link], gpu: dict[str, Any], before: dict[tuple[str, str], _Link]) -> dict[str, Any]:
        dark = [
            link
            for link in links
            if link.get("state") not in (None, "active")
            and before.get(_link_id(gpu, link), {}).get("state") == "active"
        ]
        if not dark:
            return {}
        numbers = tuple(one_line(str(link.get("link")), 8) for link in dark)
        return {"inactive": len(dark), "links": len(links), "numbers": numbers}


@register
class NvlinkErrors(_NvlinkRule):
    """Error counters of NVLinks grew since the session started; traffic and what FEC corrected are not errors."""

    id = "FT102"
    name = "nvlink-errors"
    title = "NVLink errors"
    message = "{node} GPU {gpu}: NVLink errors"
    evidence = ("{counters} since the start",)
    next_step = "Watch the counters with `nvidia-smi nvlink -e`; if they grow, have the board checked."

    def _facts(self, links: list[_Link], gpu: dict[str, Any], before: dict[tuple[str, str], _Link]) -> dict[str, Any]:
        grown: dict[str, int] = {}
        for link in links:
            first = error_counters(before.get(_link_id(gpu, link), {}))
            for counter, value in error_counters(link).items():
                if counter in first and value > first[counter]:
                    grown[counter] = grown.get(counter, 0) + value - first[counter]
        return {"counters": tuple(f"{counter} +{n}" for counter, n in sorted(grown.items()))} if grown else {}


class _PortRule(_LinkRule):
    def _of_nic(self, model: Model, record: NodeRecord, ca: str, facts: Mapping[str, str]) -> Finding:
        return self.finding(
            f"{record.name} {ca}",
            nodes=(record.name,),
            facts={"node": record.name, **facts},
            commands=(on_node(record.name, f"ibstat {one_line(ca, 40)}", model),),
            weight=1,
            blames=Subject(Kind.NIC, f"{record.name} {ca}"),
        )


@register
class RdmaPort(_PortRule):
    """Something is wrong with an RDMA port that endpoints send over, or with its cable.

    Where no endpoints are known, as in a preflight and in outputs of tools, the judgement of the probe is FT301.
    """

    id = "FT103"
    name = "rdma-port"
    title = "Problem of an RDMA port"
    message = "{node} RDMA port {port}: {problem}"
    next_step = "Check `ibstat` and the error counters of the port; reseat or replace the cable."

    def check(self, model: Model) -> Iterator[Finding | None]:
        for record in model.nodes.values():
            found: dict[PortProblem, None] = {}
            for endpoint in model.table.of_node(record.name):
                found.update(dict.fromkeys(port_problems(model, endpoint)))
            yield None
            for problem in found:
                facts = {"port": str(problem.port), "problem": problem.text}
                made = self._of_nic(model, record, problem.port.ca, facts)
                yield made.replace(topic=f"{record.name} {problem.port}", severity=problem.severity)


@register
class RdmaPortInactive(_PortRule):
    """The inventory shows a port next to endpoints that is not active."""

    id = "FT104"
    name = "rdma-port-inactive"
    title = "RDMA port not active"
    message = "{node} {device} is not active"
    evidence = ("{state}, {physical}: the endpoints next to it have no other NIC as close",)
    next_step = "Check cable and switch port."

    def check(self, model: Model) -> Iterator[Finding]:
        for record in model.nodes.values():
            if "ibstat" not in record.probe_results:
                yield from self._inactive(model, record)

    def _inactive(self, model: Model, record: NodeRecord) -> Iterator[Finding]:
        ends = model.table.of_node(record.name)
        used = {endpoint.nic for endpoint in ends if endpoint.nic}
        known = {problem.port for endpoint in ends for problem in port_problems(model, endpoint)}
        for port in listed(record, "ib"):
            names = {name for key in ("ca", "netdev") if isinstance(name := port.get(key), str)}
            state = port.get("state")
            # Values from a node may not be hashable: no look-up in a set.
            if not used & names or state in (None, "Active") or (port.get("ca"), port.get("port")) in list(known):
                continue
            ca = one_line(str(port.get("ca")), 40)
            facts = {"device": f"{ca} port {port.get('port')}", "state": str(state)}
            yield self._of_nic(model, record, ca, {**facts, "physical": str(port.get("phys_state"))})


@register
class GpuInUse(_LinkRule):
    """Another process uses a GPU that was tested."""

    id = "FT105"
    name = "gpu-in-use"
    title = "GPU is in use by another process"
    severity = Severity.WARN
    message = "{gpu} is in use by {process}"
    next_step = "Test again when the process has ended, or without this GPU."

    def check(self, model: Model) -> Iterator[Finding]:
        for end, process in gpus_in_use(model).items():
            facts = {"gpu": end, "process": process}
            node = node_of(end)
            yield self.finding(end, nodes=(node,), facts=facts, blames=Subject(Kind.GPU, end))


def gpus_in_use(model: Model) -> dict[str, str]:
    """Return the processes of others on each tested GPU that has any, as one text by endpoint."""
    tested = {str(end) for end in model.endpoints}
    found = {}
    for record in model.nodes.values():
        for gpu in listed(record, "gpus"):
            end, using = f"{record.name}:{gpu.get('index')}", dicts(gpu.get("processes"))
            if using and end in tested:
                names = (f"{one.get('name') or 'a process'} (pid {one.get('pid')})" for one in using[:2])
                found[end] = ", ".join(one_line(name, 80) for name in names)
    return found


def _link_id(gpu: dict[str, Any], link: dict[str, Any]) -> tuple[str, str]:
    """Return a key for a link of a node; its values may be of any type."""
    return str(gpu.get("index")), str(link.get("link"))


def error_counters(link: dict[str, Any]) -> dict[str, int]:
    """Return the error counters of a link. Traffic and corrected errors grow on healthy links too."""
    found = link.get("counters")
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if k in ERRORS and isinstance(v, int) and not isinstance(v, bool)}
