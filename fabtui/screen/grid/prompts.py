"""Parsers of the filter prompt and of the go-to prompt."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

from fabtui.errors import InputError
from fabtui.model.endpoints import PAIR_CLASSES, PairClass
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Cell, Model
from fabtui.nodeset import expand
from fabtui.screen.grid.axis import Axis
from fabtui_node.parsers.nccl.transports import TRANSPORTS, Path, transport_of

#: Verdicts by their filter words.
VERDICTS: dict[str, frozenset[Verdict]] = {
    "bad": frozenset(verdict for verdict in Verdict if verdict.bad),
    **{str(verdict): frozenset({verdict}) for verdict in Verdict if verdict is not Verdict.UNTESTED},
}
CLASSES: dict[str, PairClass] = {
    **{str(kind): kind for kind in PAIR_CLASSES if kind is not PairClass.CROSS_LEAF},
    "node": PairClass.SAME_NODE,
    "rail": PairClass.SAME_RAIL,
    "cross": PairClass.CROSS_RAIL,
    "domain": PairClass.SAME_DOMAIN,
}
#: Filter words for transports by their path; the short form and the word of `TRANSPORTS` are filter words, too.
_OF_PATH: dict[Path, tuple[str, ...]] = {
    Path.P2P: ("p2p",),
    Path.SHM: ("shm",),
    Path.TCP: ("tcp", "socket"),
    Path.RDMA: ("rdma",),
    Path.GPUDIRECT: ("rdma", "gdr"),
    Path.GLOO: ("tcp", "gloo"),
}


@lru_cache(maxsize=4096)
def transport_words(name: str | None) -> frozenset[str]:
    """Return the filter words that match a transport, by the name that the library prints; none for an unknown one."""
    found = transport_of(name)
    # With GPUDirect RDMA, a transport has a short form other than that of its row.
    kinds = [row for row in TRANSPORTS if row.pattern is found.pattern]
    words = [word for row in kinds for word in (row.short, row.word, *_OF_PATH[row.path], *_OF_PATH[found.path])]
    return frozenset(word.lower() for word in words if " " not in word)


#: Filter words for transports.
_SPELLINGS = (*_OF_PATH.values(), *((row.short, row.word) for row in TRANSPORTS))
TRANSPORT_WORDS = tuple(dict.fromkeys(word.lower() for words in _SPELLINGS for word in words if " " not in word))

#: Filter word that keeps rows and columns without a match.
ALL_ROWS = "!"
#: Hint in the filter prompt.
FILTER_HINT = "words that all match: bad; rail; n[060-063], n060>, >n061; ib, via:TEXT"


class Filter(NamedTuple):
    """Conditions that cells must meet to be shown; an empty condition matches all cells."""

    text: str
    verdicts: frozenset[Verdict] = frozenset()
    classes: frozenset[PairClass] = frozenset()
    #: Words for transports, and parts of their names in lower case; one must match.
    transports: frozenset[str] = frozenset()
    via: tuple[str, ...] = ()
    #: Nodes whose rows and columns are shown; None for all.
    sources: frozenset[str] | None = None
    targets: frozenset[str] | None = None
    all_rows: bool = False  #: Show rows and columns without a match, too.

    def lets(self, model: Model, cell: Cell, src: int, dst: int) -> bool:
        """Return True if a cell matches; rows and columns are not checked."""
        if self.verdicts and cell.verdict not in self.verdicts:
            return False
        if self.classes and model.table.relation(src, dst) not in self.classes:
            return False
        if not self._by_transport:
            return True
        measured = cell.measurement
        if measured is None or not measured.transport:
            measured = model.measured_for(Layer.P2P, src, dst) or model.measured_for(Layer.WORLD, src, dst)
        return self.has_transport((measured.transport or "") if measured is not None else "")

    def has_transport(self, name: str) -> bool:
        lowered = name.lower()
        return not self.transports.isdisjoint(transport_words(name)) or any(part in lowered for part in self.via)

    @property
    def by_result(self) -> bool:
        """True if only cells with a result can match, so that whole rows and columns may have no match."""
        return bool(self.verdicts or self._by_transport)

    @property
    def by_cell(self) -> bool:
        """True if the filter can hide single cells of rows and columns that are shown."""
        return bool(self.verdicts or self.classes or self._by_transport)

    @property
    def _by_transport(self) -> bool:
        return bool(self.transports or self.via)


def read_filter(text: str, known: list[str]) -> Filter | None:
    """Parse filter words, None without any; `InputError` if one is wrong. Looking up node groups may take seconds."""
    verdicts: set[Verdict] = set()
    classes: set[PairClass] = set()
    transports: set[str] = set()
    via: list[str] = []
    sources: set[str] | None = None
    targets: set[str] | None = None
    for word in text.split():
        lowered = word.lower()
        prefix, colon, rest = word.partition(":")
        if word == ALL_ROWS:
            continue
        if colon and prefix.lower() == "via" and rest:
            via.append(rest.lower())
        elif all(part in VERDICTS for part in lowered.split(",")):
            verdicts.update(*(VERDICTS[part] for part in lowered.split(",")))
        elif all(part in CLASSES for part in lowered.split(",")):
            classes.update(CLASSES[part] for part in lowered.split(","))
        elif all(part in TRANSPORT_WORDS for part in lowered.split(",")):
            transports.update(lowered.split(","))
        else:
            rows, arrow, columns = word.partition(">")
            if rows:
                sources = (sources or set()) | _nodes(rows, word, known)
            if columns or not arrow:
                targets = (targets or set()) | _nodes(columns or rows, word, known)
            if arrow and not rows and not columns:
                raise InputError("filter: '>' alone; expected n060>, >n061 or n060>n061")
    if not text.split():
        return None
    return Filter(
        " ".join(text.split()),
        frozenset(verdicts),
        frozenset(classes),
        frozenset(transports),
        tuple(via),
        None if sources is None else frozenset(sources),
        None if targets is None else frozenset(targets),
        all_rows=ALL_ROWS in text.split(),
    )


def _nodes(nodes: str, word: str, known: list[str]) -> set[str]:
    if "^-" in nodes:
        raise InputError("filter: ^- reads standard input, which the screen uses")
    found = set(expand(nodes, "filter")) & set(known)
    if not found:
        raise InputError(f"filter: {word[:60]!r} is not a node here, nor a verdict, class or transport")
    return found


#: Hint in the go-to prompt.
GOTO_HINT = "n060:3, n060:3>n061:5, n060, n060>n061, >n061:5"


def read_place(text: str, axis: Axis) -> tuple[int | None, int | None]:
    """Return the positions of a row and a column, None for the one not named; `InputError` if there is none."""
    row, _, column = (part.strip() for part in text.partition(">"))
    if not row and not column:
        raise InputError(f"nothing to go to; expected {GOTO_HINT}")
    return (_position(row, axis) if row else None), (_position(column, axis) if column else None)


def _position(name: str, axis: Axis) -> int:
    node, colon, index = name.rpartition(":")
    nodes = {entry.node: at for at, entry in enumerate(axis.entries) if entry.first}
    nodes |= {entry.label: nodes[entry.node] for entry in axis.entries if entry.first}
    if name in nodes:
        return nodes[name]
    if not colon:
        node = name
    if node not in nodes:
        close = get_close_matches(node, list(nodes), 1, 0.6)
        raise InputError(f"there is no node {node[:60]!r}" + (f"; did you mean {close[0]}?" if close else ""))
    own = [entry for entry in axis.entries if entry.node == axis.entries[nodes[node]].node]
    for entry in own:
        if entry.index == index:
            return axis.entries.index(entry, nodes[node])
    having = own[0].index if len(own) == 1 else f"{own[0].index} to {own[-1].index}"
    raise InputError(f"there is no endpoint {name[:60]!r}; {own[0].label} has {having}")
