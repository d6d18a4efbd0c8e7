"""Pairs that break in mid-transfer, each followed by a test of one of its ends with a healthy partner.

    python bench/sequences.py [--seeds 20] [--first 0] [--gpu] [--lab NAME] [--to FILE]

Each seed is a fault of the network at a random moment of a pair. It is healed meanwhile or not, and some pairs have a
limited link. The next test is in the same pass. Bar: every next test passes, and no test gets data that is not its own.
The lab is made where it is not up (as root). It has CPU ranks, or with --gpu NCCL between nodes that share the GPUs of
this machine. One session serves all. FILE has a line of JSON for each sequence; seeds that it has are left out.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui.lab.lab import StandingLab
from fabtui.lab.network import missing
from tests.lab import kept_session

NODES = 4
#: Sessions at most.
SESSIONS = 5


async def sequences(args: argparse.Namespace, lab: StandingLab, seeds: list[int]) -> None:
    names = [f"n{number:03d}" for number in range(NODES)]
    where = names, lab.ssh_config, lambda text: lab.ask("fault", [text]), lambda *places: lab.ask("heal", places)
    size = 256 << 20 if args.gpu else 4 << 20
    with args.to.open("a") as file:
        async with kept_session.kept(*where, force=args.gpu, bytes=size) as session:
            for seed in seeds:
                try:
                    result = await kept_session.run(session, kept_session.planned(seed, names))
                except kept_session.NotTestedError as error:
                    print(f"seed {seed} was not tested: {error}", flush=True)
                    return
                file.write(json.dumps(result) + "\n")
                file.flush()
                if not result["good"]:
                    print(f"BAD: {result}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many sequences (20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--gpu", action="store_true", help="NCCL on the GPUs of this machine instead of CPU ranks")
    parser.add_argument("--lab", default="sequences", help="the lab, made and taken down where it is not up")
    parser.add_argument("--to", type=Path, default=Path("build/sequences.jsonl"), help="results, one a line")
    args = parser.parse_args()
    if why := missing():
        print(f"no network: {why}")
        return 0
    args.to.parent.mkdir(exist_ok=True)
    args.to.touch()
    wanted = range(args.first, args.first + args.seeds)

    def results() -> list[dict[str, Any]]:
        return [one for one in map(json.loads, args.to.read_text().splitlines()) if one["seed"] in wanted]

    # After a session that loses its nodes, a second one continues.
    for _ in range(SESSIONS):
        if left := [seed for seed in wanted if seed not in {one["seed"] for one in results()}]:
            with kept_session.lab_of(args.lab, NODES, gpu=args.gpu) as lab:
                asyncio.run(sequences(args, lab, left))
    return report(results(), args.seeds)


def report(results: list[dict[str, Any]], wanted: int) -> int:
    """Print how many sequences there were of each kind; return 1 if one is bad or missing."""
    bad = [result["seed"] for result in results if not result["good"]]
    kinds = Counter(
        "in mid-transfer" if one["broken"] else "not at all" if one["verdicts"][:2] == ["ok", "ok"] else "at the start"
        for one in results
    )
    print(f"{len(results)} sequences; broken: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    healed, limited = (sum(one[name] not in (None, "") for one in results) for name in ("heal", "slow"))
    print(f"healed meanwhile: {healed}; over a limited link: {limited}; bad: {bad or 'none'}")
    return 1 if bad or len(results) < wanted else 0


if __name__ == "__main__":
    sys.exit(main())
