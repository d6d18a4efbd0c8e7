"""Drive two rank hosts over the GPUs of this host and print all there is to know, without the rest of fabtui.

Stand-alone: needs the checkout and a python3 (3.9+), nothing installed. Two processes stand for two nodes. Each has
half of the GPUs and its own host id, so that pairs across them use the network. Prints a matrix, transports
and the time of each phase.

    python3 tests/device/drive_rankhost.py [--gpus 8] [--bytes 256M] [--library PATH] [--one-node]
        [--world] [--pairs] [--both] [--collectives] [--faults] [--fatal]
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
            else [("n0", list(range(count // 2))), ("n1", list(range(count // 2, count)))]
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
                both=self.options.both,
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
        transports: dict[str, list[str]] = collections.defaultdict(list)
        for m in self.c.of("side", ok=True):
            transports[f"{m['transport']} ({m['role']})"].append(f"{m['src']}>{m['dst']}")
        print()
        for way, which in sorted(transports.items()):
            print(f"{way}: {len(which)}: {' '.join(which[:12])}{' ...' if len(which) > 12 else ''}")
        for m in self.c.of("side", ok=True)[:1] + self.c.of("side", ok=True)[-1:]:
            print(f"example: {m}")
        if rate:
            values = sorted(rate.values())
            print(
                f"rates GB/s: min {values[0] / 1e9:.2f} median {statistics.median(values) / 1e9:.2f} "
                f"max {values[-1] / 1e9:.2f}"
            )
        both = sorted(m["both_rate"] for m in self.c.of("side", role="dst", ok=True) if m["both_rate"])
        if both:
            print(f"both directions at once, each way GB/s: min {both[0] / 1e9:.2f} max {both[-1] / 1e9:.2f}")
        for m in self.c.of("side", role="dst", ok=True)[:4]:
            print(f"times {m['src']}>{m['dst']}: " + ", ".join(f"{k} {v:.6g}" for k, v in (m["times"] or {}).items()))
        phases: dict[str, list[float]] = collections.defaultdict(list)
        for m in self.c.of("side", ok=True):
            for name, seconds in re.findall(r"([a-z][a-z ]*) (\d+\.\d+)", (m["raw"] or "").rpartition("seconds: ")[2]):
                phases[f"{m['role']} {name}"].append(float(seconds))
        for name, seconds in sorted(phases.items()):
            print(f"{name:16s} median {statistics.median(seconds):.4f} max {max(seconds):.4f} sum {sum(seconds):.2f} s")
        print(f"store calls: {self.c.store_calls}", flush=True)

    def collective(self, kind: str, ranks: list[int], sizes: list[int], label: str) -> None:
        self.number += 1
        began = time.monotonic()
        self.c.collective(self.number, kind, ranks, sizes, iters=20, warmup=3, deadline=60.0)
        try:
            self.c.until(lambda: len(self.c.of("free", id=self.number)) == len(ranks), 75)
        except TimeoutError as error:
            self.say(f"{kind} {label}: NOT FINISHED: {error}")
        self.say(f"{kind} {label}: {time.monotonic() - began:.3f} s")
        share = (len(ranks) - 1) / len(ranks)
        factor = {"all_reduce": 2 * share, "broadcast": 1.0, "sendrecv": 1.0}.get(kind, share)
        for bytes_ in sizes:
            got = self.c.of("reduced", id=self.number, bytes=bytes_)
            good = [m for m in got if m["ok"]]
            if good:
                mean, fastest = (statistics.mean(m[name] for m in good) for name in ("seconds", "fastest"))
                sent = good[0]["sent"]
                self.say(
                    f"  {bytes_:11d} ({sent}): busbw {sent / mean * factor / 1e9:7.2f} GB/s, {mean * 1e6:.1f} us, "
                    f"fastest {fastest * 1e6:.1f} us, wrong {sum(m['wrong'] for m in got)}, {got[0]['transport']}, "
                    f"{next((m['algorithm'] for m in good if m['algorithm']), None)}"
                )
            for m in got:
                if not m["ok"]:
                    self.say(
                        f"  FAILED rank {m['rank']} {m['bytes']}: {m['phase']} timeout={m['timeout']}: {m['error']}"
                    )
                    self.say(f"      {m['raw']}")

    def world(self, ranks: list[int], label: str, iters: int = 4, missing: list[int] | None = None) -> None:
        """Run the world layer; ranks in ``missing`` take part on paper only."""
        self.number += 1
        began = time.monotonic()
        plan = []
        for pairs in rounds(len(ranks)):
            plan.append([(ranks[a], ranks[b]) for a, b in pairs])
            plan.append([(ranks[b], ranks[a]) for a, b in pairs])
        for rank in missing or []:
            self.c.rank_host[rank] = "n0"
        everyone = ranks + (missing or [])
        deadline = 3.0 if missing else self.options.deadline
        self.c.world(self.number, everyone, plan, bytes=self.options.bytes, iters=iters, warmup=1, deadline=deadline)
        try:
            self.c.until(lambda: len(self.c.of("free", id=self.number)) == len(ranks), 2 * deadline + 15)
        except TimeoutError:
            self.say(f"world {label}: NOT FINISHED: {self.c.of('free', id=self.number)}")
        for rank in missing or []:
            del self.c.rank_host[rank]
        self.say(f"world {label}: {time.monotonic() - began:.3f} s, store calls so far {self.c.store_calls}")
        reports = self.c.of("worlded", id=self.number)
        for name in ("meet", "init", "connect", "rounds"):
            values = [m["seconds"].get(name) for m in reports if m["seconds"].get(name) is not None]
            if values:
                self.say(f"  {name}: {min(values):.4f} to {max(values):.4f} s")
        rows = [row for m in reports for row in m["rows"]]
        rates = sorted(row[3] for row in rows if row[3])
        if rates:
            self.say(
                f"  {len(rates)} of {len(ranks) * (len(ranks) - 1)} rates GB/s: min {rates[0] / 1e9:.2f} "
                f"median {statistics.median(rates) / 1e9:.2f} max {rates[-1] / 1e9:.2f}; "
                f"transports {dict(collections.Counter(str(row[6]) for row in rows))}; first {rows[0]}"
            )
        for m in reports:
            if not m["ok"]:
                self.say(f"  FAILED rank {m['rank']} {m['phase']} timeout={m['timeout']} at={m['at']}: {m['error']}")
                self.say(f"      {m['raw']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--bytes", type=size, default=256 << 20)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--deadline", type=float, default=20.0)
    parser.add_argument("--library")
    parser.add_argument("--address", default="127.0.0.1", help="address of the rank hosts' listeners")
    parser.add_argument("--one-node", action="store_true", help="all GPUs in one rank host")
    parser.add_argument("--pairs", action="store_true", help="all pairs; done as well when nothing else is asked for")
    parser.add_argument("--world", action="store_true", help="the world layer first, twice")
    parser.add_argument("--both", action="store_true", help="pairs also both directions at once")
    parser.add_argument("--collectives", action="store_true", help="all six collectives, not only all_reduce")
    parser.add_argument(
        "--faults",
        action="store_true",
        help="also drop, refuse and slow one direction each, then kill the second rank host",
    )
    parser.add_argument(
        "--fatal", action="store_true", help="also absent, corrupt, and at the end a kill in mid-transfer"
    )
    parser.add_argument("--trace", type=float, default=150.0, help="time (s) after which all stacks are dumped")
    options = parser.parse_args()
    last = options.gpus - 1
    faults: list[Message] = []
    if options.faults:
        faults += [fault(0, last, "drop"), fault(last, 1, "refuse"), {**fault(1, 0, "slow"), "rate": 2e8}]
    if options.fatal and options.gpus == 2:
        faults += [fault(0, 1, "corrupt"), fault(1, 0, "kill")]
    elif options.fatal:
        faults += [fault(0, 1, "corrupt"), fault(1, 2, "absent"), fault(2, last, "kill")]
    variables = {key: value for key, value in sorted(os.environ.items()) if re.match(r"NCCL|CUDA", key)}
    print(f"python {sys.version.split()[0]}, environment {variables}", flush=True)
    with Controller() as controller:
        drive = Drive(options, controller)
        drive.start(faults)
        everyone = list(range(options.gpus))
        if options.world:
            drive.world(everyone, "first")
            drive.rest()
            drive.world(everyone, "again, 20 messages", iters=20)
            drive.world(everyone, "with a rank that does not come", missing=[99])
            drive.rest()
        if options.pairs or options.both or not (options.world or options.collectives):
            for number, pairs in enumerate(rounds(options.gpus), 1):
                drive.run_round(pairs, f"round {number}")
            drive.rest()
            drive.matrix()
        if controller_whole(controller) and not options.fatal:
            sizes = [8, 1 << 20, 64 << 20, 256 << 20, 1 << 30] if options.collectives else [64 << 20, 1 << 30]
            for kind in KINDS if options.collectives else KINDS[:1]:
                drive.collective(kind, everyone, sizes, "all")
            drive.rest()
            if options.gpus > 3 and not options.one_node:
                drive.collective("all_reduce", everyone[: options.gpus // 2], sizes, "n0 alone")
            drive.run_round([(0, 1)], "one pair again")
        if options.faults and not options.one_node:
            kill(drive, last)


KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")


def fault(src: int, dst: int, kind: str) -> Message:
    """Return a fault of the lab."""
    return {"src": src, "dst": dst, "kind": kind, "rate": None}


def controller_whole(controller: Controller) -> bool:
    """Return whether all rank hosts are alive."""
    return all(host.alive for host in controller.hosts.values())


def kill(drive: Drive, last: int) -> None:
    """Kill the second rank host while a pair with it is under way; the first must continue."""
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
