"""Ages of files on a file server whose clock may differ from ours."""

from __future__ import annotations


class FileClock:
    """Compares modification times with each other, and with our clock only as far as growth was seen.

    A file that has just grown shows how far the server's clock is from ours, up to the time between two readings.
    """

    def __init__(self) -> None:
        self._newest = float("-inf")
        self._ahead: float | None = None

    def see(self, modified: float, now: float, *, grew: bool) -> None:
        """Take the modification time of a file that was read at ``now``, by the reader's clock."""
        self._newest = max(self._newest, modified)
        if grew:
            self._ahead = now - modified if self._ahead is None else min(self._ahead, now - modified)

    def age(self, modified: float, now: float) -> float:
        """Return how long ago (s) a file was written."""
        # Until a file has grown, a server that is ahead shows by times in the future.
        server = now - self._ahead if self._ahead is not None else max(now, self._newest)
        return max(0.0, server - modified)
