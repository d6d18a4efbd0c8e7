"""Keys that the first nodes refuse are not offered to all others."""

from __future__ import annotations

import asyncio

#: Number of nodes that have to refuse: one alone may be at fault, such as one without its home.
ENOUGH = 2
#: Maximum time (s) that a login waits for the outcome of an earlier one: a node that hangs holds up nobody.
PATIENCE = 2.0


class KeyTrial:
    """Lets logins with the same user and keys offer these one after the other, until a node has accepted."""

    def __init__(self) -> None:
        self._accepted = False
        self._refusing: list[str] = []
        self._turn = asyncio.Semaphore(1)

    @property
    def why_not(self) -> str:
        """Return why keys are not offered, or nothing."""
        if self._accepted or len(self._refusing) < ENOUGH:
            return ""
        return f"no key is offered: {' and '.join(self._refusing[:ENOUGH])} refused the same"

    async def begin(self) -> bool:
        """Wait for the turn of a login; return True if it has the turn, and has to call `end`."""
        if self._accepted:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turn.acquire()
        except TimeoutError:
            return False
        if self._accepted:
            self._turn.release()
            return False
        return True

    def end(self, node: str, accepted: bool | None, *, has_turn: bool) -> None:
        """Note whether a node has accepted keys (None: neither), and give the turn to the next login."""
        if accepted:
            self._accepted = True
        elif accepted is False and not self._accepted:
            self._refusing.append(node)
        if has_turn:
            self._turn.release()
