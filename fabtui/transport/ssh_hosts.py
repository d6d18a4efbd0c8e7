"""Names and patterns of hosts in the user's ssh configuration."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fabtui.paths import user_path

_LINE = re.compile(r"\s*(host|include)(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
#: Maximum depth of files that include others, and bytes of a file that are read.
_DEEPEST, _MOST = 4, 1 << 20


def host_patterns(config: Path | None = None) -> list[str]:
    """Return what follows ``Host`` in a configuration and the files that it includes, in order; by default the user's.

    The pattern ``*`` and negated ones are left out. Files that cannot be read count as empty.
    """
    found = _patterns(config or user_path("~/.ssh/config"), 0)
    return list(dict.fromkeys(one for one in found if one != "*" and not one.startswith("!")))


def _patterns(path: Path, depth: int) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST).decode("utf-8", "replace")
    except OSError:
        return
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        words = [word.strip('"') for word in match[2].split()]
        if match[1].lower() == "host":
            yield from words
        elif depth < _DEEPEST:
            for word in words:
                # As OpenSSH has it for a user's configuration.
                place = os.path.join(user_path("~/.ssh"), os.path.expanduser(word))
                for name in sorted(glob.glob(place)):
                    yield from _patterns(Path(name), depth + 1)
