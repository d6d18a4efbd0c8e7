"""Connect to all nodes once from a cold process, as the tool does, and print the cost; ``fanout.py`` runs it.

    python bench/fanclient.py true|alone|hello|look|stages|crypto SSH_CONFIG NODE,NODE,...

It uses the tool's own code from its arguments on: parser, options, session, transport. ``true`` logs in to every node,
runs ``true`` there and waits for its exit status, as clush does. ``hello`` opens the tool's links: the supervisor runs
on every node and has sent its first frame. ``look`` also reads every node's inventory, which first sends the probes.
``stages`` does the same, but all nodes wait for each other after each stage, so that each stage has its own cost.
``alone`` does what ``true`` does, by asyncssh without the tool.
``crypto`` measures the share of cryptography in the same run.

The output is one line of JSON. Times are in seconds. Processor time is user and system of this process without imports;
the time of its children (``ssh -G``) is separate.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

DEADLINE = 60.0


class ImportClock:
    """Adds up the processor time of imports, those within functions too."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self._thread = threading.local()
        self._import = builtins.__import__
        builtins.__import__ = self._timed

    def _timed(self, *args: Any, **named: Any) -> Any:
        if getattr(self._thread, "within", False):
            return self._import(*args, **named)
        self._thread.within = True
        began = time.thread_time()
        try:
            return self._import(*args, **named)
        finally:
            self.cpu += time.thread_time() - began
            self._thread.within = False


