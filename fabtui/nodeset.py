"""Node sets such as ``n[060-067,070]``: expand, fold, host files and groups, on top of ClusterShell.

The syntax is ClusterShell's and Slurm's: ranges with padding and steps, several brackets (``r[1-2]n[01-04]``),
``a,b`` (union), ``a!b`` (difference), ``a&b`` (intersection), ``^FILE`` and ``@group``. The order is kept as written.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module

from ClusterShell.RangeSet import RangeSet, RangeSetException

from fabtui.errors import InputError, argument
from fabtui.paths import user_path
from fabtui.sanitize import one_line

#: Maximum number of nodes of a session.
MAX_NODES = 4096
#: Maximum number of names of a node list in an imported file.
MAX_LISTED = 65_536
#: Timeout (s) for group sources: they may run commands of the site (a scheduler, a database) that hang.
GROUP_TIMEOUT = 20.0
_MAX_DEPTH = 8
_MAX_NAME = 253
_MAX_FILE = 4 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_.:%-]+")
#: Group with its source: ClusterShell puts both into shell commands of the site, as they are.
_GROUP = re.compile(r"(?:\w[\w.+-]*:)?(?:\*|\w[\w.+-]*)")
_OPERAND = re.compile(r"(^|[,!&])((?:\[[^\]]*\]?|[^\[,!&])*)", re.DOTALL)
#: Limits the digits: RangeSet creates every number of a range.
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,9}))?)?", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)", re.ASCII | re.DOTALL)
#: Maximum number of ranges of numbers in a text.
_MOST_RANGES = 8


def check_name(name: str, where: str) -> str:
    """Return a host name that is safe on the command line of ssh; InputError with ``where`` it comes from if not."""
    if name.startswith("-"):
        raise InputError(f"{where}: {name!r} begins with '-', which no host name does")
    if "@" in name:
        raise InputError(f"{where}: {name!r} contains a user; set 'User' in your ssh_config (see --ssh-config)")
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise InputError(f"{where}: {name[:80]!r} is not a host name; expected letters, digits, '.', '_', '-'")
    if name.count(":") == 1:
        raise InputError(f"{where}: {name!r} contains a port; set 'Port' in your ssh_config (see --ssh-config)")
    return name


def expand(text: str, where: str, depth: int = 0) -> list[str]:
    """Return the names of a node set in order, without duplicates.

    InputError if the set is malformed, too large, or names a group or file that does not exist; it begins with
    ``where`` (``--nodes``, ``hosts, line 3``). ``depth`` is the nesting depth of groups and files.
    """
    if depth > _MAX_DEPTH:
        raise InputError(f"{where}: groups nested more than {_MAX_DEPTH} deep")
    names: dict[str, None] = {}
    for operator, operand in _OPERAND.findall(text):
        part = operand.strip()
        if not part:
            problem = f"an empty name in {text[:80]!r}" if text.strip() else "empty node set"
            # A variable of Slurm is set within the job only, not on the login node.
            given = not text.strip() and where == argument("nodes")
            job = f"; the nodes of a Slurm job: {argument('jobid')} 4711" if given else ""
            raise InputError(f"{where}: {problem}; expected nodes such as n060,n061 or n[060-067]{job}")
        operands = _operand(part, where, depth)
        if operator == "!":
            names = dict.fromkeys(name for name in names if name not in set(operands))
        elif operator == "&":
            names = dict.fromkeys(name for name in names if name in set(operands))
        else:
            names.update(dict.fromkeys(operands))
        _check_count(len(names), text, where)
    return list(names)


def expand_listed(text: str) -> list[str] | None:
    """Return the names of a node list of Slurm's output; None if it is not one or too large. Reads no file or group."""
    try:
        parts = [_expand_brackets(operand.strip(), "", MAX_LISTED) for _, operand in _OPERAND.findall(text.strip())]
    except InputError:
        return None
    names = list(itertools.chain.from_iterable(parts))
    return names if 0 < len(names) <= MAX_LISTED else None


def fold(names: Iterable[str]) -> str:
    """Return names as a node set, cleaned; names of one pattern together, in the order of their first members.

    Folds the last number only: ClusterShell's NodeSet takes 10 s for 1,024 names with two numbers (``ip-10-0-12-37``).
    """
    return _folded(tuple(names))


