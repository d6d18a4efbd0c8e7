"""Logins with limits that ranks do not work with, over real SSH servers."""

import pytest

from fabtui.diagnosis.preflight.checks import latest_preflight
from tests.conftest import needs_torch
from tests.wire import sshd
from tests.wire.live import session

pytestmark = [needs_torch, pytest.mark.timeout(240)]


async def test_limits_of_a_login_that_ranks_do_not_work_with_are_named(field: sshd.Field) -> None:
    # The file libtorch_cpu.so alone is 0.4 GiB: no loader gets it into less address space. The agent needs a tenth, as
    # one arena of malloc is enough for it; each one more would take 64 MiB, which its threads then lack or not.
    limits = {"space": "-v 300000", "few": "-v 60000", "files": "-n 24", "time": "-t 1", "free": "-c 0"}
    # Fast processors import PyTorch and measure within a second. Ranks read PYTHONPATH; the agent ignores it.
    busy = field.folder / "busy"
    busy.mkdir()
    (busy / "sitecustomize.py").write_text("import sys\nif '-u' in sys.orig_argv:\n    while True:\n        pass\n")
    for name, limit in limits.items():
        path = f"export PYTHONPATH='{busy}'\n" if name == "time" else ""
        login = f'export MALLOC_ARENA_MAX=1\nulimit {limit}\n{path}exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
        script = field.script(name, f"#!/bin/sh\n{login}")
        field.serve(name, sshd=[f"ForceCommand '{script}'"])
    async with session(field, *limits, probes=("p2p", "host")) as feed:
        model = feed.model
        reported = dict.fromkeys(limits, "")
        for name, record in model.nodes.items():
            own = [why for pair, why in model.untested.items() if any(why.startswith(f"{end}:") for end in pair)]
            reported[name] = " / ".join([record.text, record.note, *(why for why in own if why.startswith(name))])

        assert "limited to 0.286 GiB of address space (ulimit -v)" in reported["space"]
        assert "limited to 0.0572 GiB of address space (ulimit -v)" in reported["few"]
        assert "limited to 1 s of processor time (ulimit -t)" in reported["time"]
        assert "limited to" not in reported["free"]
        judged = "".join(line for line in map(str, latest_preflight(model).findings))
        for words in ("0.286 GiB of address space", "24 open files", "1 s of processor time"):
            assert f"an SSH session has {words}" in judged
