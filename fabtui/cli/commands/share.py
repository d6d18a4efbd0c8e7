"""``fabtui share``: a copy of a recording or snapshot without names, addresses and serial numbers."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fabtui.atomic_write import check_writable, write_atomically
from fabtui.cli.printing import confirmed
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD, INTERRUPTED
from fabtui.importers.session import read_session
from fabtui.nodeset import count
from fabtui.paths import user_path
from fabtui.presentation.wrapping import aligned
from fabtui.report.document import takes_unicode
from fabtui.sanitize import one_line
from fabtui.sharing.identities import Identities
from fabtui.sharing.rewriter import KINDS, Rewriter
from fabtui.sharing.session_file import SessionFile
from fabtui.sharing.suspect import suspects

HELP = """\
Copy a recording, CSV or JSON with hashes in place of hosts, users, addresses, serial numbers and secrets.

examples:
  fabtui share session.jsonl.gz                show what is replaced, ask, write a copy beside it
  fabtui share session.jsonl.gz -o bug.jsonl.gz --also mysite
  fabtui share pairs.csv --salt "$SECRET" --yes
  fabtui share --check pairs-shared.csv        list what to read once more before you send it

The original is not changed. The copy replays, reads and diagnoses as the original does: n060 becomes for example h071,
with the order and the groups of the names. What might be a name and was not recognised is listed: look at it.

exit codes: 0 the copy was written, or --check lists nothing; 1 it lists something; 2 bad usage or input;
  130 not confirmed
"""

#: Shown of each kind.
_EXAMPLES, _UNKNOWN = 3, 10
_WIDEST = 44
_KEPT = (
    "kept: times, sizes, values, PCI addresses, versions, models, names of interfaces and devices, numbers of jobs, "
    "processes and ports, paths outside of home folders"
)
_UNKNOWABLE = (
    "not knowable: names in small letters within a word (aliceib0), names that only free text has, secrets without a "
    "name or a known form; fabtui share --check COPY lists what still looks like one"
)
_ALIKE = (
    "not checked: private addresses, MAC addresses, GUIDs, UUIDs, serial numbers and hosts without vowels; real ones "
    "look like replaced ones"
)


def execute(args: argparse.Namespace) -> int:
    if args.file == "-":
        raise InputError("share needs the name of a file, not standard input (-)")
    path = user_path(args.file)
    source = SessionFile(path)
    if "check" in args:
        return _check_copy(path, source, args)
    identities = Identities(tuple(getattr(args, "also", ())))
    for value in source.values():
        identities.gather(value)
    rewriter = Rewriter(identities, os.fsencode(getattr(args, "salt", "")) or secrets.token_bytes(32))
    out = user_path(args.out) if "out" in args else _beside(path, rewriter)
    _check(path, out)
    with tempfile.TemporaryDirectory(prefix="fabtui-") as folder:
        # The copy is complete before anybody is asked, so that what is shown is what will be written.
        made = Path(folder) / out.name
        with made.open("wb") as file:
            source.write(rewriter.value, file)
        print("\n".join(_preview(path, source, identities, rewriter)))
        print(_compared(path, made))
        if "yes" not in args and not confirmed(f"Write {out}?", f"{out} is written after a question"):
            print("nothing was written", file=sys.stderr)
            return INTERRUPTED
        with made.open("rb") as file:
            write_atomically(out, lambda target: shutil.copyfileobj(file, target))
    print(f"wrote {out}")
    return 0


def _check_copy(path: Path, source: SessionFile, args: argparse.Namespace) -> int:
    """Print what still looks like an identity or a secret; return the exit code."""
    for option in ("out", "also", "salt", "yes"):
        if option in args:
            raise InputError(f"--{option} does not belong to --check, which writes nothing")
    identities = Identities()
    for value in source.values():
        identities.gather(value)
    rewriter = Rewriter(identities, secrets.token_bytes(32))
    for value in source.values():
        rewriter.value(value)
    named = [
        (KINDS[kind], text, number) for kind, texts in suspects(rewriter).items() for text, number in texts.items()
    ]
    named += [("may name something", text, number) for text, number in rewriter.unknown.most_common()]
    rows = [[kind, one_line(text, 200), str(number)] for kind, text, number in named]
    print(f"{one_line(path.name)}: {source.kind}; {count(len(rows), 'text')} that may be an identity or a secret")
    for line in aligned([["kind", "text", "places"], *rows], (0, 1)) if rows else ():
        print(line)
    print(*_free(identities), _ALIKE, sep="\n")
    return BAD if rows else ALL_OK


def _beside(path: Path, rewriter: Rewriter) -> Path:
    """Return the path of the copy: names of recordings begin with names of nodes."""
    stem, dot, ends = path.name.partition(".")
    return path.with_name(f"{rewriter.text(stem)}-shared{dot}{ends}")


def _check(path: Path, out: Path) -> None:
    if os.path.lexists(out):
        own = out.exists() and out.samefile(path)
        what = "the file to share" if own else "already there"
        raise InputError(f"--out: {out} is {what} and is not overwritten; choose another name")
    check_writable(out, "--out")


def _preview(path: Path, source: SessionFile, identities: Identities, rewriter: Rewriter) -> Iterator[str]:
    arrow = "\u2192" if takes_unicode(sys.stdout) else "->"
    yield f"{one_line(path.name)}: {source.kind}"
    rows = [["replaced", "names", "places", "examples"]]
    for kind, title in KINDS.items():
        made = rewriter.made[kind]
        if made:
            first = [f"{_short(real)} {arrow} {_short(made[real])}" for real in sorted(made)[:_EXAMPLES]]
            rows.append([title, str(len(made)), str(rewriter.replaced[kind].total()), first[0]])
            rows += [["", "", "", more] for more in first[1:]]
    if len(rows) > 1:
        yield from aligned(rows, (0, 3))
    else:
        yield "nothing to replace was recognised"
    if rewriter.unknown:
        yield from _unknown(rewriter.unknown)
    yield from _free(identities)
    yield _KEPT
    yield _UNKNOWABLE
    if source.damage:
        yield source.damage


def _free(identities: Identities) -> Iterator[str]:
    for what, number in identities.free.items():
        where = count(number, "place")
        yield f"free text ({what}) in {where}: names that no field holds remain; read it before you share it"


def _unknown(unknown: Counter[str]) -> Iterator[str]:
    yield f"not recognised, kept: {count(len(unknown), 'text')} that may name something (--also WORD replaces a word):"
    for text, number in unknown.most_common(_UNKNOWN):
        yield f"  {_short(text)} ({count(number, 'place')})"
    if len(unknown) > _UNKNOWN:
        yield f"  and {len(unknown) - _UNKNOWN} more"


def _short(text: str) -> str:
    return one_line(text, _WIDEST)


def _compared(path: Path, made: Path) -> str:
    try:
        sessions = (diagnose(read_session(str(each))) for each in (path, made))
        before, after = (Counter(one.rule.id for one in session.findings) for session in sessions)
    except InputError as error:
        return f"findings were not compared: {one_line(str(error), 200)}"
    if before == after:
        return f"the copy reads back with the same {count(before.total(), 'finding')}"
    differ = ", ".join(sorted(rule for rule in before | after if before[rule] != after[rule]))
    return f"THE COPY LEADS TO OTHER FINDINGS: {differ}"
