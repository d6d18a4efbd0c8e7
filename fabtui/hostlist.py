"""Lists of nodes as users of Slurm and ClusterShell write them.

``n[060-067,070]``, several axes (``r[1-2]n[01-04]``), steps (``n[0-10/2]``), several sets separated by commas, ``a!b``
(a without b), ``a&b`` (both), ``^FILE`` and ``@group``. The order is kept as written, doubles go, and how many nodes a
set stands for is known before any name is made.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fabtui.errors import InputError

#: More nodes than this are refused; the grid is made for fewer.
MOST_NODES = 4096
_LONGEST_NAME = 253
_NAME = re.compile(r"[A-Za-z0-9_.:%-]+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,9}))?)?", re.ASCII)
#: Group sources may ask programs of the site (a scheduler, a database), which may hang.
GROUP_DEADLINE = 20.0
_DEEPEST = 8


class _Range(NamedTuple):
    start: int
    stop: int
    step: int
    width: int

    def __len__(self) -> int:
        return (self.stop - self.start) // self.step + 1

    def texts(self) -> Iterator[str]:
        for number in range(self.start, self.stop + 1, self.step):
            yield f"{number:0{self.width}d}"


def check_name(name: str, where: str) -> str:
    """Return a host name that is safe to hand to ssh.

    Args:
        name: The name.
        where: Where it came from, for the error.

    Raises:
        InputError: It is not a host name.
    """
    if name.startswith("-"):
        raise InputError(f"{where}: {name!r} begins with '-', which no host name does")
    if "@" in name:
        raise InputError(f"{where}: {name!r} has a user in it; put 'User' into your ssh_config (see --ssh-config)")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InputError(f"{where}: {name[:80]!r} is not a host name; expected letters, digits, '.', '_', '-'")
    if name.count(":") == 1:
        raise InputError(f"{where}: {name!r} has a port in it; put 'Port' into your ssh_config (see --ssh-config)")
    return name


def expand(text: str, where: str, depth: int = 0) -> list[str]:
    """Return the names a set of nodes stands for, in its order, without doubles.

    Args:
        text: The set.
        where: Where it came from, for errors (``--nodes``, ``hosts, line 3``).
        depth: How many groups and files deep this set was found.

    Raises:
        InputError: The set is malformed, too large, or names a group or a file that is not there.
    """
    if depth > _DEEPEST:
        raise InputError(f"{where}: groups within groups, more than {_DEEPEST} deep")
    names: dict[str, None] = {}
    for operator, operand in _operands(text, where):
        found = _operand(operand, where, depth)
        if operator == "!":
            for name in found:
                names.pop(name, None)
        elif operator == "&":
            both = set(found)
            names = {name: None for name in names if name in both}
        else:
            names.update(dict.fromkeys(found))
        if len(names) > MOST_NODES:
            raise _too_many(where, text, len(names))
    return list(names)


def _operands(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a set, each with the sign before it."""
    inside = False
    operator = ","
    start = 0
    for at, sign in enumerate(text):
        if sign == "[":
            if inside:
                raise InputError(f"{where}: '[' within brackets in {text[:80]!r}")
            inside = True
        elif sign == "]":
            if not inside:
                raise InputError(f"{where}: ']' without '[' in {text[:80]!r}")
            inside = False
        elif sign in ",!&" and not inside:
            yield operator, _present(text[start:at], text, where)
            operator, start = sign, at + 1
    if inside:
        raise InputError(f"{where}: '[' without ']' in {text[:80]!r}; expected something like n[060-067,070]")
    yield operator, _present(text[start:], text, where)


def _present(part: str, text: str, where: str) -> str:
    part = part.strip()
    if not part:
        what = "empty" if not text.strip() else f"an empty name in {text[:80]!r}"
        raise InputError(f"{where}: {what}; expected nodes such as n060,n061 or n[060-067]")
    return part


def _operand(part: str, where: str, depth: int) -> list[str]:
    if part.startswith("^"):
        if depth:
            raise InputError(f"{where}: {part[:80]!r}: a file may not name another file")
        return read_hosts(part[1:], where)
    if part.startswith("@"):
        return _group(part[1:], where, depth)
    if part.startswith("[") and part.endswith("]") and part.count(":") > 1:
        return [check_name(part[1:-1], where)]
    return _expand_brackets(part, where)


