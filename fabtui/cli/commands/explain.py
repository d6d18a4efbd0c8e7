"""``fabtui explain``: rules, known errors, and the causes in logs of NCCL and PyTorch; offline."""

from __future__ import annotations

import argparse
import re
import shutil
import sys

from fabtui.cli.printing import print_text
from fabtui.diagnosis.diagnosis import RULES
from fabtui.diagnosis.knowledge.failure_stage import explained_errors
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.knowledge.short_codes import short_code
from fabtui.diagnosis.knowledge.xids import xids
from fabtui.errors import InputError
from fabtui.history import history_rules  # noqa: F401 - registers the rules about earlier sessions
from fabtui.importers.catalogue import formats, is_ours, recognise
from fabtui.importers.result import read
from fabtui.importers.sources import Source, sources
from fabtui.importers.to_model.dispatch import examined
from fabtui.importers.unwrapping import unwrapped
from fabtui.jobs.monitor import job_rules  # noqa: F401 - registers the rules about jobs
from fabtui.nodeset import count
from fabtui.paths import user_path
from fabtui.report.explanation import (
    causes_lines,
    error_lines,
    list_lines,
    rule_lines,
    short_code_lines,
    transport_lines,
    xid_lines,
)
from fabtui.report.imported_output import diagnosis_lines, finding_lines
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import transport_of

HELP = """\
Explain rules, errors of NCCL or CUDA, Xids, transports, logs and outputs of commands, offline.

examples:
  fabtui explain FT012                         a rule, by code or name
  fabtui explain E13                           an error of the catalogue
  fabtui explain xid 79                        an Xid of NVIDIA's catalogue
  fabtui explain NET/IB/0/GDRDMA               a transport, as NCCL prints it
  fabtui explain NCCL_P2P_LEVEL                a variable of NCCL, with its values
  fabtui explain vendor err 129                CUDA error 401, status=12, errno 110, sxid 12028
  fabtui explain 'ibv_modify_qp failed with error Connection timed out'
  fabtui explain rank*.log                     logs of one job: the earliest cause first
  fabtui explain nvlink.txt dmesg.txt          outputs of commands: what is wrong on the node
  srun ... 2>&1 | fabtui explain -             read standard input
  fabtui explain --list                        all rules and errors

exit codes: 0 explained; 1 unknown, or no failure in a log; 2 bad usage or input
"""

#: Maximum number of characters of a log that are read for facts of the node.
_BEGINNING = 256 * 1024
#: What follows where a text is unknown.
_ANOTHER = "next: give the whole line as it was printed, or a log: fabtui explain FILE; fabtui explain --list has all"
#: Exit code if nothing known was found.
UNKNOWN = 1
_CODE = re.compile(r"(?:FT|E|J)\d{1,4}", re.IGNORECASE)
_XID = re.compile(r"xid[ -]?([0-9]{1,4})", re.IGNORECASE | re.ASCII)
#: The name of a transport as NCCL prints it: ``NET/IB/0/GDRDMA``.
_TRANSPORT = re.compile(r"(?:NET|P2P|SHM|IPC|NVLS|MNNVL|COLLNET)(?:/[\w.:+-]+)*", re.ASCII)
#: A word that names a file rather than being an error text.
_FILE_NAME = re.compile(r"\S*/\S*|\S+\.(?:log|txt|out|err|gz|xz|bz2|zst|zip)")


