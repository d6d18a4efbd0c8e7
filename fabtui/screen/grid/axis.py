"""Rows and columns of the grid in drawing order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rich.cells import cell_len

from fabtui.model.session_model import Model
from fabtui.presentation.wording import common_domain
from fabtui.sanitize import one_line

_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True)
class AxisEntry:
    """A row or column."""

    node: str
    label: str  #: Name for drawing: each character one cell wide, without the domain that all nodes share.
    index: str  #: Index of the endpoint on its node as text; ``-`` if the node has no endpoint.
    number: int | None  #: Number of the endpoint; None if the node has no endpoint (yet).
    first: bool  #: The first of its node.
    gone: bool  #: The node failed or was lost.
    group: str = ""  #: Name of the group of the entry, "" without groups.
    opens: bool = False  #: The first of its group.

    @property
    def name(self) -> str:
        return self.label if self.index == "-" else f"{self.label}:{self.index}"


def fit_text(text: str, limit: int = _NAME_LIMIT) -> str:
    """Return an untrusted name on one line with every character one cell wide, so that columns stay aligned."""
    cleaned = one_line(text, limit)
    if cleaned.isascii():
        return cleaned
    return "".join(character if cell_len(character) == 1 else "?" for character in cleaned)


class Axis:
    """Entries in order: nodes as given, each with its endpoints; a node without endpoints has one empty entry.

    ``together``: the endpoints of each node are adjacent; ``of_nodes_alone``: each entry is a whole node.
    """

    def __init__(self, entries: list[AxisEntry], *, together: bool = True, of_nodes_alone: bool = False) -> None:
        self.entries = entries
        self.together = together
        self.of_nodes_alone = of_nodes_alone
        self.size = len(entries)
        self.position: dict[int, int] = {
            entry.number: at for at, entry in enumerate(entries) if entry.number is not None
        }
        #: Positions of the first entries of groups.
        self.openings: list[int] = [at for at, entry in enumerate(entries) if entry.opens]
        self.starts: list[int] = [at for at, entry in enumerate(entries) if entry.first]
        self.label_width = max((len(entry.label) for entry in entries), default=0)
        self.index_width = max((len(entry.index) for entry in entries), default=0)
        self._by_name = {(entry.node, entry.index): at for at, entry in enumerate(entries)}

    @classmethod
    def of_model(cls, model: Model) -> Axis:
        entries: list[AxisEntry] = []
        names = list(model.nodes)
        names.extend(dict.fromkeys(e.node for e in model.endpoints if e.node not in model.nodes))
        domain = common_domain(names)
        for node in names:
            gone = model.gone(node) is not None
            label = fit_text(node.removesuffix(domain))
            first = True
            for endpoint in model.table.of_node(node):
                index = "-" if endpoint.kind == "none" else str(endpoint.index)
                entries.append(AxisEntry(node, label, index, endpoint.number, first, gone))
                first = False
            if first:
                entries.append(AxisEntry(node, label, "-", None, True, gone))
        return cls(entries)

    def in_order(self, positions: Iterable[int], groups: Mapping[int, str] | None = None) -> Axis:
        """Return some entries in another order, with groups; one after another node's is marked as first."""
        entries: list[AxisEntry] = []
        for position in positions:
            entry = self.entries[position]
            group = "" if groups is None else groups[position]
            opens = groups is not None and (not entries or entries[-1].group != group)
            first = opens or not entries or entries[-1].node != entry.node
            same = (entry.first, entry.group, entry.opens) == (first, group, opens)
            entries.append(entry if same else replace(entry, first=first, group=group, opens=opens))
        nodes = {entry.node for entry in entries}
        together = sum(entry.first for entry in entries) == len(nodes)
        return Axis(entries, together=together, of_nodes_alone=self.of_nodes_alone)

    def of_nodes(self) -> Axis:
        entries = [replace(self.entries[at], index="", number=None, first=True) for at in self.starts]
        return Axis(entries, of_nodes_alone=True)

    @cached_property
    def node_at(self) -> list[int]:
        found: list[int] = []
        for entry in self.entries:
            found.append((found[-1] if found else -1) + entry.first)
        return found

    @property
    def stacked(self) -> bool:
        """True if each column has its node's name above it, because hardly any node has two columns side by side."""
        return len(self.starts) == self.size or not self.together

    @cached_property
    def tail(self) -> int:
        """Number of characters at the end of the names in which all nodes differ."""
        labels = {entry.label for entry in self.entries}
        enough = (end for end in range(1, self.label_width) if len({label[-end:] for label in labels}) == len(labels))
        return next(enough, self.label_width)

    def find(self, entry: AxisEntry) -> int | None:
        return self._by_name.get((entry.node, entry.index))
