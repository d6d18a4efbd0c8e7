"""A connection from a node to the controller, for node sides that one call starts on many nodes at once.

The text of this file runs ahead of the first stage. Standard input of such a process is of no use: srun passes it on to
one task or to all of them. Both ends prove that they know the secret of the session, which the task finds in its
environment: neither takes what a process of another user sends.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import sys
from typing import List

#: Variable with the secret, a name for the call, the port and address of the controller (``-``: Slurm's variables have
#: it), and what was called.
SETTING = "FABTUI_CALL_BACK"
#: Variables in which Slurm gives the address of the machine where srun runs.
ADDRESSES = ("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST")
#: Variables with the name of the node, and with the number of the process.
NAMES = ("FABTUI_NODE", "SLURMD_NODENAME")
NUMBERS = ("SLURM_PROCID", "FLUX_TASK_RANK", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")
#: Exit status of a task that does not reach the controller.
NOT_REACHED = 87
#: Timeout (s) of a connection, and of each answer.
TIMEOUT = 8.0
#: Maximum length (bytes) of a line.
LONGEST = 512


def proof(secret: str, *parts: str) -> str:
    return hmac.new(secret.encode("ascii"), "\n".join(parts).encode("utf-8"), hashlib.sha256).hexdigest()


def _line(end: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\n"):
        more = end.recv(LONGEST)
        data += more
        if not more or len(data) > LONGEST:
            raise OSError("the answer is not that of fabtui")
    return data.decode("ascii", "replace").strip()


def greet(end: socket.socket, secret: str, step: str) -> None:
    """Exchange proofs with the controller, or raise OSError."""
    node, task = (next((os.environ[n] for n in names if os.environ.get(n)), "") for names in (NAMES, NUMBERS))
    node = node or socket.gethostname()
    greeting = " ".join((step, node, task, os.urandom(16).hex()))
    end.sendall((greeting + "\n").encode("utf-8"))
    nonce, _, shown = _line(end).partition(" ")
    if not hmac.compare_digest(shown.encode(), proof(secret, "controller", greeting, nonce).encode()):
        raise OSError("the answer is not that of fabtui")
    end.sendall((proof(secret, "node", greeting, nonce) + "\n").encode("ascii"))


def connect() -> None:
    """Make a connection to the controller standard input and output of this process, or end it."""
    secret, step, port, given, starter = os.environ.pop(SETTING).split()
    problems: List[str] = []
    known = [os.environ[name] for name in ADDRESSES if os.environ.get(name)] if given == "-" else [given]
    for address in dict.fromkeys(known):
        try:
            end = socket.create_connection((address, int(port)), TIMEOUT)
            greet(end, secret, step)
        except OSError as error:
            problems.append("%s port %s: %s" % (address, port, error))
            continue
        with contextlib.suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.settimeout(None)
        os.dup2(end.fileno(), 0)
        os.dup2(end.fileno(), 1)
        end.close()
        if starter == "mpirun":
            # It would end all processes when one of them fails. What is left here ends with the connection.
            if os.fork():
                os._exit(0)
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        return
    reason = "; ".join(problems) or "the login node: its address is unknown"
    sys.stderr.write("fabtui: no connection to %s\n" % reason)
    sys.stderr.flush()
    os._exit(NOT_REACHED)