def execute(args: argparse.Namespace) -> int:
    """Explain rules, errors, texts or logs; return the exit code."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    words = [word for word in getattr(args, "what", []) if word.strip()]
    if "list" in args:
        return _print(list_lines(RULES, explained_errors(), width))
    if not words:
        raise InputError(
            "nothing to explain; fabtui explain CODE, TEXT or FILE..., - for standard input, --list for all codes"
        )
    if (match := _XID.fullmatch(" ".join(words))) is not None:
        number = int(match[1])
        if number not in xids():
            raise InputError(f"Xid {number} is not in NVIDIA's catalogue; see docs/reference/xids.md")
        return _print(xid_lines(number, xids()[number], width))
    if (code := short_code(" ".join(words))) is not None:
        _print(short_code_lines(code, width))
        return 0 if code.known else UNKNOWN
    named = [_entries(word, width) for word in words]
    if any(named):
        for word, entry in zip(words, named, strict=True):
            if not entry:
                raise InputError(f"{one_line(word, 200)}: no such rule or error; see fabtui explain --list")
        return _print([line for entry in named for line in ["", *entry]][1:])
    if any(map(_is_file, words)):
        return _explain_logs(words, width)
    return _explain_text(words, width)


def _entries(word: str, width: int) -> list[str]:
    """Return the lines of the rules and errors with a code or name, separated by empty lines; none if unknown."""
    key = word.lower()
    blocks = [rule_lines(one, width) for one in RULES if key in (one.id.lower(), one.name)]
    blocks += [error_lines(one, width) for one in explained_errors() if key in (one.code.lower(), one.id)]
    if not blocks and (_CODE.fullmatch(word)):
        raise InputError(f"no rule or error has the code {word}; see fabtui explain --list")
    return [line for block in blocks for line in ["", *block]][1:]


def _is_file(word: str) -> bool:
    try:
        return word == "-" or user_path(word).exists()
    except (OSError, ValueError):
        # Too long for a file name: a text.
        return False


def _explain_logs(words: list[str], width: int) -> int:
    reader = LogReader()
    files = 0
    logs = []
    judged: list[str] = []
    others: list[str] = []
    for source in sources(words):
        name = "stdin" if source.name == "-" else source.name
        files += 1
        if source.cut:
            print(f"fabtui: {one_line(name)}: {source.cut}", file=sys.stderr)
        lines, kind = _output_lines(source, width)
        others += lines
        # The kernel's log beside logs of ranks shows what came first.
        is_log = not kind or formats()[kind].errors or (formats()[kind].log and len(words) > 1)
        judged += [] if is_log else [kind]
        if is_log or not (lines or is_ours(kind)):
            logs.append(name)
            reader.add(_whole_lines(source.text))
    if reader.cut:
        print("fabtui: the logs are too long: not all of their lines were examined", file=sys.stderr)
    found = reader.result()
    lines = causes_lines(found, logs, width)
    if found.causes or found.advice:
        return _print([*lines, *others])
    if others:
        return _print([*others[1:], *([""] if lines else []), *lines])
    if found.matters and not found.unknown:
        return _print(lines)
    read_lines = f"{count(reader.lines, 'line')} of {count(files, 'file')}"
    healthy = (reader.informed or judged) and not found.unknown
    what = f"output of {', '.join(dict.fromkeys(judged))}" if judged else "log"
    head = f"no failure in this {what} ({read_lines})" if healthy else f"unknown: no known error in {read_lines}"
    _print([head, *([""] if lines else []), *lines])
    return UNKNOWN


def _whole_lines(text: str) -> str:
    """Return a text with its hard-wrapped lines joined, if at least as many of its errors are known then."""
    if text.count("\n") <= 1 and not text.lstrip().startswith("{"):
        # A value of JSON or of a shell, whose line ends are written as two characters.
        text = text.replace("\\n", "\n")
    joined = unwrapped(text, keep_count=True)
    if joined is None:
        return text
    before, after = LogReader(), LogReader()
    before.add(text)
    after.add(joined.text)
    return joined.text if after.result().known >= before.result().known else text


def _output_lines(source: Source, width: int) -> tuple[list[str], str]:
    """Return the findings about an output that `fabtui read` judges, and its format; no format for any other text."""
    form = recognise(source.text).format
    ours = form is not None and is_ours(form.name)
    if form is None or not (form.facts or form.convert or ours):
        return [], ""
    is_log = form.log and form.errors
    # What a library reports about the node stands at the beginning of its log.
    result = read(source._replace(text=source.text[:_BEGINNING]) if is_log else source, form.name)
    lines = finding_lines(examined(result), width) if form.errors or ours else diagnosis_lines(result, width)
    head = ["", f"{one_line(source.name, 200)}: {form.name}"]
    return [*head, *lines] if lines else [], form.name


def _explain_text(words: list[str], width: int) -> int:
    text = " ".join(words)
    reader = LogReader()
    reader.add(text)
    found = reader.result()
    if found.causes or found.notices or found.advice:
        return _print(causes_lines(found, [""], width))
    if _TRANSPORT.fullmatch(text) and (kind := transport_of(text)).sentence:
        return _print(transport_lines(text, kind, width))
    if file := next(filter(_FILE_NAME.fullmatch, words), None):
        raise InputError(f"cannot read {file}: no such file, and no known error")
    xid = f"; an Xid? fabtui explain xid {text}" if text.isascii() and text.isdecimal() else ""
    following = [] if xid else [_ANOTHER]
    _print([f"unknown: {one_line(text, 1000)}{xid}", *following])
    return UNKNOWN


def _print(lines: list[str]) -> int:
    print_text("".join(f"{line.rstrip()}\n" for line in lines))
    return 0
