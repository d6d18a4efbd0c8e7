"""The server: checks calls, reports their progress and ends their work, by the official package of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import anyio
import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from fabtui.errors import InputError, asked_by_tool
from fabtui.mcp.permission import Permission as Permission
from fabtui.mcp.tools import NOTE, OUTPUT_SCHEMA, TOOLS, Answer, Options, ToolCall, as_json, text_of
from fabtui.sanitize import one_line
from fabtui.session.feeds.live import CLOSE_DEADLINE
from fabtui.version import __version__

#: Time (s) between two notifications about the progress of a call.
PROGRESS_EVERY = 1.0
#: Maximum number of calls at once.
MOST_CALLS = 8
#: Time (s) in which a session ends, with what the end of a call takes beyond that.
_END = CLOSE_DEADLINE + 4.0
_INSTRUCTIONS = (
    "fabtui measures and diagnoses GPU fabrics. Begin with preflight or hang for nodes, or findings of a recording. "
    f"`exit`: 0 nothing bad (explain, read: text known), 1 something bad, 3 not known, null no judgement. {NOTE}"
)
Progress = Callable[[float, str], Awaitable[None]]


@dataclass
class Door:
    """The door between a client and the tools."""

    options: Options  #: Makes options of sessions.
    recordings: Path  #: Folder of the user's recordings.
    permission: Permission
    crash: Callable[[Exception], str]  #: Keeps an error of fabtui itself, and returns the line about it.
    running: set[asyncio.Task[Answer]] = field(default_factory=set)  #: Work of calls in progress.

    async def call(self, name: str, given: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Return the answer of a tool; raise `InputError` if it is refused, TimeoutError if it takes too long."""
        if (kind := TOOLS.get(name)) is None:
            raise InputError(f"there is no tool {one_line(name, 60)!r}; there are {', '.join(TOOLS)}")
        if len(self.running) >= MOST_CALLS:
            raise InputError(f"{MOST_CALLS} calls are in progress; wait for one to end")
        try:
            tool = msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            raise InputError(f"{name}: {one_line(str(error), 300)}") from None
        call = ToolCall(self.options, self.recordings, self.permission, tool.seconds)
        # A task of its own: it is cancelled once, so that it can end what runs on the nodes.
        with asked_by_tool(tool.__struct_encode_fields__):
            work = asyncio.ensure_future(tool.answered(call))
        self.running.add(work)
        work.add_done_callback(self.running.discard)
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=PROGRESS_EVERY)
                passed = time.monotonic() - call.began
                if not work.done():
                    await progress(round(passed, 1), one_line(call.step(), 200))
                # A session keeps its own limit.
                if passed > call.seconds + _END:
                    raise TimeoutError
        finally:
            call.given_up = True
            await self.close({work})
        return as_json(work.result(), name)

    async def close(self, ending: set[asyncio.Task[Answer]] | None = None) -> None:
        """Cancel work that is not done, by default all, and wait until it has left the nodes."""
        for work in (works := set(self.running) if ending is None else ending):
            work.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([*works, asyncio.ensure_future(asyncio.sleep(0))], timeout=_END)


def build_server(door: Door) -> Server[Any]:
    async def list_tools(_: object, page: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(map(_described, TOOLS)))

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        report = context.session.report_progress
        try:
            answer = await door.call(params.name, params.arguments or {}, lambda now, step: report(now, None, step))
        except InputError as error:
            text = str(error)
        except TimeoutError:
            text = f"{params.name} took too long and was ended: nothing is known"
        except Exception as error:
            text = door.crash(error)
        else:
            return types.CallToolResult(content=[types.TextContent(text=text_of(answer))], structured_content=answer)
        return types.CallToolResult(content=[types.TextContent(text=f"error: {one_line(text, 1000)}")], is_error=True)

    return Server(
        "fabtui",
        version=__version__,
        title="fabtui",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(name: str) -> types.Tool:
    kind, schema = TOOLS[name], TOOLS[name].input_schema()
    about, reads, asks = schema.pop("description"), not kind.tests, "nodes" in schema["properties"]
    hints = types.ToolAnnotations(read_only_hint=reads, destructive_hint=False, open_world_hint=asks)
    return types.Tool(name=name, description=about, input_schema=schema, output_schema=OUTPUT_SCHEMA, annotations=hints)


async def serve(door: Door) -> None:
    """Serve one client until it closes standard input, or a signal arrives; then end all work on the nodes."""
    ending: set[asyncio.Task[NoReturn]] = set()

    async def end(code: int) -> NoReturn:
        with contextlib.suppress(Exception):
            await door.close()
        # The threads that read standard input and files cannot be interrupted, and the interpreter would wait for them.
        os._exit(code)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda code: ending.add(loop.create_task(end(code))), 128 + number)
    server = build_server(door)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
    await end(0)
