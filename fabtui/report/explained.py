"""Explanations of rules, errors, Xids, transports, texts and logs; offline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

from fabtui.diagnosis.diagnosis import RULES
from fabtui.diagnosis.knowledge.error_numbers import short_code
from fabtui.diagnosis.knowledge.failure_stage import explained_errors
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.knowledge.xids import xids
from fabtui.errors import InputError
from fabtui.history import rules  # noqa: F401 - registers the rules about earlier sessions
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
    rule_lines,
    short_code_lines,
    transport_lines,
    xid_lines,
)
from fabtui.report.imported_output import diagnosis_lines, finding_lines
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import transport_of

#: Maximum number of characters of a log that are read for facts of the node.
_BEGINNING = 256 * 1024
#: What follows where a text is unknown.
_ANOTHER = "next: give the whole line as it was printed, or a log: fabtui explain FILE; fabtui explain --list has all"
_CODE = re.compile(r"(?:FT|E|J)\d{1,4}", re.IGNORECASE)
_XID = re.compile(r"xid[ -]?([0-9]{1,4})", re.IGNORECASE | re.ASCII)
#: The name of a transport as libraries print it: ``NET/IB/0/GDRDMA``, ``NET/AWS Libfabric/0``, ``UCX``, ``TCP``.
_TRANSPORT = re.compile(
    r"(?:NET|P2P|SHM|IPC|NVLS|MNNVL|COLLNET)(?:/[\w.:+-]+(?: [\w.:+-]+(?=/))?)*|CUMEM|UCX|TCP|gloo", re.ASCII
)
#: A word that names a file rather than being an error text.
_FILE_NAME = re.compile(r"\S*/\S*|\S+\.(?:log|txt|out|err|gz|xz|bz2|zst|zip)")


class Explained(NamedTuple):
    """An explanation."""

    lines: list[str]  #: Its text.
    known: bool  #: Whether anything known was found.
    notices: Sequence[str] = ()  #: What was not read, one line each.


def explained(words: Sequence[str], width: int) -> Explained:
    """Return what the words of a command mean: codes, an error text, or names of files.

    Raises:
        InputError: A code is unknown, or a file cannot be read.
    """
    if (found := explained_word(words, width)) is not None:
        return found
    if any(map(_is_file, words)):
        return explained_logs(sources(words), width)
    found = _text(words, width)
    if not found.known and (file := next(filter(_FILE_NAME.fullmatch, words), None)):
        raise InputError(f"cannot read {file}: no such file, and no known error")
    return found


def explained_text(text: str, width: int) -> Explained:
    """Return what a text means, which is never taken for the name of a file: a code, an error text, or a log.

    Raises:
        InputError: A code is unknown.
    """
    if "\n" in text.strip():
        return explained_logs([Source("text", text)], width)
    return explained_word([text.strip()], width) or _text([text.strip()], width)


def explained_word(words: Sequence[str], width: int) -> Explained | None:
    """Return what codes and names of rules and errors mean; None if the words are none.

    Raises:
        InputError: A code is unknown.
    """
    if (match := _XID.fullmatch(" ".join(words))) is not None:
        number = int(match[1])
        if number not in xids():
            raise InputError(f"Xid {number} is not in NVIDIA's catalogue; see docs/reference/xids.md")
        return Explained(xid_lines(number, xids()[number], width), True)
    if (code := short_code(" ".join(words))) is not None:
        return Explained(short_code_lines(code, width), code.known)
    named = [_entries(word, width) for word in words]
    if not any(named):
        return None
    for word, entry in zip(words, named, strict=True):
        if not entry:
            raise InputError(f"{one_line(word, 200)}: no such rule or error; see fabtui explain --list")
    return Explained([line for entry in named for line in ["", *entry]][1:], True)


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


def explained_logs(given: Iterable[Source], width: int) -> Explained:
    """Return what logs of one job show, and outputs of commands; of several texts, also what came first."""
    texts = iter(given)
    # A folder is one name and several texts, of which two are held.
    first = list(islice(texts, 2))
    several = len(first) > 1
    reader = LogReader()
    files = 0
    logs = []
    notices: list[str] = []
    judged: list[str] = []
    others: list[str] = []
    for source in chain(first, texts):
        name = "stdin" if source.name == "-" else source.name
        files += 1
        if source.cut:
            notices.append(f"{one_line(name)}: {source.cut}")
        lines, kind = _output_lines(source, width)
        others += lines
        # The kernel's log beside logs of ranks shows what came first.
        is_log = not kind or formats()[kind].errors or (formats()[kind].log and several)
        judged += [] if is_log else [kind]
        if is_log or not (lines or is_ours(kind)):
            logs.append(name)
            reader.add(_whole_lines(source.text))
    if reader.cut:
        notices.append("the logs are too long: not all of their lines were examined")
    found = reader.result()
    lines = causes_lines(found, logs, width)
    if found.causes or found.advice:
        return Explained([*lines, *others], True, notices)
    if others:
        return Explained([*others[1:], *([""] if lines else []), *lines], True, notices)
    if found.matters and not found.unknown:
        return Explained(lines, True, notices)
    read_lines = f"{count(reader.lines, 'line')} of {count(files, 'file')}"
    healthy = (reader.informed or judged) and not found.unknown
    what = f"output of {', '.join(dict.fromkeys(judged))}" if judged else "log"
    head = f"no failure in this {what} ({read_lines})" if healthy else f"unknown: no known error in {read_lines}"
    return Explained([head, *([""] if lines else []), *lines], False, notices)


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
    # What a library reports about the node is at the beginning of its log.
    result = read(source._replace(text=source.text[:_BEGINNING]) if is_log else source, form.name)
    lines = finding_lines(examined(result), width) if form.errors or ours else diagnosis_lines(result, width)
    head = ["", f"{one_line(source.name, 200)}: {form.name}"]
    return [*head, *lines] if lines else [], form.name


def _text(words: Sequence[str], width: int) -> Explained:
    text = " ".join(words)
    reader = LogReader()
    reader.add(text)
    found = reader.result()
    if found.causes or found.notices or found.advice:
        return Explained(causes_lines(found, [""], width), True)
    if _TRANSPORT.fullmatch(text) and (kind := transport_of(text)).sentence:
        return Explained(transport_lines(text, kind, width), True)
    xid = f"; an Xid? fabtui explain xid {text}" if text.isascii() and text.isdecimal() else ""
    following = [] if xid else [_ANOTHER]
    return Explained([f"unknown: {one_line(text, 1000)}{xid}", *following], False)