@lru_cache(maxsize=64)
def _folded(names: tuple[str, ...]) -> str:
    # A name without a number is a pattern of its own.
    groups: dict[tuple[str, str | None], list[str]] = {}
    for name in dict.fromkeys(one_line(name, _MAX_NAME) for name in names):
        match = _NUMBERED.fullmatch(name)
        groups.setdefault((match[1], match[3]) if match else (name, None), []).extend([match[2]] if match else [])
    return ",".join(
        f"{head}{''.join(numbers) if len(numbers) < 2 else f'[{RangeSet.fromlist(numbers)}]'}{tail or ''}"
        for (head, tail), numbers in groups.items()
    )


def _operand(part: str, where: str, depth: int) -> list[str]:
    if part.startswith("^"):
        if depth:
            raise InputError(f"{where}: {part[:80]!r}: a file may not name another file")
        return read_hosts(part[1:], where)
    if part.startswith("@"):
        return _expand_group(part[1:], where, depth)
    if part.startswith("[") and part.endswith("]") and part.count(":") > 1:
        return [check_name(part[1:-1], where)]
    return _expand_brackets(part, where, MAX_NODES)


def _expand_brackets(part: str, where: str, limit: int) -> list[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", part)
    if any(mark in piece for piece in pieces[::2] for mark in "[]"):
        raise InputError(f"{where}: unbalanced brackets in {part[:80]!r}; expected something like n[060-067,070]")
    axes = [[range_text.strip() for range_text in inside.split(",")] for inside in pieces[1::2]]
    _check_count(math.prod(sum(_size(text, part, where) for text in axis) for axis in axes), part, where, limit)
    numbers = [[number for text in axis for number in _numbers(text, part, where)] for axis in axes]
    heads = pieces[::2]
    return [
        check_name(heads[0] + "".join(map(str.__add__, combination, heads[1:])), where)
        for combination in itertools.product(*numbers)
    ]


def _size(text: str, part: str, where: str) -> int:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: {text[:40]!r} in {part[:80]!r} is not a range; expected 060-067 or 7")
    # At least one: a range that runs backwards is refused when it is read, after the ranges before it.
    return max(1, len(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1)))


def _numbers(text: str, part: str, where: str) -> Iterable[str]:
    try:
        numbers: Iterable[str] = RangeSet(text).striter()
    except RangeSetException as error:
        reason = str(error).partition(" : ")[0]
        raise InputError(
            f"{where}: the range {text!r} in {part[:80]!r} is not valid: {reason}; expected something like 060-067"
        ) from None
    return numbers


def _check_count(count: int, text: str, where: str, limit: int = MAX_NODES) -> None:
    if count > limit:
        raise InputError(f"{where}: {text[:80]!r} is {count} nodes; at most {limit} are possible")


def _expand_group(name: str, where: str, depth: int) -> list[str]:
    if name and (len(name) > _MAX_NAME or not _GROUP.fullmatch(name)):
        raise InputError(f"{where}: '@{name[:80]}' is not a group; expected letters, digits, '_', '.', '-' and '+'")
    results: list[list[str] | Exception] = []

    def resolve() -> None:
        try:
            results.append(_group_sets(name) if name else [])
        except Exception as error:
            results.append(error)

    # A daemon thread: a source that hangs must not keep the process alive.
    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(GROUP_TIMEOUT)
    if not results:
        raise InputError(f"{where}: the source of the group @{name[:80]} did not answer within {GROUP_TIMEOUT:.0f} s")
    if isinstance(results[0], Exception):
        raise InputError(f"{where}: {results[0]}")
    if not results[0]:
        raise InputError(
            f"{where}: the group @{name[:80]} is unknown or empty; groups come from ClusterShell's groups.conf "
            "(`cluset -ll` lists them)"
        )
    return expand(",".join(results[0]), f"{where}: @{name[:80]}", depth + 1)


