"""Measured rates of slow links: a NIC of a lab is limited to some rates, one direction after the other.

    python bench/rates.py [--rates 40kB,400kB,6MB,60MB] [--gpu] [--lab NAME] [--bytes N] [--sweep]

Three nodes with one NIC each, CPU ranks or with --gpu NCCL. Bars: pairs that send over the limit are slow, with a value
within 30 % of it; the other direction, which only carries acknowledgements there, passes or is slow; a dropped path is
timed out. With --sweep the whole sweep runs each time: the world layer and all_reduce have their values as well.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import MISSED, held

from fabtui.lab.faults import parse_rate
from fabtui.lab.lab import StandingLab
from fabtui.lab.network import missing
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.numbers import reduced_text, spoken_text
from tests.lab import kept_session
from tests.lab.kept_session import KeptSession

NODES = 3
OFF = 0.3
SLOW = "n001"


def text_of(session: KeptSession, one: Measurement) -> str:
    value = spoken_text(one.value, one.unit) if one.value is not None else (one.error or "")[:60]
    size = f" ({reduced_text(one.reduced)})" if one.reduced else ""
    return f"{session.feed.model.verdict(one)} {value}{size}"


async def rates(args: argparse.Namespace, lab: StandingLab) -> int:
    names = [f"n{number:03d}" for number in range(NODES)]
    others = [name for name in names if name != SLOW]
    more = {"probes": ("p2p", "all_reduce"), "layers": ("world", "p2p")} if args.sweep else {}
    missed = 0
    options = {"force": args.gpu, "timeout": args.timeout, "bytes": args.bytes or None, **more}
    faults = [f"{SLOW}.eth0={side}:{rate}" for rate in args.rates.split(",") for side in ("slow-in", "slow-out")]
    async with kept_session.kept(
        names, lab.ssh_config, lambda text: lab.ask("fault", [text]), lambda *places: lab.ask("heal", places), **options
    ) as session:
        for fault in [*faults, f"{others[0]}>{SLOW}=drop"]:
            pairs = [(f"{SLOW}:0", f"{other}:0") for other in others]
            await session.plant(fault)
            began = time.monotonic()
            try:
                await (session.feed.sweep() if args.sweep else session.test(*pairs))
            finally:
                await session.heal()
            print(f"{fault}: {time.monotonic() - began:.1f} s", flush=True)
            into = "slow-out" not in fault
            for other in others if "slow" in fault else others[:1]:
                ends = (f"{other}:0", f"{SLOW}:0") if into else (f"{SLOW}:0", f"{other}:0")
                limited, reverse = session.latest(*ends), session.latest(*ends[::-1])
                bad = verdict_of(session, fault, limited, reverse)
                missed += bad == MISSED
                print(f"  {limited.src} > {limited.dst}  {text_of(session, limited)}  {bad}")
                print(f"    reverse  {text_of(session, reverse)}")
                if args.sweep:
                    print(f"    world  {text_of(session, session.latest(limited.src, limited.dst, Layer.WORLD))}")
            if args.sweep:
                print(f"  all_reduce  {text_of(session, session.latest('all', 'all', Layer.BUSBW))}", flush=True)
    return missed


def verdict_of(session: KeptSession, fault: str, limited: Measurement, reverse: Measurement) -> str:
    judged = session.feed.model.verdict(limited)
    if "slow" not in fault:
        return held(float(judged is not Verdict.TIMEOUT), 0.0)
    if judged is not Verdict.SLOW or limited.value is None:
        return MISSED
    if session.feed.model.verdict(reverse) not in (Verdict.OK, Verdict.SLOW):
        return MISSED
    return held(abs(limited.value * 1e9 / parse_rate(fault.partition(":")[2]) - 1), OFF)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="40kB,400kB,6MB,60MB", help="limits (40kB,400kB,6MB,60MB)")
    parser.add_argument("--gpu", action="store_true", help="NCCL on the GPUs of this machine instead of CPU ranks")
    parser.add_argument("--sweep", action="store_true", help="the whole sweep each time, not the pairs alone")
    parser.add_argument("--bytes", type=int, default=0, help="message size (256 MiB, or 4 MiB with CPU ranks)")
    parser.add_argument("--timeout", type=float, default=10.0, help="deadline of a test in seconds (10)")
    parser.add_argument("--lab", default="rates", help="the lab, made and taken down where it is not up")
    args = parser.parse_args()
    if why := missing():
        print(f"no network: {why}")
        return 0
    with kept_session.lab_of(args.lab, NODES, gpu=args.gpu) as lab:
        return 1 if asyncio.run(rates(args, lab)) else 0


if __name__ == "__main__":
    sys.exit(main())
