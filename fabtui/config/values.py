"""Parsers of option values: sizes, times, counts, lists and files.

Each takes the text of a value and the name of the option. For a text that is not such a value or is out of range, it
raises InputError: one line that names the option.
"""

from __future__ import annotations

import calendar
import contextlib
import difflib
import math
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fabtui.errors import InputError, argument
from fabtui.model.layers import COLLECTIVES
from fabtui.nodeset import list_lines
from fabtui.paths import RECORDING, shipped_recordings_folder, user_path
from fabtui.sanitize import one_line
from fabtui_node.probes.network.perftest_options import checked
from fabtui_node.registry import DEFAULT, OPTIONAL, PREFLIGHT, PROBES

if TYPE_CHECKING:
    from pathlib import Path

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)(b?)", re.ASCII | re.IGNORECASE)
_AGO = re.compile(r"(\d{1,4})\s*([hdwmy])", re.ASCII | re.IGNORECASE)
#: Days of each unit of a time ago.
_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_ENDPOINT = re.compile(r"[^\s:>][^\s>]*:[0-9]{1,4}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Range of message sizes (bytes); messages consist of 4-byte floats.
SMALLEST = 4
LARGEST = 1 << 36
#: The layers of pairs that can be tested.
PAIR_LAYERS = ("world", "p2p")
_MAX_ARMS = 8
#: Largest group of ranks, and number of groups that --groups takes.
_MAX_RANKS, _MAX_GROUPS = 1 << 20, 32
_MAX_VALUE = 200

#: Takes the text, or the texts of an option that can be repeated, and the name of the option for errors.
Parser = Callable[[Any, str], Any]
#: Launchers by name. Only kubectl, docker and podman were tried.
LAUNCHERS = {
    "kubectl": "kubectl exec -i {node} --",
    "docker": "docker exec -i {node}",
    "podman": "podman exec -i {node}",
    "enroot": "enroot exec {node}",
    "apptainer": "apptainer exec instance://{node}",
    "flux": "flux exec --rank={node}",
}


def number(parse: Callable[..., Any], *bounds: float) -> Parser:
    return lambda text, option: parse(text, option, *bounds)


def size(text: str, option: str) -> int:
    """Return a number of bytes: ``256M`` and ``256MiB`` are powers of 1024 (as in nccl-tests), ``256MB`` of 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{option}: {text[:40]!r} is not a size; expected 256M, 4MiB or 1G")
    number, prefix, binary, byte = match.groups()
    base = 1000 if byte and prefix and not binary else 1024
    count = float(number) * base ** _POWER[prefix.lower()]
    if count != int(count) or int(count) % 4:
        raise InputError(f"{option}: {text[:40]!r} is not a multiple of 4 bytes")
    if not SMALLEST <= count <= LARGEST:
        raise InputError(f"{option}: {text[:40]!r} is out of range; from {SMALLEST} bytes to {LARGEST >> 30}G")
    return int(count)


def sizes(text: str, option: str, most: int) -> tuple[int, ...]:
    """Return message sizes, ascending: ``8M,256M``, ``8-1G`` (each twice the one before) or ``8-1G:4`` (four times).

    A range ends with the last size that is not above its end, as in nccl-tests. More than ``most`` sizes are an error.
    """
    known: set[int] = set()
    for part in text.split(","):
        if not part.strip():
            raise InputError(f"{option}: an empty size in {text[:40]!r}; expected 8M,256M or 8-1G:4")
        known.update(_range(part, option) if "-" in part or ":" in part else [size(part, option)])
        if len(known) > most:
            raise InputError(f"{option}: more than {most} sizes; use fewer, or a larger factor, such as 8-1G:4")
    return tuple(sorted(known))


def _range(text: str, option: str) -> list[int]:
    ends, colon, by = text.partition(":")
    first, dash, last = ends.partition("-")
    if not dash or not first.strip() or not last.strip():
        raise InputError(f"{option}: {text[:40]!r} is not a range of sizes; expected 8-1G or 8-1G:4")
    low, high = size(first, option), size(last, option)
    if low > high:
        raise InputError(f"{option}: {text[:40]!r} ends before it begins")
    factor = count(by, option, 2, 1024) if colon else 2
    ascending = [low]
    while ascending[-1] * factor <= high:
        ascending.append(ascending[-1] * factor)
    return ascending


def seconds(text: str, option: str, least: float, most: float) -> float:
    """Return a time in seconds; a trailing ``s`` is allowed."""
    value = _decimal(text.strip().removesuffix("s"))
    if not least <= value <= most:
        raise InputError(f"{option}: {text[:40]!r} is not a time from {least:g} to {most:.0f} seconds")
    return value


def since(text: str, option: str) -> float:
    """Return a time (epoch seconds): a date in UTC, or how long ago: ``2026-09-01``, ``30d``, ``2w``, ``1y``."""
    if found := _AGO.fullmatch(text.strip()):
        return max(0.0, time.time() - int(found[1]) * _DAYS[found[2].lower()] * 86400)
    with contextlib.suppress(ValueError, OverflowError):
        return calendar.timegm(time.strptime(text.strip(), "%Y-%m-%d"))
    raise InputError(f"{option}: {text[:40]!r} is neither a date such as 2026-09-01 nor a time such as 30d, 2w or 1y")


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def count(text: str, option: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not least <= int(text) <= most:
        raise InputError(f"{option}: {text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def group_sizes(text: str, option: str) -> tuple[int, ...]:
    """Return ascending numbers of ranks: ``2,4,8``."""
    counts = {count(part, option, 2, _MAX_RANKS) for part in text.split(",")}
    if len(counts) > _MAX_GROUPS:
        raise InputError(f"{option}: {len(counts)} numbers; at most {_MAX_GROUPS}")
    return tuple(sorted(counts))


def ratio(text: str, option: str, least: float, most: float) -> float:
    value = _decimal(text)
    if not least <= value <= most:
        raise InputError(f"{option}: {text[:40]!r} is not a number from {least:g} to {most:g}")
    return value


def percentage(text: str, option: str) -> float:
    """Return a percentage as a share: ``40`` and ``40%`` are 0.4."""
    value = _decimal(text.strip().removesuffix("%"))
    if not 0 <= value <= 100:
        raise InputError(f"{option}: {text[:40]!r} is not a percentage from 0 to 100")
    return value / 100


def names(texts: Iterable[str]) -> list[str]:
    return [name.strip() for name in ",".join(texts).split(",")]


def nearest(name: str, known: Sequence[str]) -> str:
    """Return ``; did you mean x?`` for the most similar known name, or nothing."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else ""


def listed(texts: Iterable[str], known: Sequence[str], option: str, kind: str, more: str = "") -> tuple[str, ...]:
    """Return the names of comma-separated lists, in the order of ``known``."""
    wanted = names(texts)
    for name in wanted:
        if name not in known:
            problem = f"unknown {kind} {name[:40]!r}" if name else "an empty name"
            # A whole list hides the name that was meant.
            others = nearest(name, known) or f"; there are {', '.join(known)}"
            raise InputError(f"{option}: {problem}{others}{more}")
    return tuple(name for name in known if name in wanted)


def probes(texts: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the probes of a list; ``all`` stands for those that run by default."""
    wanted = [probe for name in names(texts) for probe in (DEFAULT if name == "all" else (name,))]
    return listed(wanted, (*DEFAULT, *OPTIONAL), option, "probe", "; or all (see fabtui probes)")


def passive_probes(asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the probes of a session that only reads: those asked for, else those of a preflight.

    Raises:
        InputError: One that is asked for is not passive.
    """
    chosen = PREFLIGHT if asked is None else asked
    if other := [name for name in chosen if name not in PROBES or not PROBES[name].passive]:
        raise InputError(f"--read-only runs passive probes only, and these are not: {', '.join(other)} (fabtui probes)")
    return chosen


def layers(texts: Sequence[str], option: str) -> tuple[str, ...]:
    return listed(texts, PAIR_LAYERS, option, "layer")


def collectives(texts: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the collectives of a list; ``all`` stands for all of them."""
    known = tuple(COLLECTIVES)
    if names(texts) == ["all"]:
        return known
    return listed(texts, known, option, "collective", "; or all")


def pairs(texts: Sequence[str], option: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of endpoints: ``n060:3>n061:5``."""
    return tuple(_pair(text, option) for text in texts)


def _pair(text: str, where: str) -> tuple[str, str]:
    ends = [end.strip() for end in text.split(">")]
    if len(ends) != 2 or not all(_ENDPOINT.fullmatch(end) for end in ends) or ends[0] == ends[1]:
        raise InputError(f"{where}: {one_line(text, 80)!r} is not a pair of endpoints; expected 'n060:3>n061:5'")
    return ends[0], ends[1]


def pair_list(text: str, option: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a file, one per line: ``n060:3>n061:5``; comments begin with ``#``."""
    found = tuple(_pair(line, place) for place, line in list_lines(text, option, "list of pairs"))
    if not found:
        raise InputError(f"{option}: {text} names no pair; expected one per line, such as 'n060:3>n061:5'")
    return found


def variables(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return environment variables: ``NAME=VALUE``."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not VARIABLE.fullmatch(name):
            # Without the value: it may be a secret.
            raise InputError(f"{option}: {name[:40]!r} is not NAME=VALUE; expected something like NCCL_DEBUG=INFO")
        if values.setdefault(name, value) != value:
            raise InputError(f"{option}: {name} is given twice with different values")
    return values


def comparison(text: str, option: str) -> tuple[str, tuple[str, ...]]:
    """Return the variable and the values of an A/B comparison: ``NCCL_P2P_DISABLE=0,1``."""
    name, equals, rest = text.partition("=")
    expected = "expected something like NCCL_P2P_DISABLE=0,1"
    if not equals or not VARIABLE.fullmatch(name):
        raise InputError(f"{option}: {name[:40]!r} is not VARIABLE=A,B; {expected}")
    values = tuple(value.strip() for value in rest.split(","))
    if len(values) < 2:
        raise InputError(f"{option}: {name} has one value, so there is nothing to compare; {expected}")
    if len(values) > _MAX_ARMS:
        raise InputError(f"{option}: {len(values)} values of {name}; at most {_MAX_ARMS}")
    if len(set(values)) < len(values):
        raise InputError(f"{option}: a value of {name} is given twice; {expected}")
    if any(not value or not value.isprintable() or len(value) > _MAX_VALUE for value in values):
        raise InputError(f"{option}: a value of {name} is empty, too long or not printable; {expected}")
    return name, values


def remote_file(text: str, option: str) -> str:
    if not text.startswith("/") or not text.isprintable() or len(text) > _MAX_VALUE:
        raise InputError(f"{option}: {text[:80]!r} is not an absolute path of a file on the nodes")
    return text


def host_and_port(text: str, option: str) -> tuple[str, int]:
    """Return a host or address, and a port: ``n060:29500``, ``[fd00::1]:29500``."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}|[0-9a-fA-F:.]{2,45}", host, re.ASCII) or not (
        re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) and 0 < int(port) < 65536
    ):
        raise InputError(f"{option}: {text[:80]!r} is not HOST:PORT; expected something like n060:29500")
    return host, int(port)


def perftest_options(text: str, option: str) -> tuple[str, ...]:
    """Return options of perftest, those that take a value as two words: ``-q 4``."""
    words = _words(text, option, "options of perftest such as '-q 4 -m 4096'")
    try:
        return tuple(checked(words))
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def readable_file(text: str, option: str) -> Path:
    path = user_path(text)
    try:
        path.open("rb").close()
    except (OSError, ValueError) as error:
        raise InputError(f"{option}: cannot read {path}: {getattr(error, 'strerror', error)}") from None
    return path.absolute()


def interpreter(text: str, option: str) -> str:
    if not text or text.startswith("-") or not text.isprintable():
        raise InputError(f"{option}: {text[:80]!r} is not the path of an interpreter; expected /opt/venv/bin/python3")
    return text


def launcher(text: str, option: str) -> str:
    """Return the command line of a launcher, of its name or as given; it has ``{node}``."""
    words = _words(LAUNCHERS.get(text, text), option)
    if not any("{node}" in word for word in words):
        known = ", ".join(LAUNCHERS)
        raise InputError(f"{option}: {text[:80]!r} has no {{node}}, which stands for the node; or give a name: {known}")
    return LAUNCHERS.get(text, text)


def manifest(text: str, option: str) -> str:
    """Return the text of a manifest of Kubernetes; it has places for what fabtui fills in."""
    try:
        content = readable_file(text, option).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option}: cannot read {text}: {error}") from None
    if missing := [place for place in ("{command}", "{call_back}", "{count}", "{nodes}") if place not in content]:
        raise InputError(f"{option}: {text} has no {missing[0]}; docs/scale.md has a manifest to start from")
    return content


def wrapper(text: str, option: str) -> str:
    """Return a command line that runs in front of the node side."""
    _words(text, option)
    return text


def _words(text: str, option: str, such_as: str = "a command line such as 'docker exec -i train'") -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{option}: {text[:80]!r} cannot be split into words: {error}") from None
    if not words:
        raise InputError(f"{option}: empty; expected {such_as}")
    return words


def shipped_recording(name: str) -> Path:
    """Return the recording of a name, or the only one whose name has this part, among those that ship with fabtui.

    Raises:
        InputError: There is none, or there are several.
    """
    folder = shipped_recordings_folder()
    known = sorted(path.name.removesuffix(RECORDING) for path in folder.glob(f"*{RECORDING}"))
    alike = [name] if name in known else [path for path in known if name in path]
    if len(alike) != 1:
        raise InputError(
            f"{argument('demo')}: no recording {name[:60]!r}; there are {', '.join(known)}{nearest(name, known)}"
        )
    return folder / f"{alike[0]}{RECORDING}"