class CryptoClock:
    """Adds up the processor time of the cryptography below asyncssh."""

    def __init__(self) -> None:
        import asyncssh.connection
        import asyncssh.encryption
        import asyncssh.kex_dh
        import asyncssh.public_key

        self.seconds = {"handshake": 0.0, "cipher": 0.0}
        key_exchange: Any = asyncssh.kex_dh
        for name in ("__init__", "get_public", "get_shared"):
            self._time(key_exchange.Curve25519DH, name, "handshake")
        self._time(asyncssh.public_key.SSHKey, "verify", "handshake")
        self._time(asyncssh.public_key.SSHLocalKeyPair, "sign", "handshake")
        for name in ("encrypt_packet", "decrypt_header", "decrypt_packet"):
            self._time(asyncssh.encryption.GCMEncryption, name, "cipher")

    def _time(self, owner: Any, name: str, total: str) -> None:
        plain = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return plain(*args, **named)
            finally:
                self.seconds[total] += time.thread_time() - began

        setattr(owner, name, timed)


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    """Return processor seconds, user and system."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def _drain(client: Any) -> None:
    async for _ in client.messages():
        pass


def _nothing(*_: Any) -> None:
    """Take what nobody waits for."""


async def _all(one: Callable[[str], Coroutine[Any, Any, Any]], hosts: tuple[str, ...]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(host)) for host in hosts]
    return [task.result() for task in tasks]


async def true(options: Any, done: Callable[[], None]) -> None:
    """Run ``true`` on all nodes."""
    from fabtui.transport.connector import Connector, ConnectorOptions

    way = ConnectorOptions(ssh_config=options.ssh_config, connect_timeout=DEADLINE)
    async with Connector(way, _nothing) as reach:

        async def one(host: str) -> None:
            login = await reach.log_in(host)
            from fabtui.transport.connection import ChannelPipe

            pipe = await ChannelPipe.run(login, "true", DEADLINE)
            ending = await pipe.ending()
            if ending.status != 0:
                raise SystemExit(f"{host}: true {ending.describe()}")
            pipe.abort()
            await pipe.wait_closed()

        await _all(one, options.hosts)
        done()


async def alone(options: Any, done: Callable[[], None]) -> None:
    """Run ``true`` on all nodes by asyncssh alone, with the settings of OpenSSH for one node: the floor of ``true``."""
    import asyncssh

    from fabtui.transport.ssh_config import Resolver

    resolver = Resolver(options.ssh_config)
    first = await resolver.resolve(options.hosts[0])
    await resolver.close()
    given: dict[str, Any] = {
        "port": first.port,
        "username": first.user,
        "client_keys": list(filter(os.path.exists, first.identities)),
        "known_hosts": first.settings["userknownhostsfile"].split()[0],
        "agent_path": None,
        "config": None,
        "encryption_algs": ["aes128-gcm@openssh.com"],
    }

    async def one(host: str) -> None:
        async with asyncssh.connect(host, **given) as connection:
            await connection.run("true", check=True)

    await _all(one, options.hosts)
    done()


async def links(options: Any, done: Callable[[], None], look: bool = False) -> None:
    """Open the links to all nodes, take their inventories if that is asked for, and close them."""
    from fabtui.session.node_client import NodeClient
    from fabtui.session.probe_runner import inventory_args
    from fabtui.transport.connector import Connector, ConnectorOptions

    serving: list[asyncio.Task[Any]] = []
    way = ConnectorOptions(ssh_config=options.ssh_config, connect_timeout=DEADLINE)
    async with Connector(way, _nothing) as reach:

        async def one(host: str) -> Any:
            link = await reach.open(host)
            if look:
                remote = NodeClient(link)
                serving.append(asyncio.create_task(_drain(remote)))
                value = await remote.probe("inventory", inventory_args(options), DEADLINE)
                if not value.get("host"):
                    raise SystemExit(f"{host} gave no inventory: {value}")
            return link

        opened = await _all(one, options.hosts)
        done()
        await asyncio.gather(*(link.close() for link in opened))
        await asyncio.gather(*serving, return_exceptions=True)


async def stages(options: Any, found: dict[str, float], crypto: CryptoClock | None) -> None:
    """Run the steps of ``look`` one by one, and return the cost of each."""
    from fabtui.session.node_client import NodeClient
    from fabtui.session.probe_runner import inventory_args
    from fabtui.transport import payload as bootstrap
    from fabtui.transport.connection import ChannelPipe
    from fabtui.transport.connector import ConnectorOptions
    from fabtui.transport.dial import Dialer, Gates
    from fabtui.transport.framed_link import FramedLink
    from fabtui.transport.jump_hosts import Logins
    from fabtui.transport.login_answers import LoginAnswers
    from fabtui.transport.payload import Cargo
    from fabtui.transport.ssh_config import Resolver

    way = ConnectorOptions()
    resolver = Resolver(options.ssh_config)
    gates, answers = Gates(way.handshakes, way.direct_handshakes), LoginAnswers(None)
    logins = Logins(resolver, "config", DEADLINE, gates, _nothing, answers, Dialer())
    cargo = Cargo(bootstrap.ENTRY, None, ())
    nonce = "ab"
    marks = [("", cpu())]

    def mark(name: str) -> None:
        marks.append((name, cpu()))

    resolved = await asyncio.gather(*map(resolver.resolve, options.hosts))
    mark("resolve")
    logged_in = await asyncio.gather(*map(logins.log_in, resolved))
    mark("log in")
    command = bootstrap.command()
    pipes = await asyncio.gather(*(ChannelPipe.run(login, command, DEADLINE) for login in logged_in))
    mark("channel")

    async def start(host: str, pipe: Any) -> FramedLink:
        config = {"nonce": nonce, "node": host, "lease": 10.0, "python": None, "env": {}}
        payload = await cargo.payload(config)
        return await FramedLink.start(pipe, host, "asyncssh", payload, nonce, way.limits, cargo=cargo)

    opened = await asyncio.gather(*map(start, options.hosts, pipes))
    mark("payload and hello")
    remotes = [NodeClient(link) for link in opened]
    serving = [asyncio.create_task(_drain(remote)) for remote in remotes]
    args = inventory_args(options)
    await asyncio.gather(*(remote.probe("inventory", args, DEADLINE) for remote in remotes))
    mark("probes and inventory")
    await asyncio.gather(*(link.close() for link in opened))
    await asyncio.gather(*serving, return_exceptions=True)
    mark("close")
    if crypto is not None:
        found |= {f"of it {name}": seconds for name, seconds in crypto.seconds.items()}
    else:
        found |= {f"stage {name}": after - before for (_, before), (name, after) in itertools.pairwise(marks)}
    await cargo.close()
    await logins.close()
    await resolver.close()


def main() -> None:
    mode, config, names = sys.argv[1:]
    imports = ImportClock()
    from fabtui.cli.options_from_args import request_from
    from fabtui.cli.parser import build_parser

    words = ["run", "--nodes", names, "--ssh-config", config, "--no-record"]
    options = request_from(build_parser().parse_args(words)).options
    import fabtui.session.feeds.live  # noqa: F401  (what the tool has loaded when it begins to connect)

    imported = imports.cpu
    before = cpu() - imported
    found: dict[str, float] = {}

    def done() -> None:
        found["done"] = time.perf_counter()
        found["cpu"] = cpu() - imports.cpu - before

    if mode in ("stages", "crypto"):
        from fabtui.transport.connector import load_asyncssh

        load_asyncssh()
        asyncio.run(stages(options, found, CryptoClock() if mode == "crypto" else None))
    elif mode in ("true", "alone"):
        asyncio.run((true if mode == "true" else alone)(options, done))
    else:
        asyncio.run(links(options, done, look=mode == "look"))
    found["whole"] = cpu() - imports.cpu - before
    found["imports"] = imports.cpu
    found["children"] = cpu(resource.RUSAGE_CHILDREN)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