def _group_sets(name: str) -> list[str]:
    from ClusterShell.NodeSet import std_group_resolver
    from ClusterShell.NodeUtils import GroupResolverError, GroupResolverSourceError

    namespace, _, group = name.rpartition(":")
    source = namespace or None
    try:
        resolver = std_group_resolver()
        members = resolver.all_nodes(source) if group == "*" else resolver.group_nodes(group, source)
        return [str(text) for text in members]
    except GroupResolverSourceError:
        reason = f"there is no group source {source}" if source else "this machine has no group source"
        raise InputError(f"the group @{name[:80]}: {reason} (see /etc/clustershell/groups.conf)") from None
    except GroupResolverError as error:
        raise InputError(f"the group @{name[:80]}: {type(error).__name__.removeprefix('Group')}: {error}") from None


def group_names() -> list[str]:
    """Return the names of the default source's groups, of which there may be none. Blocks: it may run a command."""
    sets, errors = (import_module(f"ClusterShell.{name}") for name in ("NodeSet", "NodeUtils"))
    try:
        names = sorted(map(str, sets.std_group_resolver().grouplist()))
    except (errors.GroupResolverError, errors.GroupSourceError):
        return []
    return [name for name in names if _GROUP.fullmatch(name)]


def read_hosts(path: str, where: str) -> list[str]:
    """Return the nodes of a host file: one node set per line, comments from ``#``.

    What follows the name (``slots=8`` of an MPI host file) is accepted and ignored: inventory finds the endpoints. The
    path ``-`` is standard input. InputError if it cannot be read, is empty, or holds something that is not a node set.
    """
    names: dict[str, None] = {}
    for place, line in list_lines(path, where, "host file"):
        name, *options = line.split()
        for field in options:
            if not re.fullmatch(r"[A-Za-z_-]+=\S*", field):
                raise InputError(f"{place}: {field[:40]!r} after the name; expected slots=8")
        names.update(dict.fromkeys(expand(name, place, depth=1)))
        _check_count(len(names), path, where)
    if not names:
        raise InputError(f"{where}: {_shown(path)} names no node; expected one host per line")
    return list(names)


def list_lines(path: str, where: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a list without comments from ``#``, each after its place for errors; ``-`` is standard input.

    InputError if it cannot be read, or is too large for a list of this ``kind``.
    """
    shown = _shown(path)
    try:
        with sys.stdin.buffer if path == "-" else user_path(path).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise InputError(f"{where}: cannot read {shown}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{where}: {shown[:80]!r} is not the name of a file") from None
    if len(data) > _MAX_FILE:
        raise InputError(f"{where}: {shown} is larger than {_MAX_FILE >> 20} MiB: not a {kind}")
    for number, line in enumerate(data.decode("utf-8", "backslashreplace").splitlines(), 1):
        if text := line.partition("#")[0].strip():
            yield f"{where}: {shown}, line {number}", text


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path


def chosen_nodes(nodes: list[str], hostfiles: list[str], exclude: list[str]) -> list[str]:
    """Return the nodes of all ``--nodes`` and ``--hostfile`` options without those of ``--exclude``, or InputError."""
    included = [name for text in nodes for name in expand(text, argument("nodes"))]
    included += [name for path in hostfiles for name in read_hosts(path, "--hostfile")]
    names = dict.fromkeys(included)
    excluded = [name for text in exclude for name in expand(text, argument("exclude"))]
    # A node spelled differently would be tested despite --exclude. Names that match no node are accepted: people keep
    # lists of nodes to exclude.
    missed = {_spelling(name): name for name in excluded if name not in names}
    for name in names if missed else ():
        if (meant := missed.get(_spelling(name))) is not None:
            raise InputError(
                f"{argument('exclude')}: {meant} is not in the node set, but {name} is; use the same spelling"
            )
    for name in excluded:
        names.pop(name, None)
    if len(names) > MAX_NODES:
        raise InputError(f"{len(names)} nodes in total; at most {MAX_NODES} are possible")
    if not names:
        raise InputError(f"{argument('exclude')} leaves no node")
    return list(names)


def _spelling(name: str) -> str:
    """Return a name without domain and leading zeros."""
    is_address = ":" in name or re.fullmatch(r"[\d.]+", name) is not None
    short = name if is_address else name.partition(".")[0]
    return re.sub(r"0*(\d+)", r"\1", short.lower())


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: ``8-11,16``; of too many ranges the first ones."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in found[:_MOST_RANGES]]
    left = sum(last - first + 1 for first, last in found[_MOST_RANGES:])
    return ",".join(texts) + (f" and {left} more" if left else "")


def count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
