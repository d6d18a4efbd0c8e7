"""A client of the server within the test process, with the client classes of the official package."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
from mcp import Client
from mcp_types import CallToolResult, TextContent

from fabtui.cli.commands.mcp import CommandRequests
from fabtui.cli.options_from_args import own_recordings
from fabtui.cli.parser import build_parser
from fabtui.config.file import read_config
from fabtui.mcp.permission import Permission
from fabtui.mcp.server import Door, build_server


def door(*options: str) -> Door:
    """Return what serves the calls of clients, started with some options."""
    args = build_parser(["mcp"]).parse_args(["mcp", *options])
    config = read_config(args)
    requests = CommandRequests(args, config)
    budget = float(getattr(args, "budget", "3600"))
    permission = Permission(requests.nodes, tests="allow_tests" in args, budget=budget)
    return Door(requests.options, own_recordings(config), permission, _crashed)


def _crashed(error: Exception) -> str:
    raise error


@contextlib.asynccontextmanager
async def assistant(*options: str) -> AsyncIterator[Assistant]:
    async with Client(build_server(door(*options))) as client:
        yield Assistant(client)


class Assistant:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> tuple[CallToolResult, str]:
        """Return the result of a call, and its only text."""
        result = await self.client.call_tool(tool, arguments)
        (block,) = result.content
        assert isinstance(block, TextContent)
        return result, block.text

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return an answer, which the client has checked against the schema; its text is the same as JSON."""
        result, text = await self.call(tool, **arguments)
        assert not result.is_error, text
        answer: dict[str, Any] = result.structured_content or {}
        assert json.loads(text) == answer
        return answer

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Return why a call is refused: one line, and nothing else."""
        result, text = await self.call(tool, **arguments)
        assert result.is_error, text
        assert result.structured_content is None
        assert "\n" not in text
        return text

    async def offered(self) -> list[dict[str, Any]]:
        return [tool.model_dump() for tool in (await self.client.list_tools(cache_mode="refresh")).tools]
