"""Cost of faults: sessions over simulated nodes whose rank hosts take seconds to start.

    python bench/rankfaults.py [--load 3] [--attach 0.5] [--timeout 10] [--only NAME]

Two nodes of four endpoints, as tests/device/test_faults.py has them on GPUs, simulated inside this process: no GPU and
no PyTorch is needed. A rank host takes `--load` seconds for its interpreter, libraries and the driver, and `--attach`
for each of its endpoints. On eight H200 the driver alone took 1.7 to 2.8 s, eight contexts 1.0 s, NCCL's kernels 0.5 to
1.2 s. Printed are the seconds beyond a healthy sweep, the starts of rank hosts, and the sides of pairs that waited
for a deadline without success. The bar: no fault costs more than one deadline; two faults that each
end a rank host cost at most two.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from tests.unit.session.slownodes import Play, SlowNodes

GPUS = {"n000": 4, "n001": 4}
SLOW: dict[str, Any] = {"ends": 0.3, "each": 0.25, "lets_go": 0.5}
FAULTS: dict[str, dict[str, Any]] = {
    "healthy": {},
    "absent": {"faults": {(0, 4): "absent"}},
    "corrupt": {"faults": {(1, 5): "corrupt", (4, 5): "corrupt"}},
    "absent, corrupt": {"faults": {(0, 4): "absent", (1, 5): "corrupt", (4, 5): "corrupt"}},
    "kill": {"faults": {(0, 4): "kill"}},
    "kill, begun last": {"faults": {(1, 7): "kill"}},
    "stop": {"faults": {(4, 0): "stop"}},
    "stop, begun last": {"faults": {(7, 1): "stop"}},
    "nosuch": {"wrong": {"n001"}},
    "kill, stop": {"faults": {(0, 4): "kill", (5, 1): "stop"}},
}


class Found(NamedTuple):
    """Result of a session over nodes with a fault."""

    seconds: float
    bad: set[tuple[str, str]]
    starts: int
    timeouts: int


async def run(play: Play, seconds: float, probes: tuple[str, ...]) -> Found:
    feed = LiveFeed(SessionOptions(hosts=tuple(play.gpus), timeout=seconds, probes=probes, force=True), SlowNodes(play))
    began = time.monotonic()
    await feed.run()
    took = time.monotonic() - began
    model = feed.model
    pairs = {(m.src, m.dst): model.verdict(m) for m in model.measurements() if m.layer is Layer.P2P}
    await feed.close()
    bad = {pair for pair, verdict in pairs.items() if verdict is not Verdict.OK}
    return Found(took, bad, sum(link.spawns for link in play.links.values()), play.timeouts)


def main() -> int:
    """Run the benchmark; the exit code is 1 where a bar is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=3.0)
    parser.add_argument("--attach", type=float, default=0.5)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--probes", default="p2p")
    parser.add_argument("--silent", action="store_true", help="supervisors do not report that a rank host is stopped")
    parser.add_argument("--only", action="append", choices=list(FAULTS))
    args = parser.parse_args()
    print(f"a rank host takes {args.load:g} s and {args.attach:g} s for each of its 4 endpoints;", end=" ")
    print(f"timeout {args.timeout:g} s")
    print(f"{'fault':18} {'seconds':>8} {'more':>7} {'bar':>5} {'starts':>7} {'waits':>6} {'bad cells':>10}")
    healthy, good = 0.0, True
    for name in ["healthy", *(n for n in args.only or FAULTS if n != "healthy")]:
        play = Play(GPUS, load=args.load, attach=args.attach, reports_stops=not args.silent, **{**SLOW, **FAULTS[name]})
        found = asyncio.run(run(play, args.timeout, tuple(args.probes.split(","))))
        healthy = healthy or found.seconds
        more = found.seconds - healthy
        bar = args.timeout * (2 if name == "kill, stop" else 1)
        good &= more <= bar
        print(
            f"{name:18} {found.seconds:8.1f} {more:7.1f} {'ok' if more <= bar else 'OVER':>5} "
            f"{found.starts:7} {found.timeouts:6} {len(found.bad):10}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
