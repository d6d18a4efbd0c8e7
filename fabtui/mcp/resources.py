"""Resources: recordings of the user, and the catalogues of rules and errors."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from fabtui.errors import InputError
from fabtui.mcp.knowledge_tools import error_entries, rule_entries
from fabtui.mcp.permission import Permission
from fabtui.model.events import SessionStart
from fabtui.model.recording import read_events
from fabtui.nodeset import fold
from fabtui.report.recordings import recordings_in
from fabtui.sanitize import one_line

#: Maximum number of recordings in the list.
MOST = 40
_RECORDINGS = "fabtui://recordings/"
#: Address and title of each catalogue.
CATALOGUES = {"fabtui://rules": "Rules that findings cite", "fabtui://errors": "Errors that logs are searched for"}


def listed_resources(permission: Permission, folder: Path) -> list[tuple[str, str, str]]:
    """Return address, name and title of each resource; of the recordings the newest on nodes that are allowed."""
    found = [(uri, uri.rpartition("/")[2], title) for uri, title in CATALOGUES.items()]
    for path in recordings_in(folder):
        if len(found) >= MOST + len(CATALOGUES):
            break
        with contextlib.suppress(InputError, OSError):
            first = next(iter(read_events(path)))
            if isinstance(first, SessionStart) and permission.is_within(first.nodes):
                name = one_line(path.name, 200)
                found.append((f"{_RECORDINGS}{name}", name, f"Session on {one_line(fold(first.nodes), 200)!r}"))
    return found


def catalogue_text(uri: str) -> str | None:
    """Return a catalogue as JSON; None for any other address."""
    entries = {"fabtui://rules": rule_entries, "fabtui://errors": error_entries}.get(uri)
    return None if entries is None else json.dumps({uri.rpartition("/")[2]: entries()}, ensure_ascii=False)


def recording_at(uri: str, folder: Path) -> Path:
    """Return the recording of an address: one of the folder, by its name.

    Raises:
        InputError: There is none.
    """
    name = uri.removeprefix(_RECORDINGS)
    found = next((one for one in recordings_in(folder) if one.name == name), None)
    if found is None or uri == name:
        raise InputError(f"there is no resource {one_line(uri, 200)!r}")
    return found
