"""The network of a running job, by the sockets and interfaces of its ranks: the path that passes nothing, or is slow.

A pair of ranks is stuck where data is unacknowledged and the kernel has doubled its time-out again and again
(``backoff``, RFC 6298). The other end shows the direction: if it has received more than was acknowledged, the
acknowledgements are lost, else the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.job.job_sources import JobGroup
from fabtui.diagnosis.job.job_verdict import SourceReading
from fabtui.model.facts.node_view import dicts, number, text
from fabtui.model.job_evidence import JobEvidenceLog, JobReading, JobSource
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import json_list, json_object

#: Age (s) up to which a reading counts.
_FRESH = 8.0
#: Doubled time-outs from which a socket is stuck: 1.4 s after the first lost packet with a time-out of 0.2 s.
_STUCK = 3
#: Bytes that a socket has carried at least: those of a store carry little, and are silent for long.
_LEAST = 10_000
#: Bytes on a socket from which the ranks have worked with each other.
_WORKED = 1_000_000
#: Shares of segments sent again between two readings, and in each of several such times, from which a path loses
#: packets, and their least number: busy processors delay acknowledgements now and then.
_SHARE, _SHARE_AGAIN, _FEWEST = 0.05, 0.02, 5
#: Round trip (us) from which a path is slow, and how many times its shortest one that is.
_SLOW, _TIMES = 10_000, 50
#: Payload (bytes) of small echoes, and bytes of the headers of an echo.
_SMALL, _HEADERS = 56, 28
#: Maximum number of paths that a sentence names.
_MOST = 3

_Row = Mapping[str, Any]
_GROWING = ("acked", "retransmits", "segments_out")


class End(NamedTuple):
    """One end of a connection between two ranks, and what changed since the reading before."""

    node: str
    nic: str
    rank: int
    peer: str  #: Node of the other end; its address if that is unknown.
    peer_rank: int | None
    row: _Row
    other: _Row | None  #: The other end, None if its node has not shown it.
    sent: int  #: Bytes acknowledged since the reading before.
    again: int  #: Segments sent again since then.
    segments: int  #: Segments sent since then.
    lossy: bool  #: Whether it lost packets then, and before.
    late: bool  #: Whether its round trips were slow then, and before.

    @property
    def is_stuck(self) -> bool:
        return bool(self.row.get("unacked")) and (number(self.row.get("backoff")) or 0) >= _STUCK and not self.sent

    @property
    def forward(self) -> bool | None:
        """True if what it sends is lost, False if the acknowledgements are; None if the other end does not show it."""
        if self.other is None:
            return None
        return _int(self.other, "received") - _int(self.row, "acked") <= 0


class JobNetwork(NamedTuple):
    """Evidence from the network of a job."""

    reading: SourceReading
    stuck: str  #: The path that passes nothing, as a sentence: ``n000 > n001 on eth0 passes nothing``; "" if none is.
    slow: str  #: The path that is slow or loses packets, likewise.
    since: float  #: Since when nothing passes (epoch seconds), as far as it is known.
    next: tuple[str, str] | None  #: Node and command that show it.
    moves: float | None  #: Latest time at which data of the ranks was seen to arrive; None if never.
    whole: bool  #: Whether all nodes of the job have shown theirs.
    worked: bool  #: Whether the ranks have exchanged data in earnest: the job is not starting.
    within: bool  #: Whether all connections of the ranks lead to nodes of the session: the job has no others.


def job_network(log: JobEvidenceLog, group: JobGroup, known: Mapping[str, str]) -> JobNetwork | None:
    """Return what the sockets and interfaces of a job show; None if no node has shown any of late.

    Args:
        log: The evidence.
        group: The ranks of the job.
        known: Nodes by address, for those that show nothing now.
    """
    readings = {
        node: kept
        for node, kept in log.readings(JobSource.NETWORK)
        if node in group.nodes and group.now - kept[-1].time <= _FRESH
    }
    if not readings:
        return None
    at = max(kept[-1].time for kept in readings.values())
    homes = dict(known)
    for node, kept in log.readings(JobSource.NETWORK):
        homes.update(dict.fromkeys(json_object(kept[-1].value, "addresses"), node))
    ends = _ends(readings, homes)
    dark = _dark(readings, ends)
    stuck = [end for end in ends if end.is_stuck]
    words, step = _stuck_words(ends, dark)
    words += _by_size(readings.values()) if words and not dark else ""
    slow, slow_step = _slow_words(ends) if not words else ("", None)
    silent = [(_int(end.row, "last_recv")) / 1000 for end in stuck]
    moved = at if any(end.sent for end in ends) else None
    blind = "; ".join(dict.fromkeys(one_line(str(one), 200) for kept in readings.values() for one in _problems(kept)))
    if not ends and not blind:
        blind = "no TCP connection between ranks of different nodes: RDMA or shared memory is not visible here"
    result = words or slow or _calm(ends)
    reading = SourceReading("sockets", result, blind, at)
    worked = any(_int(end.row, "acked") + _int(end.row, "received") >= _WORKED for end in ends)
    within = bool(ends) and all(end.peer in homes.values() for end in ends)
    since = at - min(silent, default=0.0)
    return JobNetwork(
        reading, words, slow, since, step or slow_step, moved, set(group.nodes) <= set(readings), worked, within
    )


def _by_size(readings: Iterable[Sequence[JobReading]]) -> str:
    """Return what echoes along stuck paths add: only small packets pass, or all echoes do and TCP does not."""
    rows = [row for kept in readings for row in dicts(kept[-1].value.get("pings"))]
    small, large = (
        any(_int(row, "received") for row in rows if (_int(row, "size") > _SMALL) is size) for size in (False, True)
    )
    largest = max((_int(row, "size") + _HEADERS for row in rows), default=0)
    if not small:
        return ""
    return "; ping passes: a firewall?" if large else f"; packets of {largest} bytes are lost, small ones pass: MTU"


def _problems(kept: Sequence[JobReading]) -> list[Any]:
    return json_list(kept[-1].value.get("problems"))[:_MOST]


def _int(row: _Row | None, name: str) -> int:
    return int(number((row or {}).get(name)) or 0)


def _ends(readings: Mapping[str, Sequence[JobReading]], homes: Mapping[str, str]) -> list[End]:
    """Return the ends of the connections between ranks of different nodes that have carried data."""
    rows = {node: _rows(kept[-1]) for node, kept in readings.items()}
    ends = []
    for node, kept in readings.items():
        before, *earlier = [_rows(reading) for reading in [*reversed(kept)][1:3]] or [{}]
        nics = json_object(kept[-1].value, "addresses")
        for key, row in rows[node].items():
            local, remote = key
            peer = homes.get(remote[0], remote[0])
            if peer == node or remote[0] == local[0] or _int(row, "acked") + _int(row, "received") < _LEAST:
                continue
            other = rows.get(peer, {}).get((remote, local))
            was = before.get(key, row)
            sent, again, segments = (_int(row, name) - _int(was, name) for name in _GROWING)
            times = [(was, row), *((old, was) for old in [each.get(key) for each in earlier] if old is not None)]
            rank = number(row.get("rank"))
            peer_rank = None if other is None else number(other.get("rank"))
            if rank is not None:
                place = (node, text(nics.get(local[0])) or "", int(rank), peer)
                peer_place = None if peer_rank is None else int(peer_rank)
                ends.append(End(*place, peer_place, row, other, sent, again, segments, _loses(times), _delays(times)))
    return ends


def _rows(reading: JobReading) -> dict[tuple[tuple[str, int], tuple[str, int]], _Row]:
    return {_key(row): row for row in dicts(reading.value.get("sockets"))}


def _loses(times: Sequence[tuple[_Row, _Row]]) -> bool:
    """Return True if a socket sent many segments again in each of some times, given before and after."""
    least = _SHARE if len(times) == 1 else _SHARE_AGAIN
    for before, after in times:
        again, segments = (_int(after, name) - _int(before, name) for name in _GROWING[1:])
        if again < _FEWEST or again < least * segments:
            return False
    return True


def _delays(times: Sequence[tuple[_Row, _Row]]) -> bool:
    """Return True if round trips of a socket were slow at each of some times: busy processors answer late, too."""
    rows = [row for pair in times for row in pair]
    return all(_int(row, "rtt") > max(_SLOW, _TIMES * _int(row, "min_rtt")) for row in rows) and any(
        _int(after, "acked") > _int(before, "acked") for before, after in times
    )


def _key(row: _Row) -> tuple[tuple[str, int], tuple[str, int]]:
    local, remote = (json_list(row.get(name)) for name in ("local", "remote"))
    if len(local) != 2 or len(remote) != 2:
        return ("", 0), ("", 0)
    return (str(local[0])[:64], int(number(local[1]) or 0)), (str(remote[0])[:64], int(number(remote[1]) or 0))


def _dark(readings: Mapping[str, Sequence[JobReading]], ends: Iterable[End]) -> list[tuple[str, str]]:
    """Return the interfaces (with their nodes) that ranks use and that have no carrier."""
    used = dict.fromkeys((end.node, end.nic) for end in ends if end.nic)
    nics = {node: json_object(kept[-1].value, "nics") for node, kept in readings.items()}
    return [(node, nic) for node, nic in used if json_object(nics[node], nic).get("carrier") is False]


def _stuck_words(ends: Sequence[End], dark: Sequence[tuple[str, str]]) -> tuple[str, tuple[str, str] | None]:
    """Return the sentence about the paths that pass nothing, and where to look."""
    if dark:
        node, nic = dark[0]
        also = f" (also {', '.join(f'{node} {nic}' for node, nic in dark[1 : 1 + _MOST])})" if dark[1:] else ""
        return f"{node} {nic}, which its ranks use, has no carrier{also}", (node, f"ip -s link show dev {nic}")
    stuck = [end for end in ends if end.is_stuck]
    if not stuck:
        return "", None
    paths = list(dict.fromkeys(_path(end) for end in stuck))
    nodes = [{path[0], path[1]} for path in paths]
    common = set.intersection(*nodes) if len({frozenset(pair) for pair in nodes}) > 1 else set()
    first = stuck[0]
    again = _int(first.row, "retransmits")
    proof = f" ({again} retransmits on the socket of rank {first.rank}"
    proof += f" to rank {first.peer_rank})" if first.peer_rank is not None else f" to {first.peer})"
    look = (first.node, f"ping -c 3 -W 1 -I {first.row['local'][0]} {first.row['remote'][0]}")
    if len(common) == 1:
        (node,) = common
        nics = sorted({end.nic for end in ends if end.node == node} - {""})
        sends, receives = ({path[at] == node for path in paths} == {True} for at in (0, 1))
        way = "sends nothing to" if sends else "receives nothing from" if receives else "passes nothing to or from"
        others = fold(sorted({name for pair in nodes for name in pair} - {node}))
        return f"{node}{' on ' + nics[0] if len(nics) == 1 else ''} {way} {others}{proof}", look
    words = [f"{source} > {target}{' on ' + nic if nic else ''}" for source, target, nic in paths[:_MOST]]
    both = len(paths) == 2 and paths[0][:2] == paths[1][1::-1]
    if both:
        words = [f"{paths[0][0]} - {paths[0][1]}{' on ' + paths[0][2] if paths[0][2] else ''}"]
    more = f" and {count(len(paths) - _MOST, 'more path')}" if len(paths) > _MOST else ""
    verb = "passes" if len(words) == 1 else "pass"
    return f"{', '.join(words)}{more} {verb} nothing{proof}", look


def _path(end: End) -> tuple[str, str, str]:
    """Return the direction in which nothing passes: sender, receiver, and interface of the sender where known."""
    if end.forward is False:
        return end.peer, end.node, end.nic
    return end.node, end.peer, end.nic


def _slow_words(ends: Sequence[End]) -> tuple[str, tuple[str, str] | None]:
    """Return the sentence about the paths that lose packets or delay them, by the node that they have in common."""
    lossy = [end for end in ends if end.lossy]
    late = [end for end in ends if end.late]
    for bad, what in ((late, "delays"), (lossy, "loses")):
        if not bad:
            continue
        pairs = {frozenset((end.node, end.peer)) for end in bad}
        common = set.intersection(*map(set, pairs)) if len(pairs) > 1 else set()
        every = {name for end in ends for name in (end.node, end.peer)}
        # With one pair of nodes, or all, no node stands out.
        place = next(iter(common)) if len(common) == 1 and len(every) > 2 else ""
        worst = max(bad, key=lambda end: end.again / max(1, end.segments) if what == "loses" else _int(end.row, "rtt"))
        path = f"{worst.node} > {worst.peer}" + (f" on {worst.nic}" if worst.nic else "")
        proof = f"{100 * worst.again / max(1, worst.segments):.2g} % of the segments are sent again"
        if what == "delays":
            usual, now = (_int(worst.row, name) / 1000 for name in ("min_rtt", "rtt"))
            proof = f"a round trip takes {now:.3g} ms, at best {usual:.2g}"
        where = f"all paths with {place}" if place and len(pairs) == len(every) - 1 else path
        verb = {"loses": "lose packets", "delays": "are slow"}[what]
        verb = verb if where != path else {"loses": "loses packets", "delays": "is slow"}[what]
        subject = place or worst.node
        nic = f" dev {worst.nic}" if worst.nic else ""
        return f"{where} {verb}: {proof}" + (f" ({path})" if where != path else ""), (subject, f"ip -s link show{nic}")
    return "", None


def _calm(ends: Sequence[End]) -> str:
    """Return what connections show where none is stuck or slow."""
    if not ends:
        return ""
    moved = sum(end.sent for end in ends)
    quiet = not moved and not any(_int(end.row, "unacked") for end in ends)
    words = count(len(ends), "connection end") + " between nodes"
    return f"{words}: nothing is on its way, and nothing is lost" if quiet else f"{words}: none is stuck"
