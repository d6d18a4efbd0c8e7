"""Differences that nobody foresaw: a setting of one node, drawn at random, is named with its node and its value.

    python bench/unforeseen.py [--kind facts|counters] [--draws 400] [--seed 1]

Facts: a cluster of 4 to 64 nodes is made of recorded inventories (``bench/inventories.json.gz``: real logins to this
project's labs and machine at different times, and two images whose kernels and devices were made from public outputs;
see `IMAGES`). One of the keys that they hold is changed on one node, half of them of keys that no table names. It may
also be added or missing, or there are two nodes or two keys. It is named if the comparison reports the key, the node
and its value at the level of its table. Clusters without a change, made of logins at different times, must have no
difference at all.

Counters: ``bench/growth.json.gz`` has the growth of all counters in phases of healthy runs. They were recorded on four
nodes of a lab at loads of 8 to 18 on two cores. On one node, a counter drawn at random grows by ten times the most of
its peers; where these have none, by ten times the least growth that counts. It is named if the test of all counters
reports its name and its node. Phases as they were recorded must have no finding above a note.
"""

import argparse
import gzip
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held

from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.links.lone_counters import LoneCounters, least_growth
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.diagnosis.preflight.state_facts import state_fact
from fabtui.model.events import InventoryUpdate, NodeGrowth, ProbeResult, SessionStart
from fabtui.model.facts.states import PROBE, Facts, States, packed
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title

FILE = Path(__file__).with_name("inventories.json.gz")
#: Where each image of the file is from.
IMAGES = {
    "lab": "Debian 12, 6.18, nodes of a lab in namespaces: logins over SSH, minutes apart",
    "host": "the same machine, outside of the lab: login shells, minutes apart",
    "ubuntu": "made: 5.15 with eight RDMA ports and NVIDIA's driver, after outputs of an H200 host",
    "rhel": "made: 4.18 with two Ethernet ports and fewer settings, after sysctl, ethtool and mount of such hosts",
}
SIZES = (4, 6, 8, 12, 16, 32, 64)
BAR, UNCHANGED = 0.95, 200
GROWTH = Path(__file__).with_name("growth.json.gz")
#: How many times more a planted counter grows than those of the peers.
TIMES = 10
#: Growth of a phase: its name, and per node the seconds and the counters.
Window = dict[str, Any]


class Draw(NamedTuple):
    """A planted change: what was planted, on which nodes, and the keys."""

    what: str
    nodes: tuple[str, ...]
    keys: tuple[str, ...]


def inventories() -> dict[str, list[Facts]]:
    """Return the recorded facts of each image: logins at different times."""
    kept = json.loads(gzip.decompress(FILE.read_bytes()))
    return {image: [_whole(logins[0], login) for login in logins] for image, logins in kept.items()}


def _whole(first: dict[str, Any], login: dict[str, Any]) -> Facts:
    if "facts" in login:
        return dict(login["facts"])
    base: Facts = first["facts"]
    differs: Facts = login["differs"]
    return {key: fact for key, fact in base.items() if key not in login["absent"]} | differs


def cluster(logins: list[Facts], chance: random.Random) -> dict[str, Facts]:
    """Return a cluster of nodes of an image: each is one of its logins."""
    return {f"n{at:03d}": dict(chance.choice(logins)) for at in range(chance.choice(SIZES))}


def changed(value: str, chance: random.Random) -> str:
    """Return a different value of the same form: another number, word or digest."""
    words = value.split(" ")
    at = chance.randrange(len(words))
    word = words[at]
    try:
        number = float(word)
    except ValueError:
        words[at] = word + "-x" if len(word) < 3 else word[:-1] + ("0" if word[-1] != "0" else "1")
    else:
        other = number * chance.choice((0.05, 20.0)) if number else 1.0
        words[at] = str(round(other) if round(other) != number else round(number) + 1)
    return " ".join(words)


def planted(nodes: dict[str, Facts], named: bool, chance: random.Random) -> Draw:
    """Change a cluster: a key that the table names, or one that it does not, as half of the draws have it."""
    common = set.intersection(*(set(facts) for facts in nodes.values()))
    keys = sorted(key for key in common if (level := level_of(key)) != "no" and (level != "all") is named)
    what = chance.choices(("one", "added", "missing", "two nodes", "two keys"), (6, 1, 1, 1, 1))[0]
    names = tuple(chance.sample(sorted(nodes), 2 if what == "two nodes" and len(nodes) > 4 else 1))
    drawn = tuple(chance.sample(keys, 2 if what == "two keys" else 1))
    if what == "added":
        drawn = (f"{drawn[0]}_new",)
    for key in drawn:
        old = next(iter(nodes.values())).get(key, "0")
        new = changed(old, chance)
        for name in names:
            if what == "missing":
                del nodes[name][key]
            else:
                nodes[name][key] = new
    return Draw(what, names, drawn)


