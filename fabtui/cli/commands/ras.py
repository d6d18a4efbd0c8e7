"""``fabtui ras``: ask NCCL's RAS service on the nodes of a running job who is behind."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from typing import Any

from fabtui.cli.job_options import job_options
from fabtui.cli.options_from_args import notice
from fabtui.cli.outputs import print_result
from fabtui.cli.printing import print_json
from fabtui.config.values import seconds
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.importers.formats.job_dumps import RAS, ras_values
from fabtui.importers.result import Result
from fabtui.importers.sources import Source
from fabtui.nodeset import count
from fabtui.sanitize import clean, one_line
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.evidence import completed
from fabtui.session.running_job.inquiry import Reply, inquire, over_new_links, processes, stopped_ranks
from fabtui_node.probes.job.ras import endpoint

HELP = """\
Ask the RAS service of NCCL 2.24 and later which ranks of a running job are behind, silent or failed.

examples:
  fabtui ras --nodes n060,n061                 nodes of the job; the first that has a report answers for all
  fabtui ras                                   on a node of the job, in its pod or container
  fabtui ras --nodes n060 --address '[::1]:28030' --json
  fabtui ras --nodes n060 --wait 0             one report, without whether it makes progress

Nothing is started or changed on the nodes, and the job does not notice. RAS does not see send and recv.

exit codes: 0 no rank is behind, or the job makes progress, which one report does not show; 1 a rank is behind, and
nothing moves; 2 bad usage or input; 3 no node has a report
"""

_LONGEST_WAIT = 600.0


def execute(args: argparse.Namespace) -> int:
    """Ask; print who is behind; return the exit code."""
    given = vars(args)
    address, wait = str(given.get("address", "")), seconds(given.get("wait", "5"), "--wait", 0.0, _LONGEST_WAIT)
    if address and endpoint(address) is None:
        raise InputError(f"--address: {address!r} is not HOST:PORT; for example localhost:28028 or [::1]:28028")
    return asyncio.run(_execute(given, job_options(args), address, wait))


async def _execute(given: dict[str, Any], options: SessionOptions, address: str, wait: float) -> int:
    ask = over_new_links(options, notice)
    found = await inquire(ask, options.hosts, address, wait)
    if found.report is None or found.answer is None:
        return _no_report(found.replies, "json" in given)
    who = found.answer
    if who.suspects or who.hangs is False:
        who = await completed(who, options, found.names, ask)
    else:
        # RAS does not show it; stacks do.
        words = words_without(given["words"][1:], ("--json", "--ascii"), ("--address", "--wait"))
        who = who._replace(next=[shlex.join(["fabtui", "stacks", *words])])
    form = RAS
    values = {**who.values(), **ras_values(found.report)}
    source = Source(f"{found.node} {found.address}", "")
    units, notes = dict(form.units), found.notes
    print_result(Result(source, form.name, form.title, values, units, notes.warnings, notes.unknown, []), given)
    return BAD if who.hangs else ALL_OK


def _no_report(found: list[Reply], as_json: bool) -> int:
    """Print why no node gave a report, and what to do."""
    lines: list[tuple[str, str, str]] = []
    for reply in found:
        if reply.value is None:
            lines.append((reply.node, reply.problem, reply.hint))
            continue
        problems = reply.value.get("problems")
        for problem in problems if isinstance(problems, list) else []:
            if isinstance(problem, dict):
                lines.append((reply.node, str(problem.get("text", "")), _hint(reply, str(problem.get("kind", "")))))
    if as_json:
        rows = [{"node": node, "problem": clean(text), "next": clean(hint) or None} for node, text, hint in lines]
        print_json({"kind": RAS.name, "values": {"answer": None, "problems": rows}})
        return NOT_TESTED
    for node, text, hint in lines:
        print(f"{one_line(node)}: {one_line(text, 500)}" + (f"; {one_line(hint, 500)}" if hint else ""))
    return NOT_TESTED


def _hint(reply: Reply, kind: str) -> str:
    """Return what to do about a service that gives no report."""
    if stopped := stopped_ranks(reply):
        return stopped
    rows = processes(reply)
    if kind == "refused":
        found = f"{count(len(rows), 'process', 'processes')} with a rank" if rows else "no process with a rank"
        jobs = f"{found} {'is' if len(rows) < 2 else 'are'} visible there"
        return f"{jobs}; RAS needs NCCL 2.24 and a communicator, and is off with NCCL_RAS_ENABLE=0"
    if kind == "silent":
        return "next, on the node: ps -eo pid,stat,wchan:32,args shows stopped (T) processes"
    return ""


def words_without(words: list[str], switches: tuple[str, ...], valued: tuple[str, ...]) -> list[str]:
    """Return the words of a command line without some options."""
    left = iter(words)
    found = []
    for word in left:
        if word in valued:
            next(left, None)
        elif word not in switches and not word.startswith(tuple(f"{option}=" for option in valued)):
            found.append(word)
    return found
