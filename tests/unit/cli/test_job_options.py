"""Nodes of commands about running jobs: those that are named, else those of the job, else this machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fabtui.cli.commands.hang import job_options
from fabtui.cli.parser import build_parser
from fabtui.errors import InputError
from fabtui.scheduler import slurm
from fabtui.scheduler.base import Allocation
from fabtui.session.options import SessionOptions


def asked(*argv: str) -> SessionOptions:
    return job_options(build_parser(argv).parse_args(argv))


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(ids: Sequence[str], option: str) -> Allocation:
        placements = {"n060": ("--jobid=4711", "--nodelist=n060")}
        return Allocation(f"job {ids[0]}", ("n060", "n061"), "squeue", ids[0], placements)

    assert asked("hang").transport == "local"
    monkeypatch.setattr(slurm, "allocation_of", found)
    options = asked("hang", "--jobid", "4711")
    assert (options.hosts, options.transport, options.job) == (("n060", "n061"), "ssh", "4711")
    assert asked("hang", "--nodes", "n070", "--via", "docker exec -i {node}").transport == "via"
    with pytest.raises(InputError, match="--pods"):
        asked("hang", "--pods", "no selector at all")
    monkeypatch.setenv("LSB_JOBID", "12")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "n080 8 n081 8")
    assert asked("hang").hosts == ("n080", "n081")
    assert asked("hang", "--no-job").transport == "local"
