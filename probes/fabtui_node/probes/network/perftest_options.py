"""Options of perftest that users may add: those that change a test, not where it runs, what it writes or its end.

https://github.com/linux-rdma/perftest, src/perftest_parameters.c
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

MOST_WORDS = 40
#: The longest test (s); the probe ends its tools soon after.
MOST_SECONDS = 5
_UNITS = {"K": 1 << 10, "M": 1 << 20}
_WRITE, _SEND, _LATENCY = "ib_write_bw", "ib_send_bw", "ib_read_lat"
_BANDWIDTH = (_WRITE, _SEND)
_ALL = (*_BANDWIDTH, _LATENCY)


class _Option(NamedTuple):
    """An option: its long name, its least and greatest value (None: it takes none), and the tools that have it."""

    long: str
    bounds: Optional[Tuple[int, int]]
    tools: Tuple[str, ...] = _ALL


_OPTIONS: Dict[str, _Option] = {
    "-q": _Option("--qp", (1, 1024), _BANDWIDTH),
    "-m": _Option("--mtu", (256, 4096)),
    "-Q": _Option("--cq-mod", (1, 1024), _BANDWIDTH),
    "-x": _Option("--gid-index", (0, 64)),
    "-S": _Option("--sl", (0, 15)),
    "-T": _Option("--tos", (0, 255)),
    "-R": _Option("--rdma_cm", None),
    "-t": _Option("--tx-depth", (1, 15000), _BANDWIDTH),
    "-r": _Option("--rx-depth", (1, 16384), (_SEND,)),
    "-l": _Option("--post_list", (1, 512), _BANDWIDTH),
    "-N": _Option("--noPeak", None, _BANDWIDTH),
    "-u": _Option("--qp-timeout", (0, 31)),
    "-s": _Option("--size", (1, 1 << 23)),
    "-n": _Option("--iters", (5, 10000000)),
    "-D": _Option("--duration", (1, MOST_SECONDS)),
    "-F": _Option("--CPU-freq", None),
    "--report_gbits": _Option("--report_gbits", None, _BANDWIDTH),
}
_SHORT = {option.long: name for name, option in _OPTIONS.items()}


def checked(words: Sequence[str]) -> List[str]:
    """Return options as separate words, each as ``-q 4``, for ``-q 4``, ``-q4``, ``--qp 4`` and ``--qp=4``.

    Raises ValueError: a word is not an option that may be added, or not a value of it.
    """
    if len(words) > MOST_WORDS:
        raise ValueError("%d words; at most %d" % (len(words), MOST_WORDS))
    options: List[str] = []
    rest = iter(words)
    for word in rest:
        name, value = _split(word)
        option = _OPTIONS.get(name)
        if option is None:
            raise ValueError("%r is not an option that can be added; there are %s" % (word[:40], ", ".join(_OPTIONS)))
        if name in options:
            raise ValueError("%s is given twice" % name)
        options.append(name)
        if option.bounds is not None:
            options.append(_value(name, option.bounds, next(rest, "") if value is None else value))
        elif value is not None:
            raise ValueError("%s takes no value" % name)
    if "-n" in options and "-D" in options:
        raise ValueError("-n and -D exclude each other")
    return options


def _split(word: str) -> Tuple[str, Optional[str]]:
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return _SHORT.get(name, name), value if equals else None
    return word[:2], word[2:] or None


def _value(name: str, bounds: Tuple[int, int], text: str) -> str:
    factor = _UNITS.get(text[-1:], 1) if name == "-s" else 1
    digits = text if factor == 1 else text[:-1]
    number = int(digits) * factor if digits.isdecimal() and digits.isascii() and len(digits) < 10 else -1
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError("%s: %r is not a whole number from %d to %d" % (name, text[:40], *bounds))
    if name == "-m" and number & (number - 1):
        raise ValueError("-m: %d is not an MTU of RDMA; there are 256, 512, 1024, 2048 and 4096" % number)
    return str(number)


def of_tool(tool: str, words: Sequence[str]) -> List[str]:
    """Return the checked options that a tool has: ib_read_lat has no queue pairs to choose, for example."""
    return [word for group in _groups(words) if tool in _OPTIONS[group[0]].tools for word in group]


def _groups(words: Sequence[str]) -> Iterator[List[str]]:
    rest = iter(words)
    for name in rest:
        yield [name] if _OPTIONS[name].bounds is None else [name, next(rest)]
