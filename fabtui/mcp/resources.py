"""Resources: recordings of the user, and the catalogues of rules and errors."""

from __future__ import annotations

import contextlib
import json

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.importers.session import replayed
from fabtui.mcp.answer import as_json, text_of
from fabtui.mcp.knowledge_tools import error_entries, rule_entries
from fabtui.mcp.permission import Permission
from fabtui.mcp.session_answer import session_answer
from fabtui.model.events import SessionStart
from fabtui.model.recording import read_events
from fabtui.nodeset import fold
from fabtui.paths import recordings_folder
from fabtui.report.recordings import recordings_in
from fabtui.sanitize import one_line

#: Maximum number of recordings in the list.
MOST = 40
_RECORDINGS = "fabtui://recordings/"
#: Address and title of each catalogue.
CATALOGUES = {"fabtui://rules": "Rules that findings cite", "fabtui://errors": "Errors that logs are searched for"}


def listed_resources(permission: Permission) -> list[tuple[str, str, str]]:
    """Return address, name and title of each resource; of recordings the newest on nodes that are allowed."""
    found = [(uri, uri.rpartition("/")[2], title) for uri, title in CATALOGUES.items()]
    for path in recordings_in(recordings_folder()):
        if len(found) >= MOST + len(CATALOGUES):
            break
        with contextlib.suppress(InputError, OSError):
            first = next(iter(read_events(path)))
            if isinstance(first, SessionStart) and permission.is_within(first.nodes):
                name = one_line(path.name, 200)
                found.append((f"{_RECORDINGS}{name}", name, f"Session on {one_line(fold(first.nodes), 200)}"))
    return found


def resource_text(uri: str, permission: Permission) -> str:
    """Return a resource as JSON; a recording as the tool `findings` answers.

    Raises:
        InputError: There is no such resource, or it is of nodes that are not allowed.
    """
    if uri == "fabtui://rules":
        return json.dumps({"rules": rule_entries()})
    if uri == "fabtui://errors":
        return json.dumps({"errors": error_entries()})
    name = uri.removeprefix(_RECORDINGS)
    path = next((one for one in recordings_in(recordings_folder()) if one.name == name and uri != name), None)
    if path is None:
        raise InputError(f"there is no resource {one_line(uri, 200)!r}")
    model, damage = replayed(path)
    permission.check(model.nodes, f"{path.name}: nodes of the session")
    problems = () if damage is None else (f"{damage}; the part before it was examined, the rest was not",)
    return text_of(as_json(session_answer(diagnose(model), path, problems), "findings"))
