"""``fabtui flight``: have the ranks of a running job write their flight recorder dumps, and report who is behind."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from typing import Any

from fabtui.cli.job_options import job_options
from fabtui.cli.options_from_args import notice
from fabtui.cli.outputs import print_result
from fabtui.cli.printing import confirmed, print_json
from fabtui.config.values import seconds
from fabtui.diagnosis.running_job.flight_recorder import answer
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD, INTERRUPTED, NOT_TESTED
from fabtui.importers.formats.job_dumps import FLIGHT_RECORDER, rows_of
from fabtui.importers.result import Result
from fabtui.importers.sources import Source
from fabtui.model.facts.node_view import dicts, text
from fabtui.nodeset import count, fold, ranges
from fabtui.sanitize import clean, one_line
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.evidence import completed
from fabtui.session.running_job.inquiry import Reply, collect_dumps, over_new_links, replies

HELP = """\
Ask the ranks of a running job for their flight recorder dumps (PyTorch), and name the ranks that are behind.

examples:
  fabtui flight --nodes n060,n061              all nodes of the job; asks before it makes ranks write
  fabtui flight --nodes n060,n061 --yes        without asking, for scripts
  fabtui flight --yes                          on a node of the job, in its pod or container

The job must have been started with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr and TORCH_FR_BUFFER_SIZE=2000. Each rank
writes one file on its node and continues. Unlike RAS, the flight recorder sees send and recv.

exit codes: 0 no rank is behind; 1 a rank is behind; 2 bad usage or input; 3 no rank gave a dump; 130 not confirmed
"""

_LISTING = 20.0
#: Time (s) added to that of the dumps, for what is sent; and the longest that may be asked for.
_SENDING = 40.0
_LONGEST = 600.0
_HOW = "start the job with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr and TORCH_FR_BUFFER_SIZE=2000 (docs/jobs.md)"


def execute(args: argparse.Namespace) -> int:
    """List the ranks, ask, collect the dumps, print who is behind; return the exit code."""
    given = vars(args)
    options = job_options(args)
    stem = str(given.get("pipe", ""))
    within = seconds(given.get("within", "20"), "--within", 1.0, _LONGEST)
    listed = asyncio.run(replies(options, "flight", {"stem": stem}, _LISTING, lambda _: False, notice))
    with_pipe = {reply.node: dicts((reply.value or {}).get("ranks")) for reply in listed}
    nodes = [node for node, ranks in with_pipe.items() if ranks]
    if not nodes:
        return _no_dump(_reasons(listed), "json" in given)
    number = sum(map(len, with_pipe.values()))
    stems = {_stem(row): None for rows in with_pipe.values() for row in rows}
    if len(stems) > 1:
        names = one_line(" and ".join(list(stems)[:4]), 500)
        raise InputError(f"several jobs with a flight recorder run there; choose one with --pipe: {names}")
    if "yes" not in given and not _confirmed(number, nodes, with_pipe):
        return INTERRUPTED
    return asyncio.run(_collect(replace(options, hosts=tuple(nodes)), given, next(iter(stems)), within))


def _stem(row: dict[str, Any]) -> str:
    """Return the beginning of the names of a job's FIFOs."""
    return (text(row.get("pipe")) or "").removesuffix(f"{row.get('rank')}.pipe")


def _reasons(listed: list[Reply]) -> list[str]:
    """Return for each node why no rank of it can be asked."""
    reasons = []
    for reply in listed:
        if reply.value is None:
            reasons.append(f"{reply.node}: {reply.problem}" + (f"; {reply.hint}" if reply.hint else ""))
        elif reply.value.get("without"):
            reasons.append(f"{reply.node}: no rank has a FIFO of the flight recorder; {_HOW}")
        else:
            reasons.append(f"{reply.node}: no process with a rank is visible there")
    return reasons


def _confirmed(number: int, nodes: list[str], with_pipe: dict[str, list[dict[str, Any]]]) -> bool:
    pipe, ranks = one_line(text(with_pipe[nodes[0]][0].get("pipe")) or "", 200), count(number, "rank")
    question = f"{ranks} on {fold(nodes)} will each write a dump to a file there (FIFO {pipe}). Continue?"
    return confirmed(question, f"{ranks} would each write a file")


async def _collect(options: SessionOptions, given: dict[str, Any], stem: str, within: float) -> int:
    arguments = {"write": True, "within": within, "stem": stem}
    ask = over_new_links(options, notice)
    taken = await collect_dumps(ask, options.hosts, arguments, within + _SENDING)
    if not taken.dumps:
        return _no_dump(taken.problems, "json" in given)
    who = answer(taken.dumps, taken.places)
    if not who.suspects:
        # A rank that writes no dump is stopped, or hangs in the driver.
        silent = tuple(place for rank, place in taken.places.items() if rank not in taken.dumps)
        who = who._replace(suspects=silent)
    who = await completed(who, options, {}, ask)
    form = FLIGHT_RECORDER
    values = {**who.values(), "dumps": len(taken.dumps), "ranks": rows_of(taken.dumps)}
    values["files"] = [f"{taken.places[rank].node}:{path}" for rank, path in sorted(taken.files.items())]
    title = f"{fold(options.hosts)}, ranks {ranges(taken.dumps)}"
    print_result(Result(Source(title, ""), form.name, form.title, values, {}, taken.problems, [], []), given)
    return BAD if who.hangs else ALL_OK


def _no_dump(reasons: list[str], as_json: bool) -> int:
    if as_json:
        problems = [clean(one) for one in reasons]
        print_json({"kind": FLIGHT_RECORDER.name, "values": {"answer": None, "problems": problems}})
    else:
        print("\n".join(one_line(reason, 500) for reason in reasons))
    return NOT_TESTED
