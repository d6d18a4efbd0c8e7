"""What the nodes of a session are sent, packed once for all of them."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from typing import Any

from fabtui.transport import payload as bootstrap
from fabtui.transport.payload import Part, Payload
from fabtui_node.protocol import encode_piece

#: Bytes of a piece: heartbeats pass between two of them, however slow the way is.
PIECE = 32 * 1024


class Cargo:
    """The payload and what follows it.

    Args:
        entry: The module that is run on the node.
        modules: Sources to send instead of the node side, all of them in the payload; None: the installed ones.
        more: Modules that follow beside the probes: dotted name and source.
    """

    def __init__(self, entry: str, modules: Mapping[str, str] | None, more: tuple[tuple[str, str], ...]) -> None:
        self._entry = entry
        self._modules = modules
        self._more = more
        self._payload: asyncio.Task[Payload] | None = None
        self._parts: dict[Part, asyncio.Task[list[bytes]]] = {}

    async def payload(self, config: Mapping[str, Any]) -> bytes:
        """Return what a node's first stage reads.

        Raises:
            OSError: The installation is broken.
        """
        if self._payload is None:
            # Off the loop: files are read. One task for all: each would do it anew.
            self._payload = asyncio.create_task(asyncio.to_thread(self._pack_first))
        return (await asyncio.shield(self._payload)).packed(config, self._entry)

    def needed_by(self, kind: str) -> tuple[Part, ...]:
        """Return the parts that a message needs to have been sent ahead of it."""
        return bootstrap.NEEDS.get(kind, ()) if self._modules is None else ()

    async def pieces(self, part: Part) -> list[bytes]:
        """Return the frames of a part.

        Raises:
            OSError: The installation is broken.
        """
        if part not in self._parts:
            self._parts[part] = asyncio.create_task(asyncio.to_thread(self._pack_part, part))
        return await asyncio.shield(self._parts[part])

    def _pack_first(self) -> Payload:
        return Payload(bootstrap.first_modules() if self._modules is None else self._modules)

    def _pack_part(self, part: Part) -> list[bytes]:
        sources = {**bootstrap.node_modules(), **dict(self._more)}
        chosen = {name: source for name, source in sources.items() if bootstrap.part_of(name) == part}
        packed = zlib.compress(json.dumps(chosen, separators=(",", ":")).encode("ascii"), 6)
        starts = range(0, len(packed), PIECE)
        return [encode_piece(packed[start : start + PIECE], start == starts[-1]) for start in starts]

    async def close(self) -> None:
        """Stop what still runs."""
        tasks: list[asyncio.Task[Any]] = [*self._parts.values(), *([self._payload] if self._payload else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
