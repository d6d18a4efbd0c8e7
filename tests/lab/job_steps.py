"""Links over steps of a Slurm job, with a node side that echoes: ``python -m tests.lab.job_steps --help``.

Runs on the login node of the lab. Prints JSON: how many answered after which time, why others did not, and what srun
takes on this machine; which frames came back changed, and what was printed before the first one.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fabtui.scheduler import slurm
from fabtui.transport.connector import Connector, ConnectorOptions
from fabtui.transport.link import NodeUnreachable
from tests.wire import fakeside


def memory(program: str) -> list[int]:
    """Return the memory (bytes) of each srun of this process, and of the process that each has to watch it."""
    parents, sizes = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "comm").read_text() == f"{program}\n":
                parents[path.name] = (path / "stat").read_text().rpartition(")")[2].split()[1]
                sizes[path.name] = int((path / "statm").read_text().split()[1]) * 4096
    own = {pid for pid, parent in parents.items() if parent == str(os.getpid())}
    return [size for pid, size in sizes.items() if pid in own or parents[pid] in own]


async def attempt(options: argparse.Namespace) -> dict[str, Any]:
    nodes, steps = options.nodes, options.steps or len(options.nodes)
    names = nodes[:steps] if steps <= len(nodes) else [str(number) for number in range(steps)]
    placements: dict[str, tuple[str, ...]] = {
        n: (f"--jobid={options.job}", f"--nodelist={nodes[i % len(nodes)]}") for i, n in enumerate(names)
    }
    if options.job == "current" and (job := slurm.from_environment()) is not None:
        names, placements = list(job.nodes), dict(job.placements)
    notices: list[str] = []
    echoing = fakeside.options(job=options.job, placements=placements, remote_python=sys.executable)
    settings = ConnectorOptions(
        transport=options.transport, most_apart=1 if options.tree == "on" else 10_000, **echoing
    )
    async with Connector(settings, notices.append) as connector:
        began = time.monotonic()
        opened = await asyncio.gather(*(connector.open(name) for name in names), return_exceptions=True)
        took = time.monotonic() - began
        links = [link for link in opened if not isinstance(link, BaseException)]
        refused = [error for error in opened if isinstance(error, BaseException)]
        try:
            await asyncio.sleep(options.hold)
            return {
                "links": len(links),
                "seconds": took,
                "sruns": memory("srun"),
                "starters": memory(options.transport),
                "refused": [error.text if isinstance(error, NodeUnreachable) else repr(error) for error in refused],
                "wrong": await fakeside.exchange(links[0], options.bytes) if options.bytes else [],
                "banner": links[0].banner if links else "",
                "notices": notices,
            }
        finally:
            await asyncio.gather(*(link.close() for link in links))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("job", help="job, or current")
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("--transport", default="srun", help="srun, or another that calls once for all nodes")
    parser.add_argument("--steps", type=int, default=0, help="number of steps, spread over the nodes (one each)")
    parser.add_argument("--bytes", type=int, default=0, help="bytes that the first one exchanges (0)")
    parser.add_argument("--hold", type=float, default=0, help="time (s) to stay connected (0)")
    parser.add_argument("--tree", default="off", choices=("on", "off"))
    print(json.dumps(asyncio.run(attempt(parser.parse_args()))))
