"""Probes ``names`` and ``master``: what a node resolves the names of the others to, and whether it reaches an address.

The C library asks name services without a timeout that one could choose. Each query runs in a thread that is left
behind if it is late.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.probes.judgement import texts
from fabtui_node.registry import ProbeSpec

#: Time (s) for all look-ups.
PATIENCE = 2.0
#: Timeout (s) of a TCP connection.
CONNECT_TIMEOUT = 3.0
MOST_NAMES, MOST_ADDRESSES = 256, 8
_AT_ONCE = 16
_MOST_FOUND = 16


def resolve(name: str) -> List[str]:
    """Return the addresses of a name, in order; none if there is no such name.

    Raises:
        OSError: The name service did not answer.
    """
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        return []
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        raise
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in entries))[:_MOST_FOUND]


def look_up_address(address: str) -> float:
    """Return how long (s) the look-up of an address's name takes, found or not."""
    began = time.monotonic()
    with contextlib.suppress(OSError, UnicodeError):
        socket.getnameinfo((address, 0), socket.NI_NAMEREQD)
    return time.monotonic() - began


def in_time(asked: List[Tuple[str, Callable[[], Any]]], within: float) -> Dict[str, Any]:
    """Return the answers that came in time, by the names of the questions; failed questions have none."""
    waiting: "queue.Queue[Tuple[str, Callable[[], Any]]]" = queue.Queue()
    answers: "queue.Queue[Optional[Tuple[str, Any]]]" = queue.Queue()
    for one in asked:
        waiting.put(one)

    def work() -> None:
        while True:
            try:
                name, question = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put((name, question()))
            except (OSError, ValueError):
                answers.put(None)

    until = time.monotonic() + within
    for _ in range(min(_AT_ONCE, len(asked))):
        threading.Thread(target=work, daemon=True).start()
    kept: Dict[str, Any] = {}
    for _ in asked:
        try:
            answer = answers.get(timeout=max(until - time.monotonic(), 0.001))
        except queue.Empty:
            break
        if answer is not None:
            kept[answer[0]] = answer[1]
    return kept


def run_names(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Resolve ``names`` and look up the names of ``addresses`` and of the SSH client, all of them within `PATIENCE`.

    ``host``: the host name. ``names``: the addresses by name, none of a name that does not exist; a name whose answer
    is late is missing. ``reverse``: how long (s) the look-up of each address took, None if it is late.
    """
    own = socket.gethostname()
    client = os.environ.get("SSH_CONNECTION", "").split()[:1]
    addresses = list(dict.fromkeys([*client, *texts(args.get("addresses"))]))[:MOST_ADDRESSES]
    names = list(dict.fromkeys([own, *texts(args.get("names"))]))[:MOST_NAMES]
    asked: List[Tuple[str, Callable[[], Any]]] = []
    asked += [("addr " + one, functools.partial(look_up_address, one)) for one in addresses]
    asked += [("name " + one, functools.partial(resolve, one)) for one in names]
    answers = in_time(asked, min(PATIENCE, deadline))
    return {
        "host": own,
        "names": {name: answers["name " + name] for name in names if "name " + name in answers},
        "reverse": {one: answers.get("addr " + one) for one in addresses},
    }


def run_master(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Connect to ``host`` and ``port`` as a rank does to MASTER_ADDR and MASTER_PORT, and close the connection.

    ``addresses``: those of the host, None if its name was not resolved in time. ``state``: ``connected``, ``refused``,
    ``timeout``, ``unresolved`` or ``failed``; ``error`` of the last address that was tried, or None.
    """
    host, port = str(args.get("host")), int(args.get("port") or 0)
    addresses = in_time([(host, functools.partial(resolve, host))], min(PATIENCE, deadline)).get(host)
    value: Dict[str, Any] = {
        "host": host,
        "port": port,
        "addresses": addresses,
        "state": "unresolved",
        "error": None,
        "seconds": None,
    }
    for address in (addresses or [])[:MOST_ADDRESSES]:
        began = time.monotonic()
        try:
            socket.create_connection((address, port), CONNECT_TIMEOUT).close()
        except ConnectionRefusedError as error:
            value.update(state="refused", error=str(error))
        except socket.timeout:
            value.update(state="timeout", error="no answer within %g s" % CONNECT_TIMEOUT)
        except (OSError, OverflowError) as error:
            value.update(state="failed", error=str(error))
        else:
            value.update(state="connected", error=None, seconds=time.monotonic() - began)
            break
    return value


NAMES = ProbeSpec(
    name="names",
    title="what the node resolves its own name and the names of the other nodes to, and how long that takes",
    phase="inspect",
    passive=True,
    needs="nothing",
    gives="addresses by name, and the time of reverse look-ups; 2 s for all",
    run=run_names,
)

MASTER = ProbeSpec(
    name="master",
    title="whether the node connects to the address and port of --master",
    phase="asked",
    needs="a process that listens there, such as rank 0 of a job",
    gives="addresses of the host, and connected, refused, timeout or unresolved",
    run=run_master,
)
