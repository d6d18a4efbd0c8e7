"""``nvidia-smi topo -m`` and ``-mp``: how near GPUs and NICs are. ``topo -p2p``: what GPUs can do to each other."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.nvidia import topo_matrix
from fabtui_node.parsers.nvidia.values import complain, field_text

#: Words between two devices, nearest first; SOC is what SYS was called before driver 384.
NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_NVLINKS = re.compile("NV([0-9]{1,3})", re.ASCII)
_TITLES = (
    ("CPU Affinity", "cpu"),
    ("Memory Affinity", "memory"),
    ("NUMA Affinity", "numa"),
    ("GPU NUMA ID", "gpu_numa_id"),
)

_OK = "OK"
_P2P = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
#: What the letters after ``topo -p2p`` ask for.
CAPABILITIES = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pcie"}


def nvlinks(word: Optional[str]) -> Optional[int]:
    """Return the number of NVLinks in ``NV18``, None for any other word."""
    found = _NVLINKS.fullmatch(word or "")
    return int(found.group(1)) if found else None


def _titles(text: str) -> List[str]:
    """Return the names of the columns behind the matrix, in their order."""
    places = [(text.find(title), name) for title, name in _TITLES]
    return [name for at, name in sorted(places) if at >= 0]


def _affinity(rest: str, titles: List[str]) -> Dict[str, Optional[str]]:
    """Return the words behind a row by their column.

    An empty column leaves nothing but space behind, so that a single word is identified by its form: only lists of CPUs
    have commas and dashes.
    """
    words = rest.split()
    found: Dict[str, Optional[str]] = dict.fromkeys(titles)
    if len(words) < len(titles) and words and "cpu" in titles and not set("-,") & set(words[0]) and words[0] != "N/A":
        titles = [title for title in titles if title != "cpu"] if len(words) == len(titles) - 1 else titles
    for title, word in zip(titles, words):  # noqa: B905 - Python 3.8 knows no strict=
        found[title] = field_text(word)
    return found


def parse_topology(text: str) -> Reading:
    """Return how near GPUs and NICs are to each other.

    Values: ``columns`` and ``rows`` (device names), ``cells`` (words by row and column: ``X``, ``NV18``, ``PIX``,
    ``PXB``, ``PHB``, ``NODE``, ``SYS``; None where cut off), ``affinity`` (by row: ``cpu``, ``numa``,
    ``gpu_numa_id``, None if missing), ``nics`` (device names of ``NIC0`` and so on), ``gpus`` and ``nic_count``,
    ``legend``, ``complete``: whether all rows are there.
    """
    notes = Notes()
    matrix = topo_matrix.parse(text, notes)
    titles = _titles(matrix.titles)
    for row in matrix.rows:
        for cell in row.cells:
            if cell is not None and cell != "X" and cell not in NEAR and nvlinks(cell) is None:
                notes.puzzled("%s: %s" % (row.name, cell))
    nics = [name for name in matrix.columns if not name.startswith("GPU")]
    values: Dict[str, Any] = topo_matrix.values(matrix)
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
            elif word not in (_OK, "X"):
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
    matrix = topo_matrix.parse(text, notes)
    for row in matrix.rows:
        for cell in row.cells:
            if cell is not None and cell not in (*_P2P, "X"):
                notes.puzzled("%s: %s" % (row.name, cell))
    values: Dict[str, Any] = topo_matrix.values(matrix)
    bad, p2p = able(values["rows"], values["columns"], values["cells"], values["complete"])
    if bad:
        notes.warn("%d of the ordered pairs cannot: %s" % (len(bad), ", ".join(sorted({str(line[2]) for line in bad}))))
    asked = re.search(r"-p2p ([rwnap])\b", matrix.command or "")
    values.update(
        capability=CAPABILITIES.get(asked.group(1)) if asked else None, bad=bad, p2p=p2p, errors=complain(text, notes)
    )
    return notes.reading(values)


def _cells(text: str) -> List[str]:
    matrix = topo_matrix.parse(text[:65536], Notes())
    return [cell for row in matrix.rows for cell in row.cells if cell and cell != "X"]


def _likely_topology(text: str) -> float:
    cells = _cells(text)
    if cells:
        near = sum(1 for cell in cells if cell in NEAR or nvlinks(cell) is not None)
        return 0.95 if near > len(cells) / 2 else 0.0
    if re.search(r"^\s{0,12}GPU0\s.{0,4000}(?:CPU|NUMA) Affinity", text, re.MULTILINE):
        return 0.9
    return 0.7 if re.search(r"nvidia-smi topo -mp?\b", text[:400]) else 0.0


def _likely_p2p(text: str) -> float:
    cells = _cells(text)
    if cells:
        return 0.95 if sum(1 for cell in cells if cell in _P2P) > len(cells) / 2 else 0.0
    return 0.8 if re.search(r"nvidia-smi topo -p2p\b", text[:400]) else 0.0


FORMATS = [
    Format(
        "nvidia-smi-topo-m",
        "how near GPUs and NICs are to each other",
        ("nvidia-smi", "topo", "-m"),
        {},
        _likely_topology,
        parse_topology,
    ),
    Format(
        "nvidia-smi-topo-p2p",
        "what GPUs can do to each other's memory",
        ("nvidia-smi", "topo", "-p2p", "r"),
        {},
        _likely_p2p,
        parse_p2p,
    ),
]
