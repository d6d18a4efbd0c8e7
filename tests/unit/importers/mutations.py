"""Outputs as they are pasted: samples of every format, what happens to them, and values that then contradict.

``python -m tests.unit.importers.mutations`` prints the share that is recognised, for each format and each mutation.
"""

from __future__ import annotations

import collections
import functools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fabtui.importers.catalogue import formats
from fabtui.importers.result import Result, read
from fabtui.importers.sources import Source, _decoded, sources

from . import new_samples
from .places import REAL, SAMPLES, index


class Mutation(NamedTuple):
    """A change to a text on its way to a reader."""

    name: str
    of: Callable[[str], str]
    removes: bool = False  #: True if lines are missing then, so that totals may be smaller.
    letters: bool = False  #: True if letters or digits are others, so that texts may differ in them.


def _lines(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(f"{change(line)}\n" for line in text.splitlines())


def _without_first(count: int) -> Callable[[str], str]:
    def of(text: str) -> str:
        lines = text.strip("\n").split("\n")
        return "\n".join(lines[min(count, len(lines) - 1) :]) + "\n"

    return of


def _part(start: float, end: float) -> Callable[[str], str]:
    """Return what keeps a part of the lines."""

    def of(text: str) -> str:
        lines = text.strip("\n").split("\n")
        kept = lines[int(start * len(lines)) : max(1, int(end * len(lines)))]
        return "\n".join(kept or lines[-1:]) + "\n"

    return of


#: Addresses, identifiers and serial numbers, which people redact.
_PRIVATE = re.compile(
    r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|\b0x[0-9a-fA-F]{12,16}\b|\b[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3,7}\b"
    r"|(?<=GPU-)[0-9a-f-]{36}|\b\d{13}\b"
)


def _redacted(text: str) -> str:
    """Return a text with an x for each digit of what is private; a number remains distinct from a name."""
    return _PRIVATE.sub(lambda found: re.sub(r"(?<!^)[0-9a-fA-F]|^[1-9a-f]", "x", found[0]), text)


def _without_marks(text: str) -> str:
    """Return a text whose comments lost their ``#``; not the lines that we put above and below a recorded output."""
    lines = [line for line in text.splitlines() if not line.startswith("# exit status")]
    lines = lines[1:] if re.match(r"# .{1,300}\(", lines[0]) else lines
    return "".join(f"{line.replace('#', '', 1) if line.lstrip().startswith('#') else line}\n" for line in lines)


OTHER = "total 12\ndrwxr-xr-x 2 root root 4096 Nov 20 10:12 logs\n"
MUTATIONS = (
    Mutation("header dropped", _without_first(1), removes=True),
    Mutation("two lines dropped", _without_first(2), removes=True),
    Mutation("cut at a quarter", _part(0, 0.25), removes=True),
    Mutation("cut at half", _part(0, 0.5), removes=True),
    Mutation("cut at nine tenths", _part(0, 0.9), removes=True),
    Mutation("last half", _part(0.5, 1), removes=True),
    Mutation("lower case", str.lower, letters=True),
    Mutation("redacted", _redacted, letters=True),
    Mutation("another output below", lambda text: f"{text}\n$ ls -l\n{OTHER}"),
    Mutation("another output above", lambda text: f"$ ls -l\n{OTHER}$ ./run\n{text}"),
    Mutation("stamp above", lambda text: f"Thu Nov 20 10:22:41 UTC 2026\n{text}"),
    Mutation("stamp in the first line", lambda text: f"[2026-07-04 10:22:41] {text}"),
    Mutation("prompt above", lambda text: f"[alice@n060 ~]$ ./run.sh\n{text}[alice@n060 ~]$ \n"),
    Mutation("prompt in the first line", lambda text: f"alice@n060:~$ {text}"),
    Mutation("without #", _without_marks),
    Mutation("Windows line ends", lambda text: text.replace("\n", "\r\n")),
    Mutation("UTF-16", lambda text: _decoded(text.encode("utf-16"), None)[0]),
    Mutation("quoted", _lines(lambda line: f"> {line}")),
    Mutation("fenced", lambda text: f"Hi all, what is this?\n\n```\n{text}```\nThanks\n"),
    Mutation(
        "folded at 80", _lines(lambda line: "\n".join(line[at : at + 80] for at in range(0, max(1, len(line)), 80)))
    ),
)
#: A text of fewer lines may keep nothing that identifies it when lines are taken away.
FEW = 8


class Given(NamedTuple):
    """A sample that is recognised as it is."""

    name: str
    text: str
    result: Result


@functools.cache
def given() -> tuple[Given, ...]:
    """Return the samples that are lines of text: ours, samples of new formats, and the real ones if present."""
    texts = {f"{one.kind} {at}": one.text for at, one in enumerate(new_samples.SAMPLES)}
    paths = {
        str(path.relative_to(SAMPLES)): path for path in sorted(SAMPLES.rglob("*.*")) if "fuzzed" not in path.parts
    }
    paths |= {row["file"]: REAL / row["file"] for row in index()}
    for name, path in paths.items():
        if path.suffix in (".txt", ".log", ".xz", ".out"):
            texts[name] = next(sources([str(path)])).text
    found = [Given(name, text, read(Source(name, text))) for name, text in texts.items() if len(text) < 200_000]
    return tuple(
        one
        for one in found
        if one.result.known and not (one.text.lstrip()[:1] in "{[" and one.text.rstrip()[-1:] in "}]")
    )


#: Lines that show nothing of the program that printed them: numbers with their marks, one name, and what a launcher
#: prints at the end of any job.
_ANONYMOUS = re.compile(
    r"[\s\d.,:;|/%+()\[\]{}*x-]*|\W*[\w.,\[\]-]{1,80}\W*|Killing subprocess \d+"
    r"|Main process received SIGTERM, exiting|# exit status \d+",
    re.ASCII,
)


def is_anonymous(text: str) -> bool:
    """Return True if nothing in a text shows what printed it: rows of bare numbers under a heading that is missing."""
    return all(_ANONYMOUS.fullmatch(re.sub(r"<[^<>]*>", "", line)) for line in text.splitlines())


def too_short(mutation: Mutation, text: str) -> bool:
    """Return True if a mutation leaves too little of a text to identify it."""
    left = mutation.of(text)
    return (mutation.removes and left.count("\n") < FEW) or (left != text and is_anonymous(left))


#: Outputs that are left of others: the lines of GPUs above those of their links, the records of a daemon without the
#: one that names it, the log of the library without the table, the log of the kernel without a command's complaint.
LEFT = {
    *((f"nvidia-smi-nvlink-{letter}", "nvidia-smi-L") for letter in "ceRs"),
    *(("imex-log", "fabricmanager-log"), ("nccl-tests", "nccl-log"), ("nvidia-smi", "dmesg")),
}


#: Values that describe the text rather than the machine, or that sum up lines which may be missing.
_OF_TEXT = frozenset(
    {
        *("line", "lines", "first", "last", "printed_by", "time", "complete", "cut", "command", "message", "title"),
        *("answer", "next", "operation_from", "unknown"),
    }
)
#: Values of the first line of an event, which is another line where that one is missing.
_OF_FIRST_LINE = frozenset({"text", "uptime"})
#: Values over all lines, which are others where some are missing.
_OVER_ALL = frozenset({"by_rank", "counts", "elapsed_median", "average", "first_cause", "timers", "class"})
_LINES_MISSING = _OF_FIRST_LINE | _OVER_ALL


def contradictions(value: Any, original: Any, mutation: Mutation, path: str = "") -> Iterator[str]:
    """Yield the values of a mutated text that contradict the same key of the original text.

    An entry of a list agrees if it contradicts nothing in some entry of the original list.
    """
    if isinstance(value, dict) and isinstance(original, dict):
        for name, item in value.items():
            if name in original and name not in _OF_TEXT and not (mutation.removes and name in _LINES_MISSING):
                yield from contradictions(item, original[name], mutation, f"{path}.{name}")
    elif isinstance(value, list) and isinstance(original, list):
        for at, item in enumerate(value):
            places = original[at : at + 1] + original
            if original and all(any(contradictions(item, one, mutation)) for one in places):
                yield f"{path}.{at}: {str(item)[:100]}"
    elif value not in (None, "unknown") and original is not None and not _agree(value, original, mutation):
        yield f"{path}: {str(value)[:60]}, not {str(original)[:60]}"


def _agree(value: Any, original: Any, mutation: Mutation) -> bool:
    if value == original:
        return True
    if mutation.removes:
        # A total of fewer lines, or a text that continues in a line that is missing.
        if isinstance(value, (int, float)) and isinstance(original, (int, float)):
            return isinstance(value, bool) or 0 <= value <= original
        return isinstance(value, str) and isinstance(original, str) and (value in original or original in value)
    if mutation.letters and isinstance(value, str) and isinstance(original, str):
        pattern = re.escape(value.lower()).replace("x", "[0-9a-fx]")
        return re.fullmatch(pattern, original.lower()) is not None
    return False


class Outcome(NamedTuple):
    """Result of reading a mutated sample."""

    given: Given
    mutation: Mutation
    kind: str
    wrong: list[str]

    @property
    def recognised(self) -> bool:
        """True if it is recognised as what it is."""
        return self.kind == self.given.result.kind


def outcome(one: Given, mutation: Mutation) -> Outcome:
    """Return what becomes of a sample."""
    result = read(Source(one.name, mutation.of(one.text)))
    same = result.kind == one.result.kind
    wrong = list(contradictions(result.values, one.result.values, mutation)) if same else []
    return Outcome(one, mutation, result.kind, wrong)


def main() -> None:
    """Print the shares."""
    every = [outcome(one, mutation) for one in given() for mutation in MUTATIONS if not too_short(mutation, one.text)]
    for title in ("format", "mutation"):
        groups: dict[str, list[Outcome]] = collections.defaultdict(list)
        for one in every:
            groups[one.given.result.kind if title == "format" else one.mutation.name].append(one)
        for group, outcomes in sorted(groups.items()):
            share = sum(one.recognised for one in outcomes) / len(outcomes)
            wrong = sum(bool(one.wrong) for one in outcomes)
            print(f"{title} {group:<28} {share:7.1%} of {len(outcomes):4} recognised, {wrong} with a wrong value")
    for one in every:
        if "-v" in sys.argv and (one.wrong or not one.recognised):
            print(f"{one.given.name}: {one.mutation.name}: {one.kind} {one.wrong[:2]}")
    share = sum(one.recognised for one in every) / len(every)
    print(f"all: {share:.1%} of {len(every)}, {sum(bool(one.wrong) for one in every)} with a wrong value")
    print("without a sample:", ", ".join(sorted({*formats()} - {one.result.kind for one in given()})))


if __name__ == "__main__":
    main()