def level_of(key: str) -> str:
    """Return the level that the table gives a key: that of a finding, ``all`` or ``no``."""
    fact = state_fact(States([], {}), key)
    return "no" if fact is None else "all" if fact.quiet else fact.verdict


def model_of(nodes: dict[str, Facts]) -> Model:
    """Return the session of a cluster, as if its nodes had just been inspected."""
    model, (first, *_) = Model(), nodes
    model.apply(SessionStart(nodes=list(nodes), version="", time=0.0))
    for name, facts in nodes.items():
        model.apply(InventoryUpdate(node=name, value={"kernel": "6.1"}))
        base = nodes[first] if name != first else {}
        model.apply(ProbeResult(node=name, probe=PROBE, value=packed(facts, first, base)))
    return model


def is_named(nodes: dict[str, Facts], draw: Draw) -> bool:
    """Return True if each key is reported for its nodes, with its value, at the level of its table."""
    inspected = preflight(model_of(nodes))
    odd = {one.fact.name: one for one in inspected.table.odd}
    topics = {name for finding in inspected.findings for name in (finding.topic,)}
    for key in draw.keys:
        if key not in odd or set(odd[key].values) != set(draw.nodes):
            return False
        if any(odd[key].values[node] != nodes[node].get(key, "none") for node in draw.nodes):
            return False
        if level_of(key) != "all" and key not in topics:
            return False
    return True


def facts(draws: int, chance: random.Random) -> bool:
    """Print how many changes are named, and how many clusters without one differ; return whether the bars hold."""
    images = inventories()
    right: Counter[str] = Counter()
    missed: list[str] = []
    for at in range(draws):
        image = list(images)[at % len(images)]
        nodes = cluster(images[image], chance)
        draw = planted(nodes, bool(at // len(images) % 2), chance)
        if is_named(nodes, draw):
            right[draw.what] += 1
        else:
            missed.append(f"{image}, {len(nodes)} nodes, {draw.what}: {' '.join(draw.keys)}")
    alarms: list[str] = []
    for at in range(UNCHANGED):
        table = preflight(model_of(cluster(images[list(images)[at % len(images)]], chance))).table
        alarms += [" ".join(odd.fact.name for odd in table.odd)] if table.odd else []
    keys = {key for logins in images.values() for key in logins[0]}
    print(
        f"{len(keys)} keys of {len(images)} images: " + "; ".join(f"{name}: {words}" for name, words in IMAGES.items())
    )
    share = right.total() / draws
    print(f"named: {right.total()} of {draws} ({share:.1%}), bar {BAR:.0%}: {held(share, BAR, least=True)}")
    print(f"differences of {UNCHANGED} unchanged clusters: {len(alarms)}, bar 0: {held(len(alarms), 0)}")
    for line in (*missed[:20], *alarms[:20]):
        print(f"  {line}")
    return share >= BAR and not alarms


def of_counters(window: Window, fell: list[str]) -> list[Finding]:
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
    for window in windows:
        alarms += [title(one) for one in of_counters(window, fell) if one.severity is not Severity.NOTE]
    share = 1 - len(missed) / draws
    print(f"{len(names)} counters, {len(windows)} phases of healthy runs")
    print(f"named: {draws - len(missed)} of {draws} ({share:.1%}), bar {BAR:.0%}: {held(share, BAR, least=True)}")
    print(f"findings in {len(windows)} unchanged phases: {len(alarms)}, bar 0: {held(len(alarms), 0)}")
    for line in (*missed[:20], *alarms[:20]):
        print(f"  {line}")
    return share >= BAR and not alarms


KINDS = {"facts": facts, "counters": counters}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all", help="what is drawn (all)")
    parser.add_argument("--draws", type=int, default=400, help="number of changes (400)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draws (1)")
    options = parser.parse_args()
    kinds = KINDS if options.kind == "all" else {options.kind: KINDS[options.kind]}
    results = [run(options.draws, random.Random(options.seed)) for run in kinds.values()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
