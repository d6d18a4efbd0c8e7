"""Standard output and error that cannot drive the terminal: the last place that texts of nodes and files pass."""

from __future__ import annotations

import io
import sys

from fabtui.sanitize import printable


class CleanOutput(io.TextIOWrapper):
    """Text file that drops control and invisible characters but for line ends, tabs and colours."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        super().__init__(file.buffer, encoding=file.encoding, errors=file.errors, line_buffering=file.line_buffering)
        # It stays usable, as the screen writes to it; when it is collected it closes the buffer of both.
        self._original = file

    def write(self, text: str) -> int:
        """Write text; return its length."""
        super().write(printable(text))
        return len(text)


def clean_standard_files() -> None:
    """Replace standard output and error of this process; those of a test's harness are left as they are."""
    for name in ("stdout", "stderr"):
        file = getattr(sys, name)
        if type(file) is io.TextIOWrapper:
            setattr(sys, name, CleanOutput(file))
