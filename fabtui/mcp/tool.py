"""A tool: its arguments, how long it may take, and what answers a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from fabtui.mcp.answer import Answer
from fabtui.mcp.permission import Permission
from fabtui.sanitize import one_line
from fabtui.session.options import JobQuery, SessionOptions

ItemT = TypeVar("ItemT")
#: Returns the options of a command with some arguments, as the command line does, and where the logs of a job are.
Options = Callable[[str, dict[str, Any]], tuple[SessionOptions, JobQuery | None]]
#: For files. One of 64 MiB takes seconds, in which its thread cannot be interrupted, and 400 MiB of memory; more at
#: once would also take the processor from sessions on nodes, whose heartbeats must not wait.
_FILES = ThreadPoolExecutor(4, "fabtui-mcp-files")
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]


class OutOfTime(TimeoutError):
    """The time limit of a call has passed, or the client has gone."""


@dataclass
class ToolCall:
    """A call of a tool."""

    options: Options
    recordings: Path  #: Folder of the user's recordings.
    permission: Permission  #: What is allowed.
    seconds: float  #: How long (s) it may take.
    step: Callable[[], str] = lambda: "working"  #: Returns what is done now, for people who wait.
    given_up: bool = False  #: Whether nobody is waiting for the answer.
    began: float = field(default_factory=time.monotonic)

    def check_wanted(self) -> None:
        """Raise `OutOfTime` when nobody is waiting for the answer, or its time is over."""
        if self.given_up or time.monotonic() > self.began + self.seconds:
            raise OutOfTime

    def while_wanted(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        for item in items:
            self.check_wanted()
            yield item

    def reading(self, name: str) -> Callable[[float], None]:
        """Return what is called with the share of a file that was read; it ends the reading when the time is over."""

        def progress(share: float) -> None:
            self.step = lambda: f"reading {one_line(name, 80)}: {share:.0%}" if share < 1.0 else "looking for causes"
            # After the last event, what was read is used.
            if share < 1.0:
                self.check_wanted()

        return progress


class Tool(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Arguments of a call. Its docstring is what assistants read about it, its class has its name."""

    seconds: ClassVar[float] = 120.0  #: How long (s) it may take.
    tests: ClassVar[bool] = False  #: Whether it loads GPUs and links.

    @classmethod
    def input_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the arguments; its ``description`` describes the tool."""
        _, schemas = msgspec.json.schema_components([cls])
        schema: dict[str, Any] = schemas[cls.__name__]
        return schema | {"description": " ".join(schema["description"].split())}

    @classmethod
    def takes_nodes(cls) -> bool:
        return "nodes" in cls.__struct_fields__

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that were given."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return values

    @property
    def is_short(self) -> bool:
        """Return True if the call reads no file."""
        return False

    async def answered(self, call: ToolCall) -> Answer:
        pool = None if self.is_short else _FILES
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, self.answer, call)

    def answer(self, call: ToolCall) -> Answer:
        """Return the answer; blocks."""
        raise NotImplementedError


def about(description: str, most: int = 4000) -> msgspec.Meta:
    """Return what is known of an argument; ``most``: its maximum number of characters, or of items."""
    return msgspec.Meta(description=description, min_length=1, max_length=most)
