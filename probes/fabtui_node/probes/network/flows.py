"""Flows of a pair of addresses: datagrams and TCP connections from several source ports, in rounds.

Switches choose one of several equal paths by a hash of addresses and ports, so that one source port tests one path. The
same ports are used in each round: a flow that never passes takes a broken path, one that passes later met a limit.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import time
from typing import Callable, Dict, List, Optional, Tuple

from fabtui_node.protocol import OF_CALLER, ErrorKind
from fabtui_node.registry import Value
from fabtui_node.system import sysfs

#: Maximum number of source ports of a target, of rounds, and of datagrams of a flow in a round.
MAX_FLOWS, MAX_ROUNDS, MAX_DATAGRAMS = 64, 8, 8
#: Maximum number of sockets that are open at once.
MAX_SOCKETS = 256
#: How long (s) a connection may take.
CONNECT_WAIT = 1.0
#: Source ports to try before a flow is given up, because others use them.
_PORTS_TRIED = 16
_DEFAULT_PORTS = (32768, 60999)

#: Values of ``tcp`` of a flow and round.
PASSES, SILENT, REFUSED, UNKNOWN = 1, 0, -1, None
#: Failures of a connection that somebody answered for.
_ANSWERED = (ErrorKind.CONNECTION_REFUSED, ErrorKind.UNREACHABLE)

# Options of <linux/in.h> and <linux/in6.h>: time to live, and errors of a socket with their origin.
_OPTIONS = {4: (socket.IPPROTO_IP, 2, 11), 6: (socket.IPPROTO_IPV6, 16, 25)}
#: ``struct sock_extended_err``: errno, origin, type, code, padding, information, data; the origin's address follows.
_ERROR = struct.Struct("=IBBBBII")
_SOCKADDR = {4: (4, socket.AF_INET), 6: (8, socket.AF_INET6)}
_TIME_EXCEEDED = {4: (2, 11), 6: (3, 3)}
MAX_HOPS = 12
_TRACES = 3
_TRACE_WAIT = 0.4


def bound_socket(address: str, kind: int, prepare: Callable[[socket.socket], None], port: int = 0) -> socket.socket:
    """Return a socket that is bound to an address and does not block, once it is prepared."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        sock.setblocking(False)
        sock.bind((address, port))
        prepare(sock)
    except OSError:
        sock.close()
        raise
    return sock


def ports_to_try(flows: int) -> List[int]:
    """Return different source ports, odd and even ones, of the range that the kernel takes ports from."""
    words = (sysfs.text("/proc/sys", "net/ipv4/ip_local_port_range") or "").split()
    low, high = (int(words[0]), int(words[1])) if len(words) == 2 and all(map(str.isdigit, words)) else _DEFAULT_PORTS
    # What the kernel itself chooses for bound sockets has one parity, and a hash may look at that bit.
    return random.sample(range(low, high + 1), min(flows * _PORTS_TRIED, high + 1 - low))


class Flow:
    """One source port of a target for each protocol, with what happened in each round."""

    def __init__(self, target: Value, at: int, ports: List[int]) -> None:
        self.target = target
        self.at = at
        self._ports = {"udp": list(ports), "tcp": list(ports)}
        self.sent: List[int] = []
        #: Whether somebody answered a datagram with an error: nothing listens there, or a rule rejects.
        self.refused = False
        self.tcp: List[Optional[int]] = []

    def port(self, protocol: str) -> Optional[int]:
        """Return the source port; None if others use all."""
        return next(iter(self._ports[protocol]), None)

    def bound(self, protocol: str) -> socket.socket:
        """Return a socket at the source port, the same in each round unless others took it.

        Raises OSError: there is no such socket.
        """
        kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
        sock = socket.socket(socket.AF_INET6 if ":" in self.target["src"] else socket.AF_INET, kind)
        try:
            sock.setblocking(False)
            if kind == socket.SOCK_STREAM:
                # Closed with a reset: the port is free for the next round at once.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._bind(sock, self._ports[protocol])
        except OSError:
            sock.close()
            raise
        return sock

    def _bind(self, sock: socket.socket, ports: List[int]) -> None:
        while True:
            try:
                sock.bind((self.target["src"], ports[0] if ports else 0))
                return
            except OSError:
                if len(ports) < 2:
                    raise
                ports.pop(0)


def try_flows(
    targets: List[Value], plan: Dict[str, int], head: Callable[[int, int], bytes], pause: float, end: float
) -> List[Value]:
    """Send datagrams and connect from several source ports to each target; return a row for each.

    ``plan``: ``flows``, ``rounds`` and ``datagrams``. ``head`` returns the datagram of a number. Datagrams of a flow
    and round have the target number ``number + flow * rounds + round``, so that the receiver counts them separately.
    """
    flows = []
    for target in targets:
        ports = ports_to_try(plan["flows"])
        flows += [Flow(target, at, ports[at :: plan["flows"]]) for at in range(plan["flows"])]
    for number in range(plan["rounds"]):
        if number:
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
        random.shuffle(flows)
        for start in range(0, len(flows), MAX_SOCKETS):
            if time.monotonic() + CONNECT_WAIT >= end:
                break
            _send([one for one in flows[start : start + MAX_SOCKETS] if one.target["udp"]], number, plan, head)
            _connect([one for one in flows[start : start + MAX_SOCKETS] if one.target["tcp"]])
    return [_row(target, [one for one in flows if one.target is target]) for target in targets]


