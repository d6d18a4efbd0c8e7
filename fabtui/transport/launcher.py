"""Links over a launcher: a program that runs a command on a node, as srun and ``kubectl exec`` do."""

from __future__ import annotations

import shlex

from fabtui.sanitize import one_line
from fabtui.transport.byte_pipe import Ending
from fabtui.transport.connector import Connector
from fabtui.transport.launcher_errors import SRUN, VIA, explain_with
from fabtui.transport.link import Link, NodeUnreachable
from fabtui.transport.local import ProcessPipe
from fabtui.transport.srun import srun_environment, srun_words

#: From this exit status on, a shell and srun mean a signal.
_SIGNALS = 128


class LauncherPipe(ProcessPipe):
    """The byte pipe of a launcher."""

    async def ending(self) -> Ending:
        """Wait for the launcher. Its end without an error, unasked, means a lost connection."""
        ending = await super().ending()
        if ending.status is not None and ending.status >= _SIGNALS:
            return Ending(reason=f"the launched command was killed (signal {ending.status - _SIGNALS})")
        if ending.status == 0:
            return Ending(reason="the launcher ended without an error")
        return ending


async def open_srun(connector: Connector, host: str) -> Link:
    """Open a link over a step of the user's Slurm job.

    Raises:
        NodeUnreachable: The node is not one of the job, or no step started there.
    """
    options = connector.options
    placement = options.placements.get(host)
    if placement is None:
        job = f"job {options.job}" if options.job else "a job of yours"
        text = f"{one_line(host, 100)} is not a node of {job}, and srun starts steps on nodes of a job only"
        raise NodeUnreachable("config", text, "name the job with --jobid, or use --transport ssh")
    explain = explain_with(SRUN, options.job)
    if (tree := connector.step_tree) is not None and (called := await tree.pipe(host)) is not None:
        return await connector.start(called, host, "srun", explain, "")
    words = srun_words(placement, connector.command(host), options.connect_timeout)
    # The controller creates steps one after the other; how far it is, is unknown.
    async with connector.gates.login("srun", lambda: False):
        pipe = await LauncherPipe.run(words, srun_environment())
        return await connector.start(pipe, host, "srun", explain, "")


async def open_via(connector: Connector, host: str) -> Link:
    """Open a link over the command line of ``--via``.

    Raises:
        NodeUnreachable: The launcher failed, or the node side did not start.
    """
    words = via_words(connector.options.via, host)
    async with connector.gates.login("via", lambda: False):
        pipe = await LauncherPipe.run([*words, *connector.command(host)])
        return await connector.start(pipe, host, "via", explain_with(VIA, ""), "")


def via_words(template: str, node: str) -> list[str]:
    """Return the words of a launcher's command line for a node."""
    return [word.replace("{node}", node) for word in shlex.split(template)]
