"""States of nodes: the keys and values of the probe ``state``; equal values are kept once, a node has its differences.

The first node that reports has all of its keys and values, the others what differs from it, also in recordings.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fabtui.model.facts.node_view import ProbedNode, Value, field
from fabtui.sanitize import one_line

PROBE = "state"
#: Value of a node that lacks a key which others have.
ABSENT = "none"
#: Entries of neighbours, and own MAC addresses, by address. Who has an entry has learned it from the owner.
_ENTRY, _OWN = "lladdr ", "mac "
#: Bounds of what a node may send.
_MOST_TEXT, _MOST_KEYS, _LONGEST = 4 << 20, 16_000, 320
#: Maximum number of keys that are compared; two kernels differ in some hundred.
_MOST_DIFFERING = 2000

Facts = dict[str, str]


def unpacked(value: Mapping[str, Any]) -> Facts:
    """Return keys and values as a node sends them, cleaned.

    Raises:
        ValueError: They are not what the probe sends, or too much.
    """
    unpacker = zlib.decompressobj()
    try:
        facts = json.loads(unpacker.decompress(base64.b64decode(str(value["state"])), _MOST_TEXT))
    except (KeyError, zlib.error, RecursionError) as error:
        raise ValueError(f"the state cannot be read: {error}") from None
    if not isinstance(facts, dict) or len(facts) > _MOST_KEYS or unpacker.unconsumed_tail:
        raise ValueError("the state cannot be read: too much, or of another form")
    return {one_line(str(key), _LONGEST): one_line(str(fact), _LONGEST) for key, fact in facts.items()}


def packed(facts: Facts, node: str, base: Mapping[str, str]) -> dict[str, Any]:
    """Return the result of the probe as it is kept: what differs from ``base``, the facts of ``node``; all without."""
    if not base:
        return {"facts": facts}
    of_node = (_ENTRY, _OWN)
    differs = {key: fact for key, fact in facts.items() if base.get(key) != fact or key.startswith(of_node)}
    return {
        "like": node,
        "differs": differs,
        "absent": [key for key in base.keys() - facts.keys() if not key.startswith(of_node)],
    }


class States:
    """The states of nodes; ``first``: the first results of the probe by node, to which others refer."""

    def __init__(self, nodes: Iterable[ProbedNode], first: Mapping[str, Any]) -> None:
        self._base: Facts = {}
        self._differs: dict[str, Mapping[str, str]] = {}
        for node in nodes:
            result = node.probe_results.get(PROBE)
            base = field(first.get(str(field(result, "like")), result), "facts")
            if not isinstance(base, dict):
                continue
            self._base = self._base or base
            if base is not self._base or "facts" in (result or {}):
                # After a resumption, nodes refer to the states of different ones.
                result = packed(_whole(base, result), "", self._base)
            gone = field(result, "absent")
            self._differs[node.name] = {
                **_texts(result),
                **dict.fromkeys(gone if isinstance(gone, list) else (), ABSENT),
            }
        owners: defaultdict[str, set[str]] = defaultdict(set)
        for facts in (self._base, *self._differs.values()):
            for key, mac in facts.items():
                if key.startswith(_OWN):
                    owners[_ENTRY + key.removeprefix(_OWN)].add(str(mac))
        #: The MAC address of each address that one node alone has, by the key of entries about it.
        self._owners = {key: macs.pop() for key, macs in owners.items() if len(macs) == 1}

    def differing(self, most: int) -> list[str]:
        """Return the keys that have different values, at most ``most`` of them, sorted; at most `_MOST_DIFFERING`."""
        values: defaultdict[str, set[str]] = defaultdict(set)
        for differs in self._differs.values():
            for key, value in differs.items():
                if len(known := values[key]) <= most and value != self._owners.get(key):
                    known.add(str(value))
        keys = sorted(key for key, known in values.items() if 0 < len(known) <= most and not key.startswith(_OWN))
        return keys[:_MOST_DIFFERING]

    def value(self, node: str, key: str) -> Value:
        """Return the value of a key on a node: `ABSENT` if it lacks it, None if its state is unknown."""
        if (differs := self._differs.get(node)) is None:
            return None
        usual = self._owners.get(key) if key.startswith(_ENTRY) else self._base.get(key, ABSENT)
        value = differs.get(key, usual)
        return None if value is None else str(value)


def _texts(result: Mapping[str, Any] | None) -> Facts:
    differs = field(result, "differs")
    return {str(key): str(fact) for key, fact in differs.items()} if isinstance(differs, dict) else {}


def _whole(base: Facts, result: Mapping[str, Any] | None) -> Facts:
    """Return all facts of a result that has the differences from some others."""
    gone = field(result, "absent")
    lacks = set(map(str, gone if isinstance(gone, list) else ()))
    return {key: fact for key, fact in base.items() if key not in lacks} | _texts(result)
