"""The py-spy of fabtui's own environment, sent to nodes that have none and whose processor is of the same kind."""

from __future__ import annotations

import asyncio
import base64
import sysconfig
import zlib
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from fabtui.session.running_job.inquiry import Reply

#: Kinds of processors as ELF files number them, and as ``uname -m`` names them.
_MACHINES = {62: "x86_64", 183: "aarch64"}
#: Size (bytes) of a piece before Base64: heartbeats pass between two, even on a slow path.
_PIECE = 512 << 10

#: Asks a node for the probe ``stacks`` with arguments.
Ask = Callable[[dict[str, Any]], Awaitable[Reply]]


@cache
def _program() -> Path | None:
    path = Path(sysconfig.get_path("scripts")) / "py-spy"
    return path if path.is_file() else None


@cache
def machine() -> str:
    """Return the kind of processor that the program is for, "" if there is none."""
    if (path := _program()) is None:
        return ""
    with path.open("rb") as file:
        head = file.read(20)
    return _MACHINES.get(int.from_bytes(head[18:20], "little"), "") if head[:4] == b"\x7fELF" else ""


@cache
def _pieces() -> list[str]:
    packed = b"" if (path := _program()) is None else zlib.compress(path.read_bytes(), 1)
    return [base64.b64encode(packed[at : at + _PIECE]).decode() for at in range(0, len(packed), _PIECE)]


async def stacks(ask: Ask) -> Reply:
    """Return the answer of a node to the probe ``stacks``; send the program if that is what it lacks."""
    reply = await ask({"offers": machine()})
    if reply.value is None or not reply.value.get("wants"):
        return reply
    pieces = await asyncio.to_thread(_pieces)
    for at, piece in enumerate(pieces, 1):
        # The answer to the last one has the stacks.
        reply = await ask({"piece": piece, "last": at == len(pieces)})
        if reply.value is None:
            # Without an offer it answers in any case.
            return await ask({})
    return reply
