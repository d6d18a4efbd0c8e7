"""Explanations of rules, errors, Xids, transports, texts and logs, and the problems that an output shows; offline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from fabtui.diagnosis.diagnosis import RULES, Diagnosis
from fabtui.diagnosis.experiment import experiments_text
from fabtui.diagnosis.finding import Rule
from fabtui.diagnosis.job.logs import job_rules  # noqa: F401 - registers the rules about jobs
from fabtui.diagnosis.knowledge.error_catalogue import Meaning, filled, of_line
from fabtui.diagnosis.knowledge.error_numbers import ShortCode, short_code
from fabtui.diagnosis.knowledge.failing_line import quotation, reason_of
from fabtui.diagnosis.knowledge.failure_stage import explained_errors, is_stage
from fabtui.diagnosis.knowledge.log_causes import Causes, LogPlace, LogReader, Occurrences, stamp_of
from fabtui.diagnosis.knowledge.xids import xids
from fabtui.diagnosis.preflight.checks import ProbeJudgement
from fabtui.errors import InputError
from fabtui.history import rules  # noqa: F401 - registers the rules about earlier sessions
from fabtui.importers.catalogue import formats, is_ours, recognise
from fabtui.importers.result import USUAL_WIDTHS, Result, parts, read, unwrapped
from fabtui.importers.sources import Source, sources
from fabtui.importers.to_model.dispatch import errors_in, examined, model
from fabtui.nodeset import count
from fabtui.paths import is_file_or_folder
from fabtui.report.document import Block, Entry, Items, Lines, Panel, Paragraph, Table
from fabtui.report.healthy import what_to_do
from fabtui.report.problems import problems
from fabtui.sanitize import one_line
from fabtui_node.parsers.base import Format
from fabtui_node.parsers.lines import log_of_json
from fabtui_node.parsers.nccl.transports import Path, Transport, device_of, transport_of

#: Maximum number of characters of a log that are read for facts of the node.
_BEGINNING = 256 * 1024
#: What to do about a failure of which only its words are known.
_SEARCH = "look for this sentence in the reports of the part that printed it, and read the lines just before it"
#: What to do about a program that waits and reports no failure.
_WAITED = (
    "look at the log and the stack (py-spy dump) of what it waits for, which has the cause; fabtui hang asks a job"
)
#: What follows where a text is unknown.
_ANOTHER = "next: give the whole line as it was printed, or a log: fabtui explain FILE; fabtui explain --list has all"
_CODE = re.compile(r"(?:FT|E|J)\d{1,4}", re.IGNORECASE)
_XID = re.compile(r"xid[ -]?([0-9]{1,4})", re.IGNORECASE | re.ASCII)
#: The name of a transport as libraries print it: ``NET/IB/0/GDRDMA``, ``NET/AWS Libfabric/0``, ``UCX``, ``TCP``.
_TRANSPORT = re.compile(
    r"(?:NET|P2P|SHM|IPC|NVLS|MNNVL|COLLNET)(?:/[\w.:+-]+(?: [\w.:+-]+(?=/))?)*|CUMEM|UCX|TCP|gloo", re.ASCII
)
#: Formats whose readers judge what they read, and what that is.
_JUDGED = {"node-pairs": "pairs", "kubectl-pods": "pods"}
#: Formats that measure a network, and those that show its links.
_BENCHMARKS, _LINKS = ("perftest", "iperf3"), ("ibstat", "ibstatus", "ethtool")
#: Part of the slowest link below which a bandwidth is far below it, and what to do then.
_FAR_BELOW = 0.3
_FASTER = "look which NIC, GID and transport the test took (show_gids, NCCL_DEBUG=INFO), and at the errors of its ports"
#: A word that names a file rather than being an error text.
_FILE_NAME = re.compile(r"\S*/\S*|\S+\.(?:log|txt|out|err|gz|xz|bz2|zst|zip)")
#: Ends of a pair on which a command runs.
_ENDS = {
    **{("src",): "on the sender", ("dst",): "on the receiver", ("src", "dst"): "on both nodes"},
    ("node",): "on the node",
}
#: Maximum numbers of causes, ranks and unknown warnings that are listed.
_MOST_CAUSES = 5
_MOST_RANKS = 8
#: Maximum number of kinds of values that are listed as judged.
_MOST_JUDGED = 3
#: Maximum number of branches of the stacks.
_MOST_BRANCHES = 64
_MOST_UNKNOWN = 5

#: Names of texts, and the texts.
Fields = list[tuple[str, str]]
#: Returns where a command runs, by the ends of a pair.
_PlaceOf = Callable[[tuple[str, ...]], str]


class Explained(NamedTuple):
    """An explanation."""

    blocks: Sequence[Block]  #: Its text.
    known: bool  #: Whether anything known was found.
    notices: Sequence[str] = ()  #: What was not read, one line each.


def explained(words: Sequence[str]) -> Explained:
    """Return what words mean: codes, an error text, or files; InputError for an unknown code or unreadable file."""
    if (entry := _entry(words)) is not None:
        return entry
    if any(map(is_file_or_folder, words)):
        return explained_logs(sources(words))
    meaning = _text(" ".join(words))
    if not meaning.known and (file := next(filter(_FILE_NAME.fullmatch, words), None)):
        raise InputError(f"cannot read {file}: no such file, and no known error")
    return meaning


def explained_text(text: str) -> Explained:
    """Return what a text means, never taken for a file name; InputError for an unknown code."""
    if "\n" in text.strip():
        return explained_logs([Source("text", text)])
    return _entry([text.strip()]) or _text(text.strip())


def listed(known: Sequence[Rule[Any]], errors: Iterable[Meaning]) -> list[Block]:
    by_id = [[rule.id, rule.name, rule.title] for rule in sorted(known, key=lambda rule: rule.id)]
    by_code = [[one.code, one.id, one.prints] for one in sorted(errors, key=lambda one: int(one.code[1:]))]
    return [Table(title, [[""] * 3, *rows], (0, 1, 2)) for title, rows in (("rules:", by_id), ("errors:", by_code))]


def _entry(words: Sequence[str]) -> Explained | None:
    """Return what codes and names of rules and errors mean; None if the words are none."""
    if (match := _XID.fullmatch(" ".join(words))) is not None:
        if (xid := xids().get(number := int(match[1]))) is None:
            raise InputError(f"Xid {number} is not in NVIDIA's catalogue; see docs/reference/xids.md")
        title = " ".join(filter(None, [f"Xid {number}", xid.mnemonic, f"({xid.usual})"]))
        return Explained([_fields(title, [("means", xid.name), ("part", xid.part), ("action", xid.advice)])], True)
    if (code := short_code(" ".join(words))) is not None:
        return Explained([_short_code(code)], code.known)
    named = [_named(word) for word in words]
    if not any(named):
        return None
    for word, blocks in zip(words, named, strict=True):
        if not blocks:
            raise InputError(f"{one_line(word, 200)}: no such rule or error; see fabtui explain --list")
    return Explained([block for blocks in named for block in blocks], True)


def _named(word: str) -> list[Block]:
    key = word.lower()
    blocks: list[Block] = [_rule(one) for one in RULES if key in (one.id.lower(), one.name)]
    blocks += [
        _fields(f"{one.code} {one.id}", [("prints", one.prints), *_meaning(one)])
        for one in explained_errors()
        if key in (one.code.lower(), one.id)
    ]
    if not blocks and (_CODE.fullmatch(word)):
        raise InputError(f"no rule or error has the code {word}; see fabtui explain --list")
    return blocks


class _Speeds(NamedTuple):
    """Bandwidths that a paste shows as measured, and its links (Gb/s), each with its output."""

    measured: tuple[tuple[float, str], ...] = ()
    links: tuple[tuple[float, str], ...] = ()

    def beside(self, other: _Speeds) -> _Speeds:
        return _Speeds(self.measured + other.measured, self.links + other.links)

    def blocks(self) -> Iterator[Block]:
        """Yield what is wrong if the best measurement is far below the slowest link."""
        if not self.measured or not self.links:
            return
        (best, test), (link, shown) = max(self.measured), min(self.links)
        if best < _FAR_BELOW * link:
            words = f"the best of {test} is {best:.3g} Gb/s, beside a link of {link:g} Gb/s ({shown})"
            rows = [("means", f"{words}: the traffic took another way (TCP, another NIC), or the link drops packets")]
            yield _fields("much slower than the link", [*rows, ("next", _FASTER)])


def _speeds(result: Result) -> _Speeds:
    if not result.known:
        return _Speeds()
    form = formats()[result.kind]
    if form.convert is not None and form.name in _BENCHMARKS:
        values = [m.value * 8 for m in model([result]).measurements() if m.unit == "GB/s" and m.value]
        return _Speeds(((max(values), form.name),) if values else ())
    unit = {"Gb/s": 1.0, "Mb/s": 1e-3}.get(form.units.get("rate", form.units.get("speed", "")), 0.0)
    links, left = list[tuple[float, str]](), [result.values] if unit and form.name in _LINKS else []
    while left:
        rows = [
            row for value in left.pop().values() if isinstance(value, list) for row in value if isinstance(row, dict)
        ]
        left += rows
        for row in rows:
            speed = row.get("rate", row.get("speed"))
            up = row.get("state") in (None, "Active") and row.get("link") in (None, "yes")
            links += [(speed * unit, form.name)] if isinstance(speed, (int, float)) and speed > 0 and up else []
    return _Speeds(links=tuple(links))


def explained_logs(given: Iterable[Source]) -> Explained:
    """Return what logs of one job show, and outputs of commands; of several texts, also what came first."""
    texts = iter(given)
    # A folder is one name and several texts, of which two are held.
    first = list(islice(texts, 2))
    reader = LogReader()
    files, talks = 0, False
    logs, notices, judged, outputs = list[str](), list[str](), list[str](), list[Block]()
    speeds = _Speeds()
    for source in chain(first, texts):
        name = "stdin" if source.name == "-" else source.name
        files += 1
        if source.cut:
            notices.append(f"{one_line(name)}: {source.cut}")
        blocks, kind, values, reading = _output(source)
        outputs += blocks
        split = parts(source)
        for one in [*map(read, split)] if len(split) > 1 else [reading] if reading else []:
            speeds = speeds.beside(_speeds(one))
        # The kernel's log beside logs of ranks shows what came first.
        is_log = not kind or formats()[kind].errors or (formats()[kind].log and len(first) > 1)
        judged += [f"{kind}: {values}" if values else ""] if values or not is_log else []
        talks = talks or is_log
        if is_log or not (blocks or is_ours(kind) or formats()[kind].job or kind in _JUDGED):
            logs.append(name)
            reader.add(_whole_lines(source.text))
    if reader.cut:
        notices.append("the logs are too long: not all of their lines were examined")
    result = reader.result()
    causes = [*causes_blocks(result, logs)]
    outputs = [*speeds.blocks(), *outputs]
    if result.causes or result.advice:
        return Explained([*causes, *outputs], True, notices)
    if outputs or (result.matters and not result.unknown):
        return Explained([*outputs, *causes], True, notices)
    read_lines = f"{count(reader.lines, 'line')} of {count(files, 'file')}"
    if judged and all(judged) and not (talks and (result.unknown or result.failing)):
        # Words in a table whose values were judged are not messages.
        head = f"no failure in this output ({read_lines}); judged and well: {'; '.join(dict.fromkeys(judged))}"
        return Explained([Paragraph(head)], False, notices)
    head = f"nothing known in {read_lines}" if judged else f"unknown: no known error in {read_lines}"
    if result.failing is not None or result.unknown:
        return Explained([Paragraph(head + _form_of(result.failing)), *causes], False, notices)
    waits = [*_waits(result, logs)]
    if reader.informed and not judged and not waits:
        head = f"no failure in this log ({read_lines}); where a job hangs that prints none: fabtui hang, or py-spy dump"
    return Explained([*waits, Paragraph(head), *causes], False, notices)


def _form_of(failing: LogPlace | None) -> str:
    """Return what the form or the place of the first failing line shows, to follow a sentence."""
    if failing is None:
        return ""
    if failing.kind is not None:
        kind = of_line(failing.kind, failing.text)
        return f"; by the form of its first failing line: {filled(kind.text, {})}"
    # The place of an exception is all that is known of it.
    where = one_line(failing.printer, 200) if ", in " in failing.printer else ""
    return f"; part that failed: {where}; the cause is not in its words" if where else ""


def reading_blocks(result: Result) -> list[Block]:
    """Return the problems that an output shows; of a log or an unknown text without any, the causes in its lines."""
    blocks = diagnosis_blocks(result)
    if blocks or (result.known and (is_ours(result.kind) or not formats()[result.kind].log)):
        return blocks
    reader = LogReader()
    reader.add(_whole_lines(result.source.text[:_BEGINNING]))
    causes = reader.result()
    return [*causes_blocks(causes._replace(unknown=[]), [""])] if causes.causes or causes.failing else []


def _waits(causes: Causes, files: Sequence[str]) -> Iterator[Block]:
    """Yield the line with which a log without a failure waits."""
    if (place := causes.waits) is not None:
        rows = [("line", _where(place, files) + one_line(place.text, 300)), ("next", _WAITED)]
        yield _fields("no line names a failure; near the end it waits", rows)


def _whole_lines(text: str) -> str:
    """Return a text with its hard-wrapped lines joined, if at least as many of its errors are known then."""
    if text.count("\n") <= 1 and not text.lstrip().startswith("{"):
        # A value of JSON or of a shell, whose line ends are written as two characters.
        text = text.replace("\\n", "\n")
    text = log_of_json(text) or text
    joined = unwrapped(text, keep_count=True)
    if joined is None:
        return text
    before, after = LogReader(), LogReader()
    before.add(text)
    after.add(joined.text)
    apart, together = before.result().known, after.result().known
    # Where no more is known then, only the width of a terminal is proof that lines were cut.
    proven = joined.width in USUAL_WIDTHS
    return joined.text if together > apart or (proven and together == apart) else text


def _output(source: Source) -> tuple[list[Block], str, str, Result | None]:
    """Return findings, format ("" for any other text), what was judged, and values of an output that is known."""
    form = recognise(source.text).format
    ours = form is not None and is_ours(form.name)
    waits = form is not None and (form.job or form.name in _JUDGED)
    if form is None or not (form.facts or form.convert or waits or ours):
        return [], "", "", None
    is_log = form.log and form.errors
    # What a library reports about the node is at the beginning of its log.
    result = read(source._replace(text=source.text[:_BEGINNING]) if is_log else source, form.name)
    if waits:
        return [*_waiting(result)], form.name, _JUDGED.get(form.name, "ranks"), result
    blocks = finding_blocks(examined(result)) if form.errors or ours else diagnosis_blocks(result)
    head = Paragraph(f"{one_line(source.name, 200)}: {form.name}", head=True)
    return [head, *blocks] if blocks else [], form.name, _judged(form, result), result


def _judged(form: Format, result: Result) -> str:
    """Return how many values of an output were judged, by what they are of: ``36 links, 2 gpus``; "" for none."""
    if is_ours(form.name):
        return "values"
    counts: dict[str, int] = {}
    parts: list[Any] = [form.facts(result.values) if form.facts is not None else {}]
    if form.convert is not None:
        counts["measurements"] = sum(1 for _ in model([result]).measurements())
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            for name, value in part.items():
                rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
                # Events of a log are not values that were judged.
                if rows and name not in ("events", "counts"):
                    counts[name] = counts.get(name, 0) + len(rows)
                parts += rows or [value]
    names = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])[:_MOST_JUDGED]
    return ", ".join(f"{counts[name]} {name}" for name in names)


def _waiting(result: Result) -> Iterator[Block]:
    """Yield what a report about a running job shows of the rank that the others wait for."""
    behind = result.values.get("behind")
    problem = result.values.get("problem")
    if behind or result.values.get("hangs") or result.kind == "stacks" or problem:
        rows = [("means", one_line(line, 600)) for line in result.values.get("answer", ())]
        rows += [("next", one_line(line, 300)) for line in result.values.get("next", ())]
        hangs = "the job hangs" if result.values.get("hangs") else "where it waits"
        head = "a rank is behind" if behind else problem or hangs
        yield _fields(f"{head}: {result.title.partition(':')[0]}", rows)
        if tree := [f"  {line}" for line in result.values.get("tree", ())]:
            yield Lines("stacks", tree[:_MOST_BRANCHES])


def diagnosis_blocks(result: Result) -> list[Block]:
    """Return the problems that an output shows: as in the summary of a session, and as ``fabtui explain`` of a log."""
    if not result.known:
        return []
    diagnosis = examined(result)
    errors = errors_in(result, diagnosis)
    causes = [*causes_blocks(errors._replace(unknown=[]), [""])] if errors.causes or errors.notices else []
    findings = finding_blocks(diagnosis)
    # What a line names goes before a finding that only shows a state.
    return [*causes, *findings] if errors.named else [*findings, *causes]


def finding_blocks(diagnosis: Diagnosis) -> list[Block]:
    """Return the findings about an output with what to do: who pasted it has no list of rules to look up."""
    return [*map(_with_advice, (*problems(diagnosis), *what_to_do(diagnosis)))]


def _with_advice(block: Block) -> Block:
    match block:
        case Panel():
            return block._replace(blocks=[*map(_with_advice, block.blocks)])
        case Entry():
            advice = (line for line in block.about[1:] if line != ProbeJudgement.next_step)
            return block._replace(evidence=[*block.evidence, *advice])
    return block


def _text(text: str) -> Explained:
    reader = LogReader()
    reader.add(text)
    result = reader.result()
    if result.causes or result.notices or result.advice:
        return Explained([*causes_blocks(result, [""])], True)
    if _TRANSPORT.fullmatch(text) and (kind := transport_of(text)).sentence:
        return Explained([_transport(text, kind)], True)
    xid = f"; an Xid? fabtui explain xid {text}" if text.isascii() and text.isdecimal() else ""
    return Explained([Items("", [f"unknown: {one_line(text, 1000)}{xid}", *([] if xid else [_ANOTHER])], True)], False)


def causes_blocks(found: Causes, files: Sequence[str]) -> Iterator[Block]:
    """Yield the causes in logs: the earliest first, with its consequences below; "" names a text without a file."""
    if found.advice and not found.causes:
        yield Paragraph(found.advice)
    failing = list(_failing(found.failing, files)) if found.failing and not found.named else []
    first = found.causes[0].first.order if found.causes else None
    if (
        failing
        and not found.part
        and (first is None or found.failing is None or (found.failing.loud >= 3 and found.failing.order < first))
    ):
        yield from failing
    for number, one in enumerate(found.causes[:_MOST_CAUSES]):
        title = "earliest cause" if one.meaning.role == "cause" else "no cause found; earliest consequence"
        if is_stage(one.meaning):
            title = f"part that failed: {one.meaning.text.partition(' failed')[0]}; the cause is not in this text"
        others = [] if number else [_summary(other, one.first, files) for other in found.consequences]
        yield _occurrences("also" if number else title, one, files, [Items("consequences:", others)] if others else [])
    if failing and found.part:
        yield from failing
    if (more := len(found.causes) - _MOST_CAUSES) > 0:
        yield Paragraph(f"and {count(more, 'other cause')}")
    if found.behind:
        ranks = ", ".join(f"rank {rank}" for rank in found.behind[:_MOST_RANKS])
        yield Paragraph(f"{ranks} completed and enqueued the least work: look there first.")
    shown = found.failing if failing else None
    unknown = [one for one in found.unknown if shown is None or (one.file, one.line) != (shown.file, shown.line)]
    if unknown:
        lines = [f"{_where(place, files)}{one_line(place.text, 300)}" for place in unknown[:_MOST_UNKNOWN]]
        yield Items(f"{count(len(unknown), 'warning')} not in the catalogue:", lines)
    normal = [one for one in found.notices if one.meaning.cause_if == "several-nodes" and " INFO " in one.first.text]
    normal = [] if found.several_nodes else normal
    yield from (_occurrences("note", one, files) for one in found.notices if one not in normal)
    if normal:
        codes = ", ".join(dict.fromkeys(one.meaning.code for one in normal))
        text = f"note: NCCL found no RDMA device ({codes}); within one node it needs none, between nodes it uses TCP"
        yield Paragraph(text)
    if _mixed(found.causes) or _mixed(found.consequences):
        yield Paragraph("Lines of files without time stamps come last in this order.")


def _failing(place: LogPlace, files: Sequence[str]) -> Iterator[Block]:
    """Yield the first line that names a failure which no entry explains, with what its words alone show."""
    kind = of_line(place.kind, place.text) if place.kind else None
    rows = [("reason", one_line(reason_of(place.text), 300))]
    rows += [("line", _where(place, files) + quotation(place.text, 600)), ("by", one_line(place.printer, 200))]
    rows += [("advises", place.advice)]
    rows += [("kind", filled(kind.text, {})), ("next", filled(kind.next, {}))] if kind else [("next", _SEARCH)]
    yield _fields("unknown to fabtui: first failing line", rows)


def _mixed(found: Sequence[Occurrences]) -> bool:
    return len({one.first.time is None for one in found}) > 1


def _occurrences(title: str, one: Occurrences, files: Sequence[str], below: Sequence[Block] = ()) -> Panel:
    times = f", {one.count} times" if one.count > 1 else ""
    line = _where(one.first, files) + quotation(one.first.text, 300)
    known = one.explained
    here = f"on {one.first.node}" if one.first.node else "there"
    there = f"on {one.peer}" if one.peer else "on the other node"
    places = {("dst",): there, ("src", "dst"): f"{here} and {there}" if one.peer else here}
    rows = [
        ("reason", one_line(reason_of(one.first.text), 300)),
        ("line", line),
        ("advises", one.first.advice),
        *_meaning_fields(known, known.commands, lambda ends: places.get(ends, here)),
    ]
    advice = [Paragraph(one.advice)] if one.advice else []
    head = f"{title}: {one.meaning.code} {one.meaning.id}{times}{_on(one)}"
    return Panel(head, [*advice, _fields("", rows), *below], whole=True)


def _summary(one: Occurrences, cause: LogPlace, files: Sequence[str]) -> str:
    delay = ""
    if one.first.time and cause.time:
        seconds = (one.first.time - cause.time).total_seconds()
        days = round(abs(seconds) / 86400)
        when = f"{count(days, 'day')} {'later' if seconds > 0 else 'earlier'} (another run?)"
        delay = f", {when if days else f'{seconds:+.1f} s'}"
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


def _rule(rule: Rule[Any]) -> Table:
    rows = [("means", rule.description), ("next", rule.next_step), ("tests", experiments_text(rule.experiments))]
    return _fields(f"{rule.id} {rule.name} ({rule.severity}): {rule.title}", [*rows, ("exit", rule.exit_note)])


def _meaning(meaning: Meaning) -> Fields:
    known = meaning._replace(text=filled(meaning.text, {}), next=filled(meaning.next, {}))
    commands = [(end, filled(command, {})) for end, command in meaning.commands]
    return _meaning_fields(known, commands, _ENDS.__getitem__)


def _transport(name: str, kind: Transport) -> Table:
    direct = "with GPUDirect RDMA: the NIC accesses the memory of the GPU" if kind.path is Path.GPUDIRECT else ""
    rows = [("means", kind.sentence), ("path", direct), ("device", device_of(name))]
    return _fields(f"{name}: {kind.word}", rows)


def _short_code(code: ShortCode) -> Table:
    entry = f": {code.meaning.code} {code.meaning.id}" if code.meaning else ""
    rows = list(code.fields)
    if code.meaning:
        (_, causes), *rest = _meaning(code.meaning)
        rows += [("causes", causes), *rest]
    return _fields(f"{one_line(code.title, 200)}{entry}", rows)


def _meaning_fields(meaning: Meaning, commands: Iterable[tuple[str, str]], place: _PlaceOf) -> Fields:
    ends: dict[str, list[str]] = {}
    for end, command in commands:
        ends.setdefault(one_line(command, 300), []).append(end)
    texts = [f"{command}  ({place(tuple(sorted(on, reverse=True)))})" for command, on in ends.items()]
    known = [("means", one_line(meaning.text, 600)), ("next", one_line(meaning.next, 600))]
    return [*known, *(("command", text) for text in texts)]


def _fields(title: str, rows: Fields) -> Table:
    # The texts of all entries begin in the same column: that behind the longest name.
    return Table(title, [["", ""], *([f"{name:<7}", text] for name, text in rows if text)], (0, 1))
