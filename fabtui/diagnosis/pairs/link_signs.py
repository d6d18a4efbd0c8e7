"""Signs of the links of a pair that tests do not show: carriers that changed, and counters of errors that moved."""

from __future__ import annotations

from fabtui.model.counter_log import flatten
from fabtui.model.endpoints import node_of
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: Counters of an interface that count damaged frames; others count what a busy node drops.
_OF_INTERFACE = frozenset({"carrier_changes", "rx_crc_errors", "rx_errors", "tx_errors"})


class LinkSigns:
    """Counters of the interfaces and ports of a session that moved and count errors."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._of_node: dict[str, dict[str, str]] = {}

    def of(self, src: str, dst: str) -> str:
        """Return a sign at the NIC of an end of a pair as text, or ""; pairs within a node use no NIC."""
        if node_of(src) == node_of(dst):
            return ""
        numbers = [self._model.table.number(end) for end in (src, dst)]
        ends = [self._model.endpoints[number] for number in numbers if number is not None]
        found = (self._at(end.node).get(end.nic or "") for end in ends)
        return next((sign for sign in found if sign), "")

    def _at(self, node: str) -> dict[str, str]:
        """Return the signs at a node by NIC."""
        if node not in self._of_node:
            found = self._of_node.setdefault(node, {})
            moved = self._model.counters.between(node, float("-inf"), float("inf"))
            errors = {tuple(path) for path in moved.get("errors", ())}
            for path, count in flatten(moved).items():
                counts = path in errors and (path[0] == "hca" or path[-1] in _OF_INTERFACE)
                if path[0] in ("hca", "net") and counts:
                    nic = path[1].partition("/")[0]
                    found.setdefault(nic, one_line(f"{node} {nic}: {path[-1]} + {count} during the session", 200))
            for (of, nic), count in self._model.counters.carrier_changes.items():
                if of == node:
                    found[nic] = one_line(f"{node} {nic}: carrier changed {count} times during the session", 200)
        return self._of_node[node]
