"""Drive two rank hosts over the GPUs of this host and print all there is to know, without the rest of fabtui.

Stand-alone: needs the checkout and a python3 (3.9+), nothing installed. Two processes stand for two nodes, each with
half of the GPUs and a host id of its own, so that pairs across them go over the network. Prints a matrix, transports
and the time of each phase.

    python3 tests/device/drive_rankhost.py [--gpus 8] [--bytes 256M] [--library PATH] [--one-node] [--faults]
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wire"))

from rank_controller import Controller, Message

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """Return bytes of 256M and the like."""
    return int(float(text[:-1]) * UNITS[text[-1].upper()]) if text[-1].upper() in UNITS else int(text)


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return rounds of disjoint pairs that cover all pairs (circle method)."""
    ids = [*range(count), *([-1] if count % 2 else [])]
    plan = []
    for _ in range(len(ids) - 1):
        half = len(ids) // 2
        pairs = [(ids[i], ids[-1 - i]) for i in range(half)]
        plan.append([(min(p), max(p)) for p in pairs if -1 not in p])
        ids = [ids[0], ids[-1], *ids[1:-1]]
    return plan


class Drive:
    """One run."""

    def __init__(self, options: argparse.Namespace, controller: Controller) -> None:
        self.options = options
        self.c = controller
        self.began = time.monotonic()
        self.number = 0

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:7.3f}] {text}", flush=True)

    def start(self, faults: list[Message]) -> None:
        count, options = self.options.gpus, self.options
        nodes = (
            [("n0", list(range(count)))]
            if options.one_node
            else [
                ("n0", list(range(count // 2))),
                ("n1", list(range(count // 2, count))),
            ]
        )
        for name, ranks in nodes:
            env = {
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, ranks)),
                "NCCL_HOSTID": f"fabtui-{name}",
                "PYTHONUNBUFFERED": "1",
            }
            self.c.spawn(name, env=env, trace=options.trace)
        for name, ranks in nodes:
            self.c.init(
                name,
                ranks,
                count,
                options.address,
                engine="nccl",
                library=options.library,
                faults=faults,
                start_deadline=90.0,
            )
        took = self.c.until(lambda: len(self.c.of("ready")) + len(self.c.of("failed")) == len(nodes), 100)
        for message in self.c.of("failed"):
            raise SystemExit(f"rank host failed: {message}")
        for host in self.c.hosts.values():
            self.say(f"{host.name} ready: {host.ready['version']}, port {host.ready['port']}, {host.ready['seconds']}")
            for rank in host.ready["ranks"]:
                if not rank["ok"]:
                    self.say(f"  rank {rank['rank']}: {rank['error']}")
        self.say(f"all ready after {took:.3f} s")
        peers = [{"node": h.name, "address": options.address, "port": h.ready["port"]} for h in self.c.hosts.values()]
        first = next(iter(self.c.hosts.values()))
        first.send({"op": "reach", "peers": peers, "deadline": 2.0})
        self.c.until(lambda: len(self.c.of("reach")) == len(peers), 10)
        for message in self.c.of("reach"):
            self.say(
                f"reach {message['node']}: {message['ok']} {message['seconds'] * 1e3:.2f} ms {message['error'] or ''}"
            )

    def run_round(self, pairs: list[tuple[int, int]], label: str, **more: object) -> None:
        began, first = time.monotonic(), self.number + 1
        for a, b in pairs:
            self.number += 1
            self.c.pair(
                self.number,
                a,
                b,
                bytes=self.options.bytes,
                iters=self.options.iters,
                warmup=2,
                latency_iters=20,
                deadline=self.options.deadline,
                **more,
            )
        ids = range(first, self.number + 1)
        try:
            self.c.until(
                lambda: sum(m["id"] in ids for m in self.c.of("free")) == 2 * len(pairs), self.options.deadline + 15
            )
        except TimeoutError:
            self.say(f"{label}: NOT FINISHED: no word of {[i for i in ids if len(self.c.of('free', id=i)) < 2]}")
        self.say(f"{label}: {len(pairs)} pairs in {time.monotonic() - began:.3f} s")
        for message in self.c.of("side"):
            if message["id"] in ids and not message["ok"]:
                self.say(
                    f"  FAILED {message['src']}>{message['dst']} {message['role']} {message['phase']} "
                    f"timeout={message['timeout']} made={message['made']}: {message['error']}"
                )
                for line in (message["raw"] or "").splitlines():
                    self.say(f"      {line}")

    def rest(self) -> None:
        """Have the rank hosts tear down what the tests left; nothing is under way now."""
        self.number += 1
        began, live = time.monotonic(), [host for host in self.c.hosts.values() if host.alive]
        for host in live:
            host.send({"op": "rest", "id": self.number})
        ranks = sum(name in {host.name for host in live} for name in self.c.rank_host.values())
        try:
            self.c.until(lambda: len(self.c.of("free", id=self.number)) == ranks, 20)
        except TimeoutError:
            self.say(f"rest: NOT FINISHED: {len(self.c.of('free', id=self.number))} of {ranks}")
        self.say(f"rest: {time.monotonic() - began:.3f} s")
        for message in self.c.of("rested", id=self.number):
            if message["error"]:
                self.say(f"  rank {message['rank']}: {message['error']}")

    def matrix(self) -> None:
        count = self.options.gpus
        rate = {(m["src"], m["dst"]): m["rate"] for m in self.c.of("side", role="dst", ok=True)}
        latency = {(m["src"], m["dst"]): m["latency"] for m in self.c.of("side", role="src", ok=True)}
        for title, table, scale in (("GB/s", rate, 1e-9), ("us", latency, 1e6)):
            print(f"\n{title:>6s} " + "".join(f"{d:8d}" for d in range(count)))
            for s in range(count):
                cells = (f"{table[s, d] * scale:8.2f}" if table.get((s, d)) else f"{'-':>8s}" for d in range(count))
                print(f"{s:6d} " + "".join(cells))
        ways: dict[str, list[str]] = collections.defaultdict(list)
        for m in self.c.of("side", ok=True):
            ways[f"{m['transport']} ({m['role']})"].append(f"{m['src']}>{m['dst']}")
        print()
        for way, which in sorted(ways.items()):
            print(f"{way}: {len(which)}: {' '.join(which[:12])}{' ...' if len(which) > 12 else ''}")
        for m in self.c.of("side", ok=True)[:1] + self.c.of("side", ok=True)[-1:]:
            print(f"example: {m}")
        if rate:
            values = sorted(rate.values())
            print(
                f"rates GB/s: min {values[0] / 1e9:.2f} median {statistics.median(values) / 1e9:.2f} "
                f"max {values[-1] / 1e9:.2f}"
            )
        phases: dict[str, list[float]] = collections.defaultdict(list)
        for m in self.c.of("side", ok=True):
            for name, seconds in re.findall(r"([a-z][a-z ]*) (\d+\.\d+)", (m["raw"] or "").rpartition("seconds: ")[2]):
                phases[f"{m['role']} {name}"].append(float(seconds))
        for name, seconds in sorted(phases.items()):
            print(f"{name:16s} median {statistics.median(seconds):.4f} max {max(seconds):.4f} sum {sum(seconds):.2f} s")
        print(f"store calls: {self.c.store_calls}", flush=True)

    def all_reduce(self, ranks: list[int], label: str) -> None:
        self.number += 1
        began = time.monotonic()
        self.c.all_reduce(self.number, ranks, [64 << 20, 256 << 20, 1 << 30], iters=20, warmup=3, deadline=60.0)
        try:
            self.c.until(lambda: len(self.c.of("free", id=self.number)) == len(ranks), 75)
        except TimeoutError as error:
            self.say(f"all_reduce {label}: NOT FINISHED: {error}")
        self.say(f"all_reduce {label}: {time.monotonic() - began:.3f} s")
        for bytes_ in (64 << 20, 256 << 20, 1 << 30):
            got = self.c.of("reduced", id=self.number, bytes=bytes_)
            good = [m["seconds"] for m in got if m["ok"]]
            if good:
                factor = 2 * (len(ranks) - 1) / len(ranks)
                self.say(
                    f"  {bytes_ >> 20:5d} MiB: busbw {bytes_ / statistics.mean(good) * factor / 1e9:7.2f} GB/s, "
                    f"{statistics.mean(good) * 1e3:.3f} ms, wrong {sum(m['wrong'] for m in got)}, {got[0]['transport']}"
                )
            for m in got:
                if not m["ok"]:
                    self.say(
                        f"  FAILED rank {m['rank']} {m['bytes']}: {m['phase']} timeout={m['timeout']}: {m['error']}"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--bytes", type=size, default=256 << 20)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--deadline", type=float, default=20.0)
    parser.add_argument("--library")
    parser.add_argument("--address", default="127.0.0.1", help="address of the rank hosts' listeners")
    parser.add_argument("--one-node", action="store_true", help="all GPUs in one rank host")
    parser.add_argument(
        "--faults",
        action="store_true",
        help="also drop, refuse and slow one direction each, then kill the second rank host",
    )
    parser.add_argument("--trace", type=float, default=150.0, help="dump all stacks after so many seconds")
    options = parser.parse_args()
    last = options.gpus - 1
    faults = [
        {"src": 0, "dst": last, "kind": "drop", "rate": None},
        {"src": last, "dst": 1, "kind": "refuse", "rate": None},
        {"src": 1, "dst": 0, "kind": "slow", "rate": 2e8},
    ]
    variables = {key: value for key, value in sorted(os.environ.items()) if re.match(r"NCCL|CUDA", key)}
    print(f"python {sys.version.split()[0]}, environment {variables}", flush=True)
    with Controller() as controller:
        drive = Drive(options, controller)
        drive.start(faults if options.faults else [])
        for number, pairs in enumerate(rounds(options.gpus), 1):
            drive.run_round(pairs, f"round {number}")
        drive.rest()
        drive.matrix()
        drive.all_reduce(list(range(options.gpus)), "all")
        drive.rest()
        if options.gpus > 3 and not options.one_node:
            drive.all_reduce(list(range(options.gpus // 2)), "n0 alone")
        drive.run_round([(0, 1)], "one pair again")
        if options.faults and not options.one_node:
            kill(drive, last)


def kill(drive: Drive, last: int) -> None:
    """Kill the second rank host while a pair with it is under way; the first must go on."""
    drive.number += 1
    drive.c.pair(drive.number, 0, last, bytes=drive.options.bytes, iters=20, warmup=2, latency_iters=20, deadline=30.0)
    first = drive.number
    drive.c.until(lambda: any(key.startswith(f"e1/{first}/link") for key in drive.c.store), 20)
    drive.c.hosts["n1"].kill()
    killed = time.monotonic()
    drive.c.hosts["n0"].send({"op": "abort", "id": drive.number})
    try:
        drive.c.until(lambda: bool(drive.c.of("free", id=drive.number, rank=0)), 40)
    except TimeoutError as error:
        drive.say(f"after the kill: {error}")
    drive.say(f"rank 0 free {time.monotonic() - killed:.3f} s after its peer was killed")
    for message in drive.c.of("side", id=drive.number):
        drive.say(f"  {message['src']}>{message['dst']} ok={message['ok']} {message['phase']}: {message['error']}")
    if drive.options.gpus > 3:
        drive.run_round([(0, 1)], "one pair of the survivor")


if __name__ == "__main__":
    main()
