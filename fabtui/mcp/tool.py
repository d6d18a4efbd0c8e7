"""A tool: its name, its arguments, how long it may take, and the function that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fabtui.mcp.answer import Answer
from fabtui.mcp.latest_session import LatestSession
from fabtui.mcp.permission import Permission
from fabtui.session.options import JobQuery, SessionOptions

Schema = dict[str, Any]


class Requests(Protocol):
    """Makes options of sessions of words, as the command line does; arguments are named as there."""

    @property
    def recordings(self) -> Path:
        """Folder of the user's recordings."""

    def run(self, given: Mapping[str, Any]) -> SessionOptions:
        """Return the options of ``fabtui run``; raise `InputError` for arguments that are not valid."""

    def preflight(self, given: Mapping[str, Any]) -> SessionOptions:
        """Return the options of ``fabtui preflight``."""

    def hang(self, given: Mapping[str, Any]) -> tuple[SessionOptions, JobQuery | None]:
        """Return the options of ``fabtui hang``, and where the logs of the job are."""

    def job(self, given: Mapping[str, Any]) -> tuple[SessionOptions, JobQuery]:
        """Return the options of ``fabtui job``, and what is asked about the job."""


@dataclass
class ToolCall:
    """A call of a tool."""

    given: dict[str, Any]  #: Its arguments, checked against the schema of the tool.
    requests: Requests  #: Makes options of sessions.
    permission: Permission  #: What is allowed.
    seconds: float  #: How long (s) it may take.
    latest: LatestSession = field(default_factory=LatestSession)  #: The session that was asked about last.
    step: Callable[[], str] = lambda: "working"  #: Returns what is done now, for people who wait.
    given_up: bool = False  #: Whether nobody is waiting for the answer.


@dataclass(frozen=True)
class Tool:
    """A tool of the server."""

    name: str  #: Name of the command.
    title: str  #: What it does, in a few words.
    description: str  #: What it does, for assistants: when to call it, and what it does not do.
    seconds: float  #: How long (s) it may take.
    answer: Callable[[ToolCall], Awaitable[Answer]]  #: Answers a call.
    arguments: dict[str, Schema] = field(default_factory=dict)  #: JSON Schema of each argument.
    required: tuple[str, ...] = ()  #: Arguments that have to be given.
    body: dict[str, Schema] = field(default_factory=dict)  #: JSON Schema of members of ``data``.
    tests: bool = False  #: Whether it loads GPUs and links.
    on_nodes: bool = False  #: Whether it asks nodes.

    @property
    def input_schema(self) -> Schema:
        return {
            "type": "object",
            "properties": self.arguments,
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        body = OUTPUT_SCHEMA["properties"]["data"] | {"properties": self.body}
        return OUTPUT_SCHEMA | {"properties": OUTPUT_SCHEMA["properties"] | {"data": body}}


def text(description: str, longest: int = 4000, **more: Any) -> Schema:
    return {"type": "string", "description": description, "minLength": 1, "maxLength": longest, **more}


def texts(description: str, most: int = 64) -> Schema:
    items = {"type": "string", "minLength": 1, "maxLength": 4000}
    return {"type": "array", "description": description, "items": items, "minItems": 1, "maxItems": most}


def switch(description: str) -> Schema:
    return {"type": "boolean", "description": description}


_STEP: Schema = {
    "type": "object",
    "properties": {
        "finding": {"type": ["string", "null"], "description": "Rule that suggests it, such as FT010."},
        "text": {"type": "string", "description": "The command as a person types it."},
        "node": {"type": ["string", "null"], "description": "Node it runs on; null for this machine."},
        "argv": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["finding", "text", "node", "argv"],
    "additionalProperties": False,
}
#: JSON Schema of lists of objects, of lists of lines, and of a sentence, in bodies.
ROWS: Schema = {"type": "array", "items": {"type": "object"}}
LINES: Schema = {"type": "array", "items": {"type": "string"}}
SENTENCE: Schema = {"type": "string"}
#: JSON Schema of findings, of members that assistants read (all are in ``fabtui help --schema``).
FINDINGS: Schema = {
    "type": "array",
    "description": "The worst first.",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Rule, such as FT010; the tool explain has its meaning."},
            "rule": {"type": "string"},
            "severity": {"enum": ["bad", "warn", "note"]},
            "title": {"type": "string"},
            "nodes": LINES,
            "confidence": {"type": ["number", "null"], "description": "Probability among the causes that fit."},
            "evidence": LINES,
            "next": {**LINES, "description": "Commands for the person."},
        },
        "required": ["id", "severity", "title", "confidence", "evidence", "next"],
    },
}
#: JSON Schema of the body about a session.
SESSION_BODY = {"sentence": SENTENCE, "findings": FINDINGS, "nodes": ROWS, "preflight": FINDINGS}
_EXIT = (
    "Exit code of the command: of sessions, jobs and diff 0 nothing bad, 1 something bad, 3 not known; of explain and "
    "read 0 only means that the text is known. Null: the tool does not judge."
)
#: JSON Schema of all answers; the body, ``data``, is what the command writes as JSON (`fabtui help --schema`), bounded.
OUTPUT_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "tool": {"type": "string"},
        "answer": {"type": "string", "description": "The answer in one sentence."},
        "exit": {"type": ["integer", "null"], "description": _EXIT},
        "examined": {**LINES, "description": "What was examined."},
        "not_examined": {**LINES, "description": "What was not, and why: it is not known to be ok."},
        "recording": {"type": ["string", "null"], "description": "File with all of the evidence."},
        "next": {"type": "array", "items": _STEP, "description": "Commands for the person; none of them was run."},
        "left_out": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Number of items that the limits of an answer left out, by path.",
        },
        "untrusted": {**LINES, "description": "Members that may quote nodes, files and jobs."},
        "note": {"type": "string"},
        "data": {"type": "object", "description": "The body: what the command writes as JSON, bounded."},
    },
    "required": [
        *("tool", "answer", "exit", "examined", "not_examined", "recording", "next"),
        *("left_out", "untrusted", "note", "data"),
    ],
    "additionalProperties": False,
}
