"""The nodes of the arguments: named ones, those of a job or of pods, or this host."""

from __future__ import annotations

import socket
from typing import Any

from fabtui.argument_name import argument
from fabtui.errors import InputError
from fabtui.nodeset import chosen_nodes, fold
from fabtui.scheduler import slurm
from fabtui.scheduler.base import Allocation
from fabtui.scheduler.current_job import current_job, pods
from fabtui.transport.registry import TRANSPORTS


def nodes_from(given: dict[str, Any]) -> dict[str, Any]:
    """Return the session options that select the nodes and how they are reached.

    Raises:
        InputError: No nodes are given or found, or options exclude each other.
    """
    _check_together(given)
    if "pods" in given:
        found = pods(given["pods"], "--pods")
        changes = _of_allocation(found.allocation, given)
        return changes | {"transport": "via", "via": found.via}
    name = "via" if "via" in given else given.get("transport", next(iter(TRANSPORTS)))
    if name == "via" and "via" not in given:
        raise InputError("--transport via needs a command line: --via 'kubectl exec -i {node} --'")
    named = bool(given.get("nodes") or given.get("hostfile"))
    if not TRANSPORTS[name].remote:
        return {"hosts": _this_host(given, name, named), "transport": name}
    job = _job(given, name, named)
    if job is None:
        if not named:
            raise InputError(
                f"no nodes given; use {argument('nodes')} n060,n061, {argument('jobid')} ID or --hostfile FILE, "
                "start inside a job, or try --lab 2x4 on this machine (fabtui --help)"
            )
        if name == "srun":
            raise InputError(
                f"--transport srun needs a job: start inside salloc or sbatch, or name one with {argument('jobid')}"
            )
        return {"hosts": _chosen(given), "transport": name}
    changes = _of_allocation(job, given)
    if name == "srun" and not changes["placements"]:
        raise InputError(f"--transport srun needs a job of Slurm, but this is {job.title}")
    if name == "ssh" and "transport" not in given and changes["placements"]:
        changes["fallback"] = "srun"
    return changes | {"transport": name}


def _check_together(given: dict[str, Any]) -> None:
    for name, others in (
        ("jobid", ("no_job", "pods")),
        ("pods", ("nodes", "hostfile", "via", "transport")),
        ("via", ("transport",)),
    ):
        for other in others if name in given else ():
            if other in given and given[other] != name:
                raise InputError(f"--{name} excludes --{other.replace('_', '-')}")


def _chosen(given: dict[str, Any]) -> tuple[str, ...]:
    return tuple(chosen_nodes(given.get("nodes", []), given.get("hostfile", []), given.get("exclude", [])))


def _this_host(given: dict[str, Any], transport: str, named: bool) -> tuple[str, ...]:
    nodes = given if named else {**given, "nodes": [socket.gethostname().partition(".")[0] or "localhost"]}
    hosts = _chosen(nodes)
    if len(hosts) > 1:
        raise InputError(f"--transport {transport} is this host only, but {len(hosts)} nodes are given")
    return hosts


def _job(given: dict[str, Any], transport: str, named: bool) -> Allocation | None:
    """Return the job whose nodes are tested or reached by srun, None if there is none."""
    if "jobid" in given:
        where = argument("jobid")
        return slurm.allocation_of(slurm.job_ids(given["jobid"], where), where)
    if "no_job" in given:
        return None
    if not named:
        return current_job()
    try:
        job = slurm.from_environment()
    except InputError:
        # The nodes are given; only srun needs more.
        if transport == "srun":
            raise
        return None
    # Nodes of others, or of nobody, are tested as they are given.
    return job if job is not None and (transport == "srun" or set(_chosen(given)) <= set(job.nodes)) else None


def _of_allocation(found: Allocation, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options for the nodes of an allocation, or for the given ones among them."""
    hosts = found.nodes
    if given.get("nodes") or given.get("hostfile"):
        hosts = _chosen(given)
        strangers = [name for name in hosts if name not in found.nodes]
        if strangers:
            text = f"not of {found.title}: {fold(strangers)}; its nodes are {fold(found.nodes)}"
            raise InputError(f"{argument('nodes')}: {text}")
    elif given.get("exclude"):
        hosts = tuple(chosen_nodes([",".join(found.nodes)], [], given["exclude"]))
    placements = {name: found.placements[name] for name in hosts if name in found.placements}
    return {"hosts": hosts, "origin": found.describe(), "job": found.job, "placements": placements}


def in_job() -> bool:
    """Return True within a job whose nodes are known; a container in a job has no tools of the scheduler."""
    try:
        return current_job() is not None
    except InputError:
        return False
