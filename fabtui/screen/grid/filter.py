"""Which cells are shown: by verdict, class, nodes and transport, as the user wrote it down."""

from __future__ import annotations

from dataclasses import dataclass

from fabtui.errors import InputError
from fabtui.model.endpoints import PairClass, pair_class
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Cell, Model

#: What a user can ask for by a word of its own.
VERDICTS: dict[str, frozenset[Verdict]] = {
    "bad": frozenset(verdict for verdict in Verdict if verdict.bad),
    **{str(verdict): frozenset({verdict}) for verdict in Verdict if verdict is not Verdict.UNTESTED},
}
CLASSES: dict[str, PairClass] = {
    **{str(kind): kind for kind in (PairClass.SAME_NODE, PairClass.SAME_RAIL, PairClass.CROSS_RAIL)},
    "node": PairClass.SAME_NODE,
    "rail": PairClass.SAME_RAIL,
    "cross": PairClass.CROSS_RAIL,
}
#: Words for transports, and what the library's own name for it has in it.
TRANSPORTS: dict[str, tuple[str, ...]] = {
    "p2p": ("p2p",),
    "nvls": ("nvls",),
    "shm": ("shm",),
    "gdr": ("gdr",),
    "ib": ("net/ib", "ibverbs", "roce", "rdma"),
    "socket": ("socket",),
    "tcp": ("tcp", "gloo"),
}

#: What is said of filters where one is asked for.
HINT = "bad, slow, failed; rail, cross, node; n[060-063], n060>, >n061; shm, ib, via:TEXT; several: all of them"


@dataclass(frozen=True)
class Filter:
    """What cells must have in common to be shown; a part that is empty lets everything through.

    Attributes:
        text: How the user wrote it.
        verdicts: The verdicts that are shown.
        classes: The classes of pairs that are shown.
        transports: Parts of transports' names, in small letters, of which one must be there.
        sources: The nodes whose rows are shown, or None for all.
        targets: The nodes whose columns are shown, or None for all.
    """

    text: str
    verdicts: frozenset[Verdict] = frozenset()
    classes: frozenset[PairClass] = frozenset()
    transports: tuple[str, ...] = ()
    sources: frozenset[str] | None = None
    targets: frozenset[str] | None = None

    def lets(self, model: Model, cell: Cell, src: int, dst: int) -> bool:
        """Say whether a cell is shown; that its row and column are is not asked here."""
        if self.verdicts and cell.verdict not in self.verdicts:
            return False
        if self.classes and pair_class(model.endpoints[src], model.endpoints[dst]) not in self.classes:
            return False
        if not self.transports:
            return True
        measured = cell.measurement
        if measured is None or not measured.transport:
            measured = model.measured_for(Layer.P2P, src, dst) or model.measured_for(Layer.WORLD, src, dst)
        path = (measured.transport or "").lower() if measured is not None else ""
        return any(part in path for part in self.transports)

    @property
    def by_cell(self) -> bool:
        """Whether cells of rows and columns that are shown can be left out."""
        return bool(self.verdicts or self.classes or self.transports)


def read_filter(text: str, known: list[str]) -> Filter | None:
    """Return the filter a user wrote, None for an empty one. Groups of nodes may take seconds to be looked up.

    Args:
        text: Words with blanks between them.
        known: The names of the nodes there are.

    Raises:
        InputError: A word is none of a filter's, or names no node there is.
    """
    verdicts: set[Verdict] = set()
    classes: set[PairClass] = set()
    transports: list[str] = []
    sources: set[str] | None = None
    targets: set[str] | None = None
    for word in text.split():
        lowered = word.lower()
        prefix, colon, rest = word.partition(":")
        if colon and prefix.lower() == "via" and rest:
            transports.append(rest.lower())
        elif all(part in VERDICTS for part in lowered.split(",")):
            verdicts.update(*(VERDICTS[part] for part in lowered.split(",")))
        elif all(part in CLASSES for part in lowered.split(",")):
            classes.update(CLASSES[part] for part in lowered.split(","))
        elif all(part in TRANSPORTS for part in lowered.split(",")):
            transports.extend(name for part in lowered.split(",") for name in TRANSPORTS[part])
        else:
            rows, arrow, columns = word.partition(">")
            if rows:
                sources = _among(sources, _nodes(rows, word, known))
            if columns or not arrow:
                targets = _among(targets, _nodes(columns or rows, word, known))
            if arrow and not rows and not columns:
                raise InputError("filter: '>' alone; expected n060>, >n061 or n060>n061")
    if not text.split():
        return None
    return Filter(
        " ".join(text.split()),
        frozenset(verdicts),
        frozenset(classes),
        tuple(transports),
        None if sources is None else frozenset(sources),
        None if targets is None else frozenset(targets),
    )


def _among(before: set[str] | None, found: set[str]) -> set[str]:
    return found if before is None else before | found


def _nodes(nodes: str, word: str, known: list[str]) -> set[str]:
    from fabtui.nodeset import expand

    if "^-" in nodes:
        raise InputError("filter: ^- reads standard input, which the screen has")
    found = set(expand(nodes, "filter")) & set(known)
    if not found:
        raise InputError(f"filter: {word[:60]!r} is no node here, and no verdict, class or transport")
    return found