def _expand_brackets(part: str, where: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    if len(pieces) == 1:
        return [check_name(part, where)]
    axes = [_ranges(inside, part, where) for inside in pieces[1::2]]
    count = 1
    for axis in axes:
        count *= sum(map(len, axis))
    if count > MOST_NODES:
        raise _too_many(where, part, count)
    names = [pieces[0]]
    for axis, after in zip(axes, pieces[2::2], strict=True):
        names = [name + text + after for name in names for numbers in axis for text in numbers.texts()]
    return [check_name(name, where) for name in names]


def _ranges(inside: str, part: str, where: str) -> list[_Range]:
    ranges = []
    for text in inside.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise InputError(f"{where}: {text[:40]!r} in {part[:80]!r} is not a range; expected 060-067 or 7")
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        if int(first) > int(last):
            raise InputError(f"{where}: the range {text!r} in {part[:80]!r} runs backwards")
        if step < 1:
            raise InputError(f"{where}: the step of {text!r} in {part[:80]!r} is 0")
        padded = max(first, last, key=lambda number: number.startswith("0") and len(number) > 1)
        is_padded = padded.startswith("0") and len(padded) > 1
        if is_padded and len(first) != len(last):
            raise InputError(f"{where}: {text!r} in {part[:80]!r} is padded with zeros on one side only")
        ranges.append(_Range(int(first), int(last), step, len(padded) if is_padded else 0))
    return ranges


def _too_many(where: str, text: str, count: int) -> InputError:
    return InputError(f"{where}: {text[:80]!r} is {count} nodes; at most {MOST_NODES} are possible")


def _group(name: str, where: str, depth: int) -> list[str]:
    parts = _within_deadline(lambda: _group_sets(name), where, name) if name else []
    if not parts:
        raise InputError(
            f"{where}: the group @{name[:80]} is unknown or empty; groups come from ClusterShell's groups.conf "
            "(`cluset -ll` shows them)"
        )
    return expand(",".join(parts), f"{where}: @{name[:80]}", depth + 1)


def _group_sets(name: str) -> list[str]:
    """Ask ClusterShell's group sources, which hand out sets that are not expanded yet."""
    from ClusterShell.NodeSet import std_group_resolver
    from ClusterShell.NodeUtils import GroupResolverError, GroupResolverSourceError

    namespace, colon, group = name.rpartition(":")
    source = namespace if colon else None
    try:
        resolver = std_group_resolver()
        if group == "*":
            return [str(text) for text in resolver.all_nodes(source)]
        return [str(text) for text in resolver.group_nodes(group, source)]
    except GroupResolverSourceError:
        what = f"there is no group source {source}" if source else "no group source is set up on this machine"
        raise InputError(f"the group @{name[:80]}: {what} (/etc/clustershell/groups.conf names them)") from None
    except GroupResolverError as error:
        raise InputError(f"the group @{name[:80]}: {type(error).__name__.removeprefix('Group')}: {error}") from None


def _within_deadline(ask: Callable[[], list[str]], where: str, name: str) -> list[str]:
    import threading

    answers: list[list[str]] = []
    errors: list[Exception] = []

    def asked() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=asked, daemon=True)
    thread.start()
    thread.join(GROUP_DEADLINE)
    if errors:
        raise InputError(f"{where}: {errors[0]}")
    if not answers:
        raise InputError(f"{where}: the source of the group @{name[:80]} did not answer within {GROUP_DEADLINE:.0f} s")
    return answers[0]


def read_hosts(path: str, where: str) -> list[str]:
    """Return the nodes of a hostfile: one set of nodes a line, comments from ``#``.

    What follows the name on a line (``slots=8`` of an MPI hostfile) is accepted and not used: how many endpoints a node
    has is what is found on it.

    Args:
        path: The file, or ``-`` for standard input.
        where: The option that named it, for errors.

    Raises:
        InputError: It cannot be read, is empty, or names no valid node somewhere.
    """
    shown = "standard input" if path == "-" else path
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1) if path == "-" else _read(Path(path).expanduser())
    except OSError as error:
        raise InputError(f"{where}: cannot read {shown}: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{where}: {shown} is larger than {_MOST_BYTES >> 20} MiB: not a list of hosts")
    names: dict[str, None] = {}
    for number, line in enumerate(data.decode("utf-8", "backslashreplace").splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        for field in fields[1:]:
            if not re.fullmatch(r"[A-Za-z_-]+=\S*", field):
                raise InputError(f"{where}: {shown}, line {number}: {field[:40]!r} after the name; expected slots=8")
        names.update(dict.fromkeys(expand(fields[0], f"{where}: {shown}, line {number}", depth=1)))
        if len(names) > MOST_NODES:
            raise _too_many(where, shown, len(names))
    if not names:
        raise InputError(f"{where}: {shown} names no node; expected one host a line")
    return list(names)


_MOST_BYTES = 4 * 1024 * 1024


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _spelling(name: str) -> str:
    """Return what names of one node have in common: no domain, and numbers without leading zeros."""
    short = name if _is_address(name) else name.partition(".")[0]
    return re.sub(r"0*(\d+)", r"\1", short.lower())


def _is_address(name: str) -> bool:
    return ":" in name or re.fullmatch(r"[\d.]+", name) is not None


def _check_left_out(left_out: Iterable[str], names: Collection[str]) -> None:
    """Refuse a node to leave out that is among the nodes in another spelling: it would be tested all the same.

    Names that are not among the nodes at all are no mistake: people keep lists of nodes to leave out.
    """
    missed = {_spelling(name): name for name in left_out if name not in names}
    for name in names if missed else ():
        if (meant := missed.get(_spelling(name))) is not None:
            raise InputError(
                f"--exclude: {meant} is none of the nodes, but {name} is; write it as it stands in the list"
            )


def chosen_nodes(nodes: list[str], hostfiles: list[str], exclude: list[str]) -> list[str]:
    """Return the nodes of all ``--nodes`` and ``--hostfile`` options, without those of ``--exclude``.

    Raises:
        InputError: Something of it is malformed, or nothing is left.
    """
    names: dict[str, None] = {}
    for text in nodes:
        names.update(dict.fromkeys(expand(text, "--nodes")))
    for path in hostfiles:
        names.update(dict.fromkeys(read_hosts(path, "--hostfile")))
    left_out = [name for text in exclude for name in expand(text, "--exclude")]
    _check_left_out(left_out, names)
    for name in left_out:
        names.pop(name, None)
    if len(names) > MOST_NODES:
        raise InputError(f"{len(names)} nodes in all; at most {MOST_NODES} are possible")
    if not names:
        raise InputError("--exclude leaves no node")
    return list(names)
