"""Text of rules, of known errors, and of the causes found in logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fabtui.diagnosis.experiment import experiments_text
from fabtui.diagnosis.finding import Rule
from fabtui.diagnosis.knowledge.error_catalogue import Meaning, filled
from fabtui.diagnosis.knowledge.error_numbers import ShortCode
from fabtui.diagnosis.knowledge.log_causes import Causes, LogPlace, Occurrences, stamp_of
from fabtui.diagnosis.knowledge.xids import Xid
from fabtui.nodeset import count
from fabtui.report.text import wrapped
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import Path, Transport, device_of

#: Ends of a pair on which a command runs.
_ENDS = {
    **{("src",): "on the sender", ("dst",): "on the receiver", ("src", "dst"): "on both nodes"},
    ("node",): "on the node",
}
#: Maximum numbers of causes, ranks and unknown warnings that are listed.
_MOST_CAUSES = 5
_MOST_RANKS = 8
_MOST_UNKNOWN = 5


def rule_lines(rule: Rule[Any], width: int) -> list[str]:
    lines = wrapped("", f"{rule.id} {rule.name} ({rule.severity}): {rule.title}", width)
    fields = [("means", rule.description), ("next", rule.next_step), ("tests", experiments_text(rule.experiments))]
    return lines + _fields([*fields, ("exit", rule.exit_note)], width)


def error_lines(meaning: Meaning, width: int) -> list[str]:
    return [f"{meaning.code} {meaning.id}", *_fields([("prints", meaning.prints), *_entry_fields(meaning)], width)]


def _entry_fields(meaning: Meaning) -> list[tuple[str, str]]:
    known = meaning._replace(text=filled(meaning.text, {}), next=filled(meaning.next, {}))
    ends = _by_command((end, filled(command, {})) for end, command in meaning.commands)
    return _meaning_fields(known, [(command, _ENDS[tuple(sorted(on, reverse=True))]) for command, on in ends.items()])


def xid_lines(number: int, xid: Xid, width: int) -> list[str]:
    lines = wrapped("", " ".join(filter(None, [f"Xid {number}", xid.mnemonic, f"({xid.usual})"])), width)
    return lines + _fields([("means", xid.name), ("part", xid.part), ("action", xid.advice)], width)


def transport_lines(name: str, kind: Transport, width: int) -> list[str]:
    direct = "with GPUDirect RDMA: the NIC accesses the memory of the GPU" if kind.path is Path.GPUDIRECT else ""
    lines = wrapped("", f"{name}: {kind.word}", width)
    return lines + _fields([("means", kind.sentence), ("path", direct), ("device", device_of(name))], width)


def short_code_lines(code: ShortCode, width: int) -> list[str]:
    """Return the lines of a short code or word, and of the error that it stands for."""
    entry = f": {code.meaning.code} {code.meaning.id}" if code.meaning else ""
    lines = wrapped("", f"{one_line(code.title, 200)}{entry}", width) + _fields(code.fields, width)
    if code.meaning:
        (_, causes), *rest = _entry_fields(code.meaning)
        lines += _fields([("causes", causes), *rest], width)
    return lines


def list_lines(rules: Sequence[Rule[Any]], errors: Iterable[Meaning], width: int) -> list[str]:
    lines = ["rules:"]
    for rule in sorted(rules, key=lambda one: one.id):
        lines += wrapped(f"  {rule.id}  {rule.name:<24} ", rule.title, width)
    lines += ["", "errors:"]
    for one in sorted(errors, key=lambda one: int(one.code[1:])):
        lines += wrapped(f"  {one.code:<5}  {one.id:<24} ", one.prints, width)
    return lines


def causes_lines(found: Causes, files: Sequence[str], width: int) -> list[str]:
    """Return the lines of the causes in logs: the earliest first, with its consequences below.

    Args:
        found: What the logs show.
        files: Names of the files, "" for a text that is not from a file.
        width: Width of the terminal.
    """
    lines = wrapped("", found.advice, width) if found.advice and not found.causes else []
    for number, one in enumerate(found.causes[:_MOST_CAUSES]):
        title = ("earliest cause" if one.meaning.role == "cause" else "no cause found; earliest consequence", "also")
        lines += ["", *_block(title[number > 0], one, files, width)] if number else _block(title[0], one, files, width)
        if number == 0 and found.consequences:
            lines.append("  consequences:")
            for other in found.consequences:
                lines += wrapped("    ", _summary(other, one.first, files), width)
    if (more := len(found.causes) - _MOST_CAUSES) > 0:
        lines += ["", f"and {count(more, 'other cause')}"]
    if found.behind:
        ranks = ", ".join(f"rank {rank}" for rank in found.behind[:_MOST_RANKS])
        lines += ["", *wrapped("", f"{ranks} completed and enqueued the least work: look there first.", width)]
    if found.unknown:
        lines += [*([""] if lines else []), f"{count(len(found.unknown), 'warning')} not in the catalogue:"]
        for place in found.unknown[:_MOST_UNKNOWN]:
            lines += wrapped("    ", f"{_where(place, files)}{one_line(place.text, 300)}", width)
    normal = (
        []
        if found.several_nodes
        else [one for one in found.notices if one.meaning.cause_if == "several-nodes" and " INFO " in one.first.text]
    )
    for one in found.notices:
        if one not in normal:
            lines += ["", *_block("note", one, files, width)] if lines else _block("note", one, files, width)
    if normal:
        codes = ", ".join(dict.fromkeys(one.meaning.code for one in normal))
        text = f"note: NCCL found no RDMA device ({codes}); within one node it needs none, between nodes it uses TCP"
        lines += [*([""] if lines else []), *wrapped("", text, width)]
    if _mixed(found.causes) or _mixed(found.consequences):
        lines += ["", "Lines of files without time stamps come last in this order."]
    return lines


def _mixed(found: Sequence[Occurrences]) -> bool:
    timed = [one.first.time is not None for one in found]
    return any(timed) and not all(timed)


def _block(title: str, one: Occurrences, files: Sequence[str], width: int) -> list[str]:
    times = f", {one.count} times" if one.count > 1 else ""
    head = f"{title}: {one.meaning.code} {one.meaning.id}{times}{_on(one)}"
    line = _where(one.first, files) + one_line(one.first.text, 300)
    advice = wrapped("  ", one.advice, width) if one.advice else []
    known = one.explained
    here = f"on {one.first.node}" if one.first.node else "there"
    there = f"on {one.peer}" if one.peer else "on the other node"
    places = {("dst",): there, ("src", "dst"): f"{here} and {there}" if one.peer else here}
    ends = _by_command(known.commands)
    commands = [(command, places.get(tuple(sorted(on, reverse=True)), here)) for command, on in ends.items()]
    return [*wrapped("", head, width), *advice, *_fields([("line", line), *_meaning_fields(known, commands)], width)]


def _summary(one: Occurrences, cause: LogPlace, files: Sequence[str]) -> str:
    delay = ""
    if one.first.time and cause.time:
        delay = f", {(one.first.time - cause.time).total_seconds():+.1f} s"
    where = _where(one.first, files).rstrip(": ")
    return f"{one.count} x {one.meaning.code} {one.meaning.id}{_on(one)}{delay}{f', {where}' if where else ''}"


def _on(one: Occurrences) -> str:
    names = list(one.who)
    if not names:
        return ""
    more = f" and {len(names) - _MOST_RANKS} more" if len(names) > _MOST_RANKS else ""
    return f" ({one_line('; '.join(names[:_MOST_RANKS]), 300)}{more})"


def _where(place: LogPlace, files: Sequence[str]) -> str:
    # Other lines have the time of the line before them, for their order alone.
    own = place.time if stamp_of(place.text) else None
    time = f"{own:%m-%d %H:%M:%S.%f}"[:-3] + " " if own else ""
    name = one_line(files[place.file], 200)
    return f"{time}{name}:{place.line}: " if name else time


def _by_command(commands: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    ends: dict[str, list[str]] = {}
    for end, command in commands:
        ends.setdefault(one_line(command, 300), []).append(end)
    return ends


def _meaning_fields(meaning: Meaning, commands: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    shown = [("command", f"{command}  ({place})") for command, place in commands]
    return [("means", one_line(meaning.text, 600)), ("next", one_line(meaning.next, 600)), *shown]


def _fields(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    return [line for name, text in rows if text for line in wrapped(f"  {name:<8} ", text, width)]
