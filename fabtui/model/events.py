"""The events of a session, as JSON objects: what the journal keeps and the model is built from.

Every event has ``kind``; the journal adds ``seq`` (from 0) and ``time`` (seconds since the epoch). Whoever meets a kind
it does not know passes over it, so that an older fabtui can show a newer recording.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NotRequired, TypedDict

FORMAT = 1


class Kind(StrEnum):
    """The kinds of events.

    ======================  ==========================================================================================
    kind                    fields besides seq, time, kind
    ======================  ==========================================================================================
    ``start``               format, version, nodes [names], options {...}, lab (text or null), faults [text];
                            synthetic (text, where the values were made up)
    ``node``                node, state (`NodeState`), text, hint, backend
    ``inventory``           node, value (the inventory probe's)
    ``endpoints``           endpoints [{number, node, index, kind, name, uuid, bus, nic, rail}], notes {node: text}
    ``look``                node, probe, value (a light probe's result) or error
    ``phase``               name (``connect``, ``look``, ``ping``, ``p2p``, ``all_reduce``, ``done``), total (tests)
    ``running``             pairs [[src, dst]] that have just begun (ordered, endpoint names)
    ``measured``            measurements [Measurement.to_json()]
    ``plan``                slow_below; arms [text]; cells that will not be tested, untested [[src, dst, text]]; what
                            was found out about bad ones, suspects [[src, dst, text]]
    ``counters``            node, since, until (epoch seconds), deltas (`fabtui.model.counter_log`): what the counters
                            of a node moved by between two looks; no event where nothing moved
    ``log``                 level (``info``, ``notice``, ``warning``, ``error``), node or null, text
    ``paused``              on (bool)
    ``watch``               on (bool): tests go on in the background, from the stalest result on
    ``end``                 exit (the exit code), text
    ======================  ==========================================================================================
    """

    START = "start"
    NODE = "node"
    INVENTORY = "inventory"
    ENDPOINTS = "endpoints"
    LOOK = "look"
    PHASE = "phase"
    RUNNING = "running"
    MEASURED = "measured"
    PLAN = "plan"
    COUNTERS = "counters"
    LOG = "log"
    PAUSED = "paused"
    WATCH = "watch"
    END = "end"


class NodeState(StrEnum):
    """How far a node is."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    LOOKING = "looking"
    READY = "ready"
    FAILED = "failed"
    LOST = "lost"

    @property
    def gone(self) -> bool:
        """Whether nothing more can be had of the node."""
        return self in (NodeState.FAILED, NodeState.LOST)


class Event(TypedDict):
    """An event: a JSON object with at least its kind."""

    kind: str
    seq: NotRequired[int]
    time: NotRequired[float]


def event(kind: Kind, **fields: Any) -> dict[str, Any]:
    """Return an event of a kind with its fields."""
    return {"kind": str(kind), **fields}