def _row(target: Value, flows: List[Flow]) -> Value:
    flows.sort(key=lambda one: one.at)
    return {
        "number": target["number"],
        "flows": [{"port": one.port("udp"), "sent": one.sent, "refused": one.refused, "tcp": one.tcp} for one in flows],
    }


def _send(flows: List[Flow], number: int, plan: Dict[str, int], head: Callable[[int, int], bytes]) -> None:
    """Send the datagrams of a round, in turn: what is lost at one moment is not all of one flow's."""
    opened: List[Tuple[Flow, socket.socket]] = []
    sent: Dict[int, int] = {id(flow): 0 for flow in flows}
    try:
        for flow in flows:
            with contextlib.suppress(OSError):
                sock = flow.bound("udp")
                opened.append((flow, sock))
                sock.connect((flow.target["dst"], flow.target["udp"]))
        for datagram in range(plan["datagrams"]):
            for flow, sock in opened:
                of_round = flow.target["number"] + flow.at * plan["rounds"] + number
                try:
                    sock.send(head(of_round, datagram))
                    sent[id(flow)] += 1
                except OSError as problem:
                    # It is about an earlier datagram.
                    flow.refused = flow.refused or ErrorKind.of_socket(problem) in _ANSWERED
            time.sleep(0.002)
    finally:
        for _, sock in opened:
            sock.close()
        for flow in flows:
            flow.sent.append(sent[id(flow)])


def _connect(flows: List[Flow]) -> None:
    waiting: Dict[int, Tuple[socket.socket, Flow]] = {}
    states: Dict[int, Optional[int]] = {id(flow): UNKNOWN for flow in flows}
    poll = select.poll()
    try:
        for flow in flows:
            with contextlib.suppress(OSError):
                sock = flow.bound("tcp")
                if sock.connect_ex((flow.target["dst"], flow.target["tcp"])) in OF_CALLER:
                    sock.close()
                    continue
                waiting[sock.fileno()] = (sock, flow)
                poll.register(sock.fileno(), select.POLLOUT)
                states[id(flow)] = SILENT
        end = time.monotonic() + CONNECT_WAIT
        while waiting and time.monotonic() < end:
            for number, _ in poll.poll(int(1000 * max(0.001, end - time.monotonic()))):
                sock, flow = waiting.pop(number)
                poll.unregister(number)
                failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                answered = failed and ErrorKind.of_socket(OSError(failed, "")) in _ANSWERED
                states[id(flow)] = REFUSED if answered else SILENT if failed else PASSES
                sock.close()
    finally:
        for sock, _ in waiting.values():
            sock.close()
        for flow in flows:
            flow.tcp.append(states[id(flow)])


def trace(target: Value, port: int) -> List[Optional[str]]:
    """Return who answers that a datagram of a flow was too old, by its time to live from 1 on; None for nobody.

    No root is needed: the kernel keeps the errors of a socket, with who sent them (``IP_RECVERR``). The list ends with
    the last one who answered.
    """
    family = 6 if ":" in target["src"] else 4
    level, ttl, receive_errors = _OPTIONS[family]
    hosts: List[Optional[str]] = []
    for hops in range(1, MAX_HOPS + 1):

        def prepare(sock: socket.socket, hops: int = hops) -> None:
            sock.setsockopt(level, ttl, hops)
            sock.setsockopt(level, receive_errors, 1)
            sock.connect((target["dst"], target["udp"]))

        try:
            with bound_socket(target["src"], socket.SOCK_DGRAM, prepare, port) as sock:
                hosts.append(_asked(sock, family))
        except OSError:
            hosts.append(None)
        # Two silent hops in a row are the end: the destination answers nothing either.
        if hosts[-2:] == [None, None]:
            break
    while hosts and hosts[-1] is None:
        hosts.pop()
    return hosts


def _asked(sock: socket.socket, family: int) -> Optional[str]:
    """Return the router that answers a datagram of a socket, or None."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)  # Errors are always reported.
    for _ in range(_TRACES):
        with contextlib.suppress(OSError):
            sock.send(b"")
        if poll.poll(int(1000 * _TRACE_WAIT / _TRACES)) and (router := _origin(sock, family)) is not None:
            return router
    return None


def _origin(sock: socket.socket, family: int) -> Optional[str]:
    try:
        _, ancillary, _, _ = sock.recvmsg(64, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return None
    at, kind = _SOCKADDR[family]
    for _, _, data in ancillary:
        if len(data) < _ERROR.size + at + (4 if family == 4 else 16):
            continue
        _, origin, number, _, _, _, _ = _ERROR.unpack_from(data)
        address = data[_ERROR.size + at :][: 4 if family == 4 else 16]
        if (origin, number) == _TIME_EXCEEDED[family]:
            return socket.inet_ntop(kind, address)
    return None
