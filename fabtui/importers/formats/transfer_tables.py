"""Tables of transfer benchmarks (nixlbench, ucx_perftest, NVSHMEM's perftest), and lists of node pairs."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Callable

from fabtui.importers.tables import Values
from fabtui_node.parsers.base import Format, Likely, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines

#: Maximum number of rows, and minimum number of pairs of a list.
_MOST, _FEWEST = 100_000, 6
#: A pair below this part of the median is slow.
_SLOW = 0.8
_CELLS = re.compile(r"[|\s]{1,40}")
_PAIR = re.compile(
    r"\s{0,8}\W{0,2}(?P<src>[A-Za-z][\w.-]{0,80}\d)\W{1,5}(?:(?:to|and|vs|-)\W{1,3})?(?P<dst>[A-Za-z][\w.-]{0,80}\d)\W{1,8}"
    r"(?:[A-Za-z]{0,12}[ =:]{0,3})(?P<value>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>[GM]i?[Bb](?:/s|ps|it/s)?|Gb/sec)?\s{0,4}"
)
_NIXL = re.compile(r"\s{0,8}Block Size \(B\)")
_UCX = re.compile(r"\s{0,8}(?:\[thread \d{1,4}\]|Final:)\s")
_UCX_NAMES = ("iterations", "typical_overhead", "average_overhead", "overall_overhead")
_UCX_RATES = ("bandwidth", "overall_bandwidth", "rate", "overall_rate")
_NVSHMEM = re.compile(r"\s{0,4}[#|]?.{0,20}\bsize ?\(B\)", re.I)


def _headed(head: re.Pattern[str]) -> Callable[[str], Reading]:
    """Return a parser of a table of numbers below a heading, whose columns are two blanks or a bar apart."""

    def parse(text: str) -> Reading:
        notes, names, rows = Notes(), list[str](), list[Values]()
        for line in plain_lines(text):
            if head.match(line):
                columns = re.split(r"\s{2,40}|\s*\|\s*", line.strip(" |#"))
                names = [re.sub(r"\W+", "_", name.strip().lower()).strip("_") for name in columns if name.strip()]
                continue
            cells = [number(cell) for cell in _CELLS.split(line.strip(" |")) if cell]
            if names and len(cells) == len(names) and None not in cells and len(rows) < _MOST:
                rows.append(dict(zip(names, cells, strict=True)))
        if not rows:
            notes.warn("no row of numbers below a heading")
        return notes.reading({"rows": rows})

    return parse


def _parse_ucx(text: str) -> Reading:
    """Return the lines of ucx_perftest: times in us, bandwidth in MB/s, rate in messages per second."""
    notes, rows = Notes(), list[Values]()
    for line in plain_lines(text):
        if _UCX.match(line) and len(rows) < _MOST:
            cells = [value for cell in line.split()[1:] if (value := number(cell)) is not None]
            names = (*_UCX_NAMES, *_UCX_RATES)
            rows.append({"final": "Final" in line, **dict(zip(names, cells[-len(names) :], strict=False))})
    return notes.reading({"rows": rows})


def _pairs(text: str) -> list[tuple[str, str, float]]:
    found = (_PAIR.fullmatch(line[:300]) for line in plain_lines(text)[:_MOST])
    return [(pair["src"], pair["dst"], float(pair["value"])) for pair in found if pair and pair["src"] != pair["dst"]]


def _pairs_likely(text: str) -> float:
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    pairs = _pairs("\n".join(lines))
    return 0.6 if len(pairs) >= _FEWEST and len(pairs) >= 0.7 * len(lines) else 0.0


def _parse_pairs(text: str) -> Reading:
    """Return the pairs, and who is common to the slow ones: ``answer``, ``next``, ``behind``."""
    notes = Notes()
    pairs = _pairs(text)
    usual = statistics.median(value for _, _, value in pairs) if pairs else 0.0
    slow = [pair for pair in pairs if pair[2] < _SLOW * usual]
    counts = collections.Counter(node for src, dst, _ in slow for node in (src, dst))
    shared = [node for node, times in counts.items() if slow and times == len(slow)]
    answer, steps = [f"{len(pairs)} pairs, median {usual:g}: none below {_SLOW:.0%} of it"], list[str]()
    if slow:
        worst = min(value for _, _, value in slow)
        few = f"{len(slow)} of {len(pairs)} pairs are below {_SLOW:.0%} of the median {usual:g}"
        answer = [f"{few}, the slowest has {worst:g}"]
        steps = [f"look at the ports, cables and PCIe links of {node}" for node in shared] or [
            "measure the slow pairs again"
        ]
        if shared and len(slow) > 1:
            answer.insert(0, f"{' and '.join(shared)} is in all {len(slow)} slow pairs")
    rows = [{"src": src, "dst": dst, "value": value} for src, dst, value in pairs]
    return notes.reading(
        {"answer": answer, "next": steps, "hangs": None, "behind": [], "slow": len(slow), "pairs": rows}
        | {"problem": "some pairs are slow" if slow else ""}
    )


FORMATS = [
    Format(
        "nixlbench",
        "NIXL's benchmark: bandwidth and latency by block and batch size",
        first_of((0.95, r"^\s{0,8}Block Size \(B\)\s{2,20}Batch Size"), (0.8, "NIXLBench")),
        _headed(_NIXL),
    ),
    Format(
        "ucx_perftest",
        "UCX's benchmark: overhead, bandwidth and message rate",
        first_of((0.95, r"overhead \(usec\)\s{0,12}\|\s{0,12}bandwidth \(MB/s\)")),
        _parse_ucx,
        units={"bandwidth": "MB/s", "overall_bandwidth": "MB/s", "typical_overhead": "us", "average_overhead": "us"},
    ),
    Format(
        "nvshmem-perftest",
        "NVSHMEM's benchmarks: bandwidth or latency by message size",
        first_of(
            (
                0.95,
                r"^.{0,12}\b(?:shmem|nvshmem)\w{0,4}_(?:put|get|p|g|at|st|signal|barrier|sync|\w{4,20})\w{0,24}_(?:bw|latency)\b",
            )
        ),
        _headed(_NVSHMEM),
    ),
    Format(
        "node-pairs",
        "list of pairs of nodes with a bandwidth: slow pairs, and the node that they share",
        Likely(_pairs_likely, r"\d"),
        _parse_pairs,
        job="",
    ),
]
