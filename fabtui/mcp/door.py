"""The door between clients and tools: checks calls, reports their progress, and ends their work with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from jsonschema import Draft202012Validator, ValidationError

from fabtui.errors import InputError, asked_by_tool
from fabtui.mcp.answer import Answer, as_json
from fabtui.mcp.knowledge_tools import KNOWLEDGE_TOOLS
from fabtui.mcp.latest_session import LatestSession
from fabtui.mcp.node_tools import NODE_TOOLS
from fabtui.mcp.permission import Permission
from fabtui.mcp.recording_tools import RECORDING_TOOLS
from fabtui.mcp.tool import Requests, Tool, ToolCall
from fabtui.mcp.worker_threads import OutOfTime, in_thread
from fabtui.nodeset import chosen_nodes, count
from fabtui.sanitize import one_line
from fabtui.session.feeds.live import CLOSE_DEADLINE

#: All tools, by name.
TOOLS = {tool.name: tool for tool in (*NODE_TOOLS, *RECORDING_TOOLS, *KNOWLEDGE_TOOLS)}
#: Time (s) between two notifications about the progress of a call.
PROGRESS_EVERY = 1.0
#: Maximum number of calls at once.
MOST_CALLS = 8
#: Time (s) that the end of a call may take beyond that of a session.
_GRACE = 4.0
#: Called with the time (s) since a call began, and what it does.
Progress = Callable[[float, str], Awaitable[None]]


@dataclass
class Door:
    """The door of one server."""

    requests: Requests  #: Makes options of sessions.
    permission: Permission  #: What is allowed.
    crash: Callable[[Exception], str]  #: Keeps an error of fabtui itself, and returns the line about it.
    latest: LatestSession = field(default_factory=LatestSession)  #: The session that was asked about last.
    running: set[asyncio.Task[Answer]] = field(default_factory=set)  #: Work of calls in progress.

    async def call(self, name: str, given: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Return the answer of a tool as a JSON object.

        Raises:
            InputError: The call is not valid, or not allowed.
            TimeoutError: It took longer than it may.
        """
        tool = TOOLS.get(name)
        if tool is None:
            raise InputError(f"there is no tool {one_line(name, 60)!r}; there are {', '.join(TOOLS)}")
        if len(self.running) >= MOST_CALLS:
            raise InputError(f"{MOST_CALLS} calls are in progress; wait for one to end")
        check_arguments(tool, given)
        call = ToolCall(dict(given), self.requests, self.permission, tool.seconds, self.latest)
        # A task of its own: it is cancelled once, so that it can end what runs on the nodes.
        work = asyncio.ensure_future(self._work(tool, call))
        self.running.add(work)
        work.add_done_callback(self.running.discard)
        try:
            await _finished(work, call, progress)
        finally:
            call.given_up = True
            await _ended(work)
        return as_json(work.result(), name)

    async def _work(self, tool: Tool, call: ToolCall) -> Answer:
        with asked_by_tool(tool.arguments):
            if "nodes" in call.given:
                # Groups of nodes may be looked up by commands of the site.
                nodes = await in_thread(lambda: chosen_nodes([call.given["nodes"]], [], []))
                self.permission.check(nodes)
            return await tool.answer(call)

    async def close(self) -> None:
        await asyncio.gather(*map(_ended, list(self.running)), return_exceptions=True)


def check_arguments(tool: Tool, given: dict[str, Any]) -> None:
    """Raise `InputError` if arguments do not fit the schema of a tool."""
    if unknown := [one for one in given if one not in tool.arguments]:
        known = ", ".join(tool.arguments)
        raise InputError(f"{tool.name}: there is no argument {one_line(unknown[0], 60)!r}; there are {known}")
    if absent := [one for one in tool.required if one not in given]:
        raise InputError(f"{tool.name}: {absent[0]} is missing: {tool.arguments[absent[0]]['description']}")
    for problem in Draft202012Validator(tool.input_schema).iter_errors(given):
        where = ".".join(map(str, problem.absolute_path)) or "arguments"
        raise InputError(f"{tool.name}: {where}: {_reason(problem)}")
    if file := next((name for name in ("nodes", "exclude") if "^" in given.get(name, "")), None):
        raise InputError(f"{tool.name}: {file}: name the nodes; ^FILE reads a file")


def _reason(problem: ValidationError) -> str:
    """Return why a value does not fit its schema; the validator begins with the value, which may be long."""
    limit = problem.validator_value
    match problem.validator:
        case "maxLength":
            return f"{len(problem.instance)} characters; the maximum is {limit}"
        case "maxItems":
            return f"{count(len(problem.instance), 'item')}; the maximum is {limit}"
        case "minLength" | "minItems":
            return "empty"
        case "enum":
            return f"{one_line(repr(problem.instance), 60)}; choose one of {', '.join(limit)}"
        case "type":
            return f"expected {limit}, got {one_line(repr(problem.instance), 60)}"
    return one_line(problem.message, 300)


async def _finished(work: asyncio.Task[Answer], call: ToolCall, progress: Progress) -> None:
    """Wait until work is done, and report its progress once a second; raise `OutOfTime` after its time limit."""
    began = time.monotonic()
    # A session keeps its own limit, and takes a while to end.
    limit = call.seconds + CLOSE_DEADLINE + _GRACE
    while not work.done():
        await asyncio.wait({work}, timeout=PROGRESS_EVERY)
        passed = time.monotonic() - began
        if not work.done():
            await progress(round(passed, 1), one_line(call.step(), 200))
        if passed > limit:
            raise OutOfTime


async def _ended(work: asyncio.Task[Answer]) -> None:
    """Cancel work that is not done, and wait until it has left the nodes."""
    work.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({work}, timeout=CLOSE_DEADLINE + _GRACE)
