"""``nvidia-smi topo -m`` and ``-mp``: how near GPUs and NICs are. ``topo -p2p``: what GPUs can do to each other."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import without_escapes
from fabtui_node.parsers.nvidia.values import complain, field_text, is_noise

_MOST = 512
_NAME = re.compile(r"(?:GPU|NIC)[0-9]{1,3}|[a-z][a-z0-9_]{1,24}", re.ASCII)
#: Names without a blank between them, as in a narrow terminal: ``NIC11NIC12``.
_JOINED = re.compile(r"(?:(?:GPU|NIC)[0-9]{1,3}){2,}", re.ASCII)
_DEVICE = re.compile(r"(?:GPU|NIC)[0-9]{1,3}", re.ASCII)
#: A word of the matrix, not of the columns behind it: ``0-63``, ``0``, ``N/A``.
_CELL = re.compile(r"[A-Z][A-Z0-9#]{0,6}", re.ASCII)
_LEGEND = re.compile(r"\s{0,8}([A-Z][A-Z0-9#]{0,5})\s{0,6}=\s{1,4}(\S.{0,200})")
_NIC = re.compile(r"\s{0,8}(NIC[0-9]{1,3}):\s{1,8}(\S{1,64})")


#: Words between two devices, nearest first; SOC is what SYS was called before driver 384.
NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_NVLINKS = re.compile("NV([0-9]{1,3})", re.ASCII)
_TITLES = (
    ("CPU Affinity", "cpu"),
    ("Memory Affinity", "memory"),
    ("NUMA Affinity", "numa"),
    ("GPU NUMA ID", "gpu_numa_id"),
)

_P2P = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
#: What the letters after ``topo -p2p`` ask for.
CAPABILITIES = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pcie"}


class TopoRow(NamedTuple):
    """A row: its name, a word for each column (None where the line is cut off), and the text behind them."""

    name: str
    cells: List[Optional[str]]
    rest: str
    fits: bool = True  #: False if it has another number of values than the header has columns.


class Matrix(NamedTuple):
    """A matrix: a row of names, then for each name a row of words."""

    columns: List[str]  #: The devices, by the names that the header gives them.
    titles: str  #: The rest of the header, one text.
    rows: List[TopoRow]  #: The rows, in the order in which they come.
    legend: Dict[str, str]  #: The meanings of the words, as printed.
    nics: Dict[str, str]  #: The device of each NIC.
    command: Optional[str]  #: The options of the command, if the text begins with it.

    def values(self) -> Dict[str, Any]:
        whole = bool(self.columns) and len(self.rows) == len(self.columns)
        return {
            "columns": self.columns,
            "rows": [row.name for row in self.rows],
            "cells": [row.cells for row in self.rows],
            "legend": self.legend,
            "complete": whole and all(None not in row.cells for row in self.rows),
        }

    def doubt(self, known: Callable[[str], bool], notes: Notes) -> None:
        for row in self.rows:
            for cell in row.cells:
                if cell is not None and cell != "X" and not known(cell):
                    notes.puzzled("%s: %s" % (row.name, cell))


def _header(line: str) -> Optional[Tuple[List[str], str]]:
    if not line.lstrip().startswith("GPU"):
        return None
    words = [
        name for word in line[:8000].split() for name in (_DEVICE.findall(word) if _JOINED.fullmatch(word) else [word])
    ]
    count = next((at for at, word in enumerate(words) if not _NAME.fullmatch(word)), len(words))
    if not count or not words[0].startswith("GPU"):
        return None
    # A row begins with a name as well, but continues with other words than names and titles.
    rest = " ".join(words[count:])
    if count == 1 and rest and not rest.startswith(("CPU", "NUMA", "Memory")):
        return None
    return words[:count][:_MOST], rest


def _row(line: str, columns: List[str]) -> Optional[TopoRow]:
    words = line.strip().split(None, len(columns) + 1)
    if not words or words[0] not in columns:
        return None
    printed = words[1 : len(columns) + 1]
    cells: List[Optional[str]] = [word[:12] for word in printed]
    rest = words[len(columns) + 1] if len(words) > len(columns) + 1 else ""
    count = next((at for at, word in enumerate(printed) if not _CELL.fullmatch(word)), len(printed))
    if count < len(printed) or _CELL.fullmatch((rest.split() or [""])[0]):
        # Another number of values than of columns: which of them is missing is not known.
        behind = [*printed[count:], *rest.split()]
        start = next((at for at, word in enumerate(behind) if not _CELL.fullmatch(word)), len(behind))
        return TopoRow(words[0], [None] * len(columns), " ".join(behind[start:]), False)
    return TopoRow(words[0], cells + [None] * (len(columns) - len(cells)), rest)


def _split(text: str) -> List[str]:
    return [line[:8000] for line in without_escapes(text).splitlines()]


def _parse(text: str, notes: Notes) -> Matrix:
    """Return the first matrix of a text, and note what is not understood or cut off."""
    columns: List[str] = []
    titles = ""
    rows: List[TopoRow] = []
    legend: Dict[str, str] = {}
    nics: Dict[str, str] = {}
    for line in _split(text):
        head = None if columns else _header(line)
        row = _row(line, columns) if columns else None
        nic, word = _NIC.fullmatch(line.rstrip()[:200]), _LEGEND.fullmatch(line.rstrip()[:300])
        if head:
            columns, titles = head
        elif row and all(row.name != known.name for known in rows):
            rows.append(row)
        elif nic and len(nics) < _MOST:
            nics[nic[1]] = nic[2]
        elif word and len(legend) < 64:
            legend[word[1]] = word[2]
        elif not is_noise(line) and not line.strip().lower().endswith("legend:"):
            notes.puzzled(line)
    if columns and len(rows) < len(columns):
        notes.warn("%d of %d rows: the text is cut off" % (len(rows), len(columns)))
    elif not columns and text.strip():
        notes.warn("no header with GPU0, GPU1 and so on")
    for row in rows:
        if not row.fits:
            notes.warn(
                "the row of %s does not have %d values, as the header: they are left out" % (row.name, len(columns))
            )
        elif None in row.cells:
            notes.warn("the row of %s is cut off" % row.name)
    command = re.search(r"nvidia-smi (topo .{1,60})", text[:2000])
    return Matrix(columns, titles, rows, legend, nics, command[1] if command else None)


def nvlinks(word: Optional[str]) -> Optional[int]:
    """Return the number of NVLinks in ``NV18``, None for any other word."""
    match = _NVLINKS.fullmatch(word or "")
    return int(match[1]) if match else None


def _is_near(word: str) -> bool:
    return word in NEAR or nvlinks(word) is not None


def _affinity(rest: str, titles: List[str]) -> Dict[str, Optional[str]]:
    """Return the words behind a row by their column.

    An empty column leaves nothing but space behind, so that a single word is identified by its form: only lists of CPUs
    have commas and dashes.
    """
    words = rest.split()
    places: Dict[str, Optional[str]] = dict.fromkeys(titles)
    if len(words) < len(titles) and words and "cpu" in titles and not set("-,") & set(words[0]) and words[0] != "N/A":
        titles = [title for title in titles if title != "cpu"] if len(words) == len(titles) - 1 else titles
    for title, word in zip(titles, words):  # noqa: B905 - Python 3.8 knows no strict=
        places[title] = field_text(word)
    return places


def parse_topology(text: str) -> Reading:
    """Return how close GPUs and NICs are to each other.

    Values: ``columns`` and ``rows`` (device names), ``cells`` (words by row and column: ``X``, ``NV18``, ``PIX``,
    ``PXB``, ``PHB``, ``NODE``, ``SYS``; None where cut off), ``affinity`` (by row: ``cpu``, ``numa``,
    ``gpu_numa_id``, None if missing), ``nics`` (device names of ``NIC0`` and so on), ``gpus`` and ``nic_count``,
    ``legend``, ``complete``: whether all rows are there.
    """
    notes = Notes()
    matrix = _parse(text, notes)
    matrix.doubt(_is_near, notes)
    # The names of the columns behind the matrix, in their order.
    places = sorted((matrix.titles.find(title), name) for title, name in _TITLES)
    titles = [name for at, name in places if at >= 0]
    nics = [name for name in matrix.columns if not name.startswith("GPU")]
    values = matrix.values()
    values.update(
        affinity={row.name: _affinity(row.rest, titles) for row in matrix.rows},
        nics={name: matrix.nics.get(name, None if name.startswith("NIC") else name) for name in nics},
        gpus=len(matrix.columns) - len(nics),
        nic_count=len(nics),
        errors=complain(text, notes),
    )
    return notes.reading(values)


def able(
    rows: List[str], columns: List[str], cells: List[List[Optional[str]]], complete: bool
) -> Tuple[List[List[str]], Optional[bool]]:
    """Return the pairs that cannot, ``[row, column, word]``, and whether all can; None where some are not known."""
    bad: List[List[str]] = []
    known = complete
    for row, words in zip(rows, cells):  # noqa: B905 - Python 3.8 knows no strict=
        for column, word in zip(columns, words):  # noqa: B905
            if word is None or word == "U" or word not in (*_P2P, "X"):
                known = False
            elif word not in ("OK", "X"):
                bad.append([row, column, word])
    return bad, False if bad else (True if known else None)


def parse_p2p(text: str) -> Reading:
    """Return what GPUs can do to each other.

    - ``columns``, ``rows``, ``cells`` (``X``, ``OK``, ``CNS``, ``GNS``, ``TNS``, ``NS``, ``DR`` or ``U``), ``legend``,
      ``complete``.
    - ``capability``: ``read``, ``write``, ``nvlink``, ``atomics``, ``pcie``, or None if the text does not begin with
      the command.
    - ``bad``: ``[row, column, word]`` of those that cannot. ``p2p``: True if all pairs can, None if unknown.
    """
    notes = Notes()
    matrix = _parse(text, notes)
    matrix.doubt(_P2P.__contains__, notes)
    values = matrix.values()
    bad, p2p = able(values["rows"], values["columns"], values["cells"], values["complete"])
    if bad:
        notes.warn("%d of the ordered pairs cannot: %s" % (len(bad), ", ".join(sorted({str(line[2]) for line in bad}))))
    asked = re.search(r"-p2p ([rwnap])\b", matrix.command or "")
    values.update(capability=CAPABILITIES.get(asked[1]) if asked else None, bad=bad, p2p=p2p)
    values["errors"] = complain(text, notes)
    return notes.reading(values)


def _likely(known: Callable[[str], bool], *patterns: Tuple[float, str]) -> Callable[[str], float]:
    """Return a ``Format.likely``: the words of a matrix decide, without a matrix the patterns."""
    without_matrix = first_of(*patterns)

    def likely(text: str) -> float:
        start = text[:65536]
        # Most texts have no matrix, which is known without parsing them.
        rows = _parse(start, Notes()).rows if "GPU" in start and any(map(_header, _split(start))) else []
        cells = [cell for row in rows for cell in row.cells if cell not in (None, "X")]
        if cells:
            return 0.95 if sum(map(known, cells)) > len(cells) / 2 else 0.0
        return without_matrix(text)

    return likely


FORMATS = [
    Format(
        "nvidia-smi-topo-m",
        "how close GPUs and NICs are to each other",
        _likely(
            _is_near,
            (0.9, r"(?i:^\s{0,12}GPU0\s.{0,4000}(?:CPU|NUMA) Affinity)"),
            (0.7, r"\A(?s:.{0,400})nvidia-smi topo -mp?\b"),
        ),
        parse_topology,
        aliases="topo(?:-m)?",
    ),
    Format(
        "nvidia-smi-topo-p2p",
        "what GPUs can do to each other's memory",
        _likely(_P2P.__contains__, (0.8, r"\A(?s:.{0,400})nvidia-smi topo -p2p\b")),
        parse_p2p,
        aliases="topo-p2p",
    ),
]
