"""Tools that ask no node: rules, errors, pasted texts, and outputs of commands."""

from __future__ import annotations

from typing import Any

from fabtui.diagnosis.diagnosis import RULES
from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.knowledge.failure_stage import explained_errors
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.importers.catalogue import chosen, recognise
from fabtui.importers.formats.job_dumps import results_of
from fabtui.importers.result import Result, read
from fabtui.importers.sources import Source, sources
from fabtui.importers.to_model.dispatch import findings_about
from fabtui.mcp.answer import Answer, steps_of
from fabtui.mcp.file_access import checked_files
from fabtui.mcp.tool import LINES, ROWS, Tool, ToolCall, text, texts
from fabtui.mcp.worker_threads import answered_in_thread, while_wanted
from fabtui.nodeset import count
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.findings import placed_title
from fabtui.report.explained import explained_logs, explained_text
from fabtui.report.text import text_lines
from fabtui.sanitize import one_line

#: Longest text (characters) that may be pasted.
_PASTED = 512 * 1024
#: Width of the lines of an explanation.
_WIDTH = 120
_FORMAT = "of a format that is not known"


def rule_entries() -> list[dict[str, Any]]:
    return [
        {"id": one.id, "name": one.name, "severity": str(one.severity), "title": one.title, "means": one.description}
        for one in sorted(RULES, key=lambda one: one.id)
    ]


def error_entries() -> list[dict[str, Any]]:
    known = sorted(explained_errors(), key=lambda one: int(one.code[1:]))
    return [{"code": one.code, "id": one.id, "prints": one.prints, "means": one.text} for one in known]


def _rules(call: ToolCall) -> Answer:
    given = call.given
    wanted, kind = str(given.get("search", "")).lower(), given.get("kind")
    found = {"rules": rule_entries(), "errors": error_entries()}
    data = {
        name: [one for one in entries if wanted in " ".join(one.values()).lower()]
        for name, entries in found.items()
        if kind in (None, name)
    }
    if not wanted:
        # All of them do not fit with their meanings: `explain` has these.
        data = {name: [{k: v for k, v in one.items() if k != "means"} for one in some] for name, some in data.items()}
    numbers = " and ".join(count(len(some), name.removesuffix("s")) for name, some in data.items())
    return Answer(
        f"{numbers} {f'with {one_line(wanted, 80)!r}' if wanted else 'are known'}.",
        data,
        examined=["the catalogues of this version of fabtui; no node"],
        not_examined=["what these catalogues do not list: it is not known to be harmless"],
    )


def _text_or_files(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; raise `InputError` unless they have either a text or files."""
    if ("text" in call.given) == ("files" in call.given):
        raise InputError("give either text or files")
    return call.given


def _is_text(call: ToolCall) -> bool:
    return "text" in call.given


def _explain(call: ToolCall) -> Answer:
    given = _text_or_files(call)
    if "text" in given:
        found, what = explained_text(given["text"]), "the text"
    else:
        files = checked_files(given["files"], "files")
        found, what = explained_logs(while_wanted(call, sources(files))), ", ".join(files)
    lines = text_lines(found.blocks, _WIDTH)
    head = next((line for line in lines if line), "nothing found")
    return Answer(
        head,
        {"known": found.known, "lines": lines},
        examined=[f"{one_line(what, 400)}; no node"],
        not_examined=[*found.notices, *([] if found.known else ["what is unknown is not known to be harmless"])],
        code=ALL_OK if found.known else BAD,
    )


def _read(call: ToolCall) -> Answer:
    given = _text_or_files(call)
    if "as" in given and "files" in given:
        # Read as a list of names, any file of the user would be quoted.
        raise InputError("as: only with text; the format of a file has to be recognised")
    kind = chosen(given["as"]).name if "as" in given else None
    if "text" in given:
        results = [read(Source("text", given["text"]), kind)]
    else:
        results = list(while_wanted(call, results_of(checked_files(given["files"], "files"), None)))
    bodies: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for result in results:
        mine = findings_about(result)
        findings += mine
        bodies.append(_body(result, "files" in given) | {"findings": [finding_json(one) for one in mine]})
    known = [one for one in results if one.known]
    what = "; ".join(f"{one_line(one.source.name, 200)}: {one.kind}" for one in known[:5])
    head = f"{count(len(findings), 'finding')}: {placed_title(findings[0])}" if findings else "No finding"
    return Answer(
        f"{head} ({what})." if what else f"{count(len(results), 'text')} {_FORMAT}.",
        {"results": bodies},
        examined=[f"{one_line(one.source.name, 200)}: {one.kind}: {one.title}; no node" for one in known],
        not_examined=[
            *([f"whether this is {kind}: only `as` names it so"] if kind and not _is(kind, given) else []),
            *(f"{one_line(one.source.name, 200)}: {_FORMAT}" for one in results if not one.known),
            *(f"{one_line(one.source.name, 200)}: {one_line(line, 300)}" for one in known for line in one.warnings),
            *(
                f"{one_line(one.source.name, 200)}: {count(len(one.unknown), 'line')} not understood"
                for one in known
                if one.unknown
            ),
        ],
        code=ALL_OK if len(known) == len(results) else NOT_TESTED,
        next=steps_of(findings),
    )


def _is(kind: str, given: dict[str, Any]) -> bool:
    """Return whether a text is recognised as a format without being called so."""
    form = recognise(given["text"]).format
    return form is not None and form.name == kind


def _body(result: Result, of_file: bool) -> dict[str, Any]:
    body = result.as_json()
    if of_file:
        # Text of a file of the user that is not an output of a tool may be anything.
        body.pop("raw", None)
        body["unknown"] = len(result.unknown)
    return body


_FILES = texts("Paths of files on the machine of this server: regular files, none of them hidden.")
KNOWLEDGE_TOOLS = (
    Tool(
        name="explain",
        title="Explain an error, a code or a log",
        description=(
            "Explains offline what a text of NCCL, CUDA, RDMA, PyTorch or the kernel means: a rule (FT012), an error "
            "(E13), 'xid 79', a transport (NET/IB/0/GDRDMA), an error line, or a whole log, of which it names the "
            "earliest cause. It asks no node."
        ),
        seconds=60.0,
        answer=answered_in_thread(_explain, _is_text),
        arguments={"text": text("A code, a line, or a log, as it was printed.", _PASTED), "files": _FILES},
        body={"known": {"type": "boolean"}, "lines": LINES},
    ),
    Tool(
        name="read",
        title="Judge outputs of tools",
        description=(
            "Recognises and judges outputs of nccl-tests, perftest, ibstat, nvidia-smi, Slurm, RAS, flight recorders "
            "and many others, offline: what is wrong in them. A format that it does not know is not examined."
        ),
        seconds=60.0,
        answer=answered_in_thread(_read, _is_text),
        arguments={
            "files": _FILES,
            "text": text("Output of one command, as it was printed.", _PASTED),
            "as": text("With text: name of its format, instead of detecting it.", 60),
        },
        body={"results": ROWS},
    ),
    Tool(
        name="rules",
        title="Known rules and errors",
        description="Lists the rules that findings cite, and the errors that logs are searched for. It asks no node.",
        seconds=30.0,
        answer=answered_in_thread(_rules, lambda call: True),
        arguments={
            "search": text("Only those that contain this text.", 200),
            "kind": {"type": "string", "enum": ["rules", "errors"], "description": "Only one of the two."},
        },
        body={"rules": ROWS, "errors": ROWS},
    ),
)
