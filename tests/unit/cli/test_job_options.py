"""Nodes of commands about running jobs: those that are named, else those of the job, else this machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fabtui.cli.job_options import job_options
from fabtui.cli.parser import build_parser
from fabtui.errors import InputError
from fabtui.scheduler import slurm
from fabtui.scheduler.allocation import Allocation
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.evidence import typed_for


def asked(*argv: str) -> SessionOptions:
    return job_options(build_parser(argv).parse_args(argv))


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(ids: Sequence[str], option: str) -> Allocation:
        placements = {"n060": ("--jobid=4711", "--nodelist=n060")}
        return Allocation(f"job {ids[0]}", ("n060", "n061"), "squeue", ids[0], placements)

    assert asked("stacks").transport == "local"
    monkeypatch.setattr(slurm, "allocation_of", found)
    options = asked("ras", "--jobid", "4711")
    assert (options.hosts, options.transport, options.job) == (("n060", "n061"), "ssh", "4711")
    # A command for a node is typed in the terms of what reached it.
    typed = typed_for(options, {"n060": "srun", "n061": "asyncssh"})
    assert typed("n060", "kill -CONT 7") == "srun --overlap --jobid=4711 --nodelist=n060 kill -CONT 7"
    assert typed("n061", "kill -CONT 7") == "ssh n061 kill -CONT 7"
    assert typed("192.0.2.9", "kill -CONT 7") == "ssh 192.0.2.9 kill -CONT 7"
    assert asked("ras", "--nodes", "n070", "--via", "docker exec -i {node}").transport == "via"
    with pytest.raises(InputError, match="--pods"):
        asked("flight", "--pods", "no selector at all")
    monkeypatch.setenv("LSB_JOBID", "12")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "n080 8 n081 8")
    assert asked("ras").hosts == ("n080", "n081")
    assert asked("ras", "--no-job").transport == "local"
