"""Faults that nobody foresaw: a counter that grows on one node, drawn at random, is named with its node.

    python bench/unforeseen.py [--kind counters] [--draws 100] [--seed 1]

Counters: ``bench/growth.json.gz`` has the growth of all counters in phases of healthy runs. They were recorded on four
nodes of a lab at loads of 8 to 18 on two cores. On one node, a counter drawn at random grows by ten times the most of
its peers; where these have none, by ten times the least growth that counts. It is named if the test of all counters reports its name and its node.
Phases as they were recorded must have no finding above a note.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held

from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.links.lone_counters import LoneCounters, least_growth
from fabtui.model.events import NodeGrowth, SessionStart
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title

GROWTH = Path(__file__).with_name("growth.json.gz")
BAR, UNCHANGED = 0.95, 60
#: How many times more a planted counter grows than those of the peers.
TIMES = 10

#: Growth of a phase: its name, and per node the seconds and the counters.
Window = dict[str, Any]


def of_counters(window: Window, fell: list[str]) -> list[Finding]:
    """Return what the test of all counters finds in a phase."""
    model = Model()
    model.apply(SessionStart(nodes=[*window["nodes"]], version="", time=0.0))
    for node, (seconds, grew) in window["nodes"].items():
        model.apply(NodeGrowth(node=node, phase=window["phase"], seconds=seconds, grew=grew, fell=fell))
    return LoneCounters().findings(model)


def grown(window: Window, names: list[str], chance: random.Random) -> tuple[Window, str, str]:
    """Return a phase in which a counter grew on one node, with the counter and the node."""
    nodes = {node: (seconds, dict(grew)) for node, (seconds, grew) in window["nodes"].items()}
    counter, node = chance.choice(names), chance.choice(list(nodes))
    most = max(grew.get(counter, 0) for peer, (_, grew) in nodes.items() if peer != node)
    nodes[node][1][counter] = TIMES * max(most, int(least_growth(counter)))
    return {"phase": window["phase"], "nodes": nodes}, counter, node


def counters(draws: int, chance: random.Random) -> bool:
    """Print how many grown counters are named, and what unchanged phases report; return whether the bars hold."""
    kept = json.loads(gzip.decompress(GROWTH.read_bytes()))
    windows, fell = kept["windows"], kept["fell"]
    names = sorted({name for one in windows for _, grew in one["nodes"].values() for name in grew} - {*fell})
    missed, alarms = [], []
    for _ in range(draws):
        window, counter, node = grown(chance.choice(windows), names, chance)
        texts = [" ".join((title(one), *evidence(one))) for one in of_counters(window, fell) if node in one.nodes]
        if not any(counter in text for text in texts):
            missed.append(f"{counter} on {node} during {window['phase']}")
    for window in chance.sample(windows, UNCHANGED):
        alarms += [title(one) for one in of_counters(window, fell) if one.severity is not Severity.NOTE]
    share = 1 - len(missed) / draws
    print(f"{len(names)} counters, {len(windows)} phases of healthy runs")
    print(f"named: {draws - len(missed)} of {draws} ({share:.1%}), bar {BAR:.0%}: {held(share, BAR, least=True)}")
    print(f"findings in {UNCHANGED} unchanged phases: {len(alarms)}, bar 0: {held(len(alarms), 0)}")
    for line in (*missed[:20], *alarms[:20]):
        print(f"  {line}")
    return share >= BAR and not alarms


KINDS: dict[str, Callable[[int, random.Random], bool]] = {"counters": counters}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all", help="what is drawn (all)")
    parser.add_argument("--draws", type=int, default=100, help="number of draws (100)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draws (1)")
    options = parser.parse_args()
    kinds = KINDS if options.kind == "all" else {options.kind: KINDS[options.kind]}
    results = [run(options.draws, random.Random(options.seed)) for run in kinds.values()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
