"""Run ``true`` on all nodes once from a cold process, as the tool logs in, and print the cost; ``fanout.py`` runs it.

    python bench/fanclient.py SSH_CONFIG NODE,NODE,...

It uses the tool's own code from its arguments on: parser, options, session, transport. It logs in to every node, runs
``true`` there and waits for its exit status, as clush does.

The output is one line of JSON, in seconds: processor time, user and system, of this process without imports, of
imports, and of its children (``ssh -G``).
"""

import asyncio
import builtins
import json
import resource
import sys
import threading
import time
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


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    """Return processor seconds, user and system."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def run_true(options: Any) -> None:
    """Run ``true`` on all nodes."""
    from fabtui.transport.connector import Connector, ConnectorOptions

    way = ConnectorOptions(ssh_config=options.ssh_config, connect_timeout=DEADLINE)
    async with Connector(way, lambda _: None) as reach, asyncio.TaskGroup() as group:

        async def on_node(host: str) -> None:
            login = await reach.log_in(host)
            from fabtui.transport.connection import ChannelPipe

            pipe = await ChannelPipe.run(login, "true", DEADLINE)
            ending = await pipe.ending()
            if ending.status != 0:
                raise SystemExit(f"{host}: true {ending.describe()}")
            pipe.abort()
            await pipe.wait_closed()

        for host in options.hosts:
            group.create_task(on_node(host))


def main() -> None:
    config, names = sys.argv[1:]
    imports = ImportClock()
    from fabtui.cli.options_from_args import request_from
    from fabtui.cli.parser import build_parser

    words = ["run", "--nodes", names, "--ssh-config", config, "--no-record"]
    options = request_from(build_parser().parse_args(words)).options
    import fabtui.session.feeds.live  # noqa: F401  (what the tool has loaded when it begins to connect)

    before = cpu() - imports.cpu
    asyncio.run(run_true(options))
    whole = cpu() - imports.cpu - before
    print(json.dumps({"whole": whole, "imports": imports.cpu, "children": cpu(resource.RUSAGE_CHILDREN)}))


if __name__ == "__main__":
    main()
