"""Truth of the history of a site.

    python bench/history.py [--seeds 20] [--first 0] [--show]

60 sessions over ten weeks on 16 GPUs of four nodes, with noise (``bench/planted.py``). Three links degrade: an
NVLink and a port by their counters, a NIC by its bandwidth. A slow GPU is moved to another node, and the NIC of a slow
cable is replaced. A GPU is slow now and then, and a new driver makes all pairs slower. Each is
found with its rule, identity and date, and nothing else is. Dates of drifts may be up to ten days late: they leave the
noise slowly.
"""

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held
from planted import Fabric, Plan, Shape

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.history.entry import entry_of
from fabtui.history.file import DAY, HistoryWriter, SessionEntry, reading
from fabtui.history.query import SiteHistory
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import Event
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title

#: Bar: seeds of 20 in which everything is found and nothing else.
RIGHT = 19 / 20
SESSIONS, DAYS, BEGAN = 60, 70, 1_790_000_000.0
#: Days that a recurring fault lasts.
_EPISODE = 4.0
#: Days that the date of a drift may be late, and early.
_LATE, _EARLY = 10, 3
_SHAPE = Shape(4, 4, ("NVIDIA H200",), "ib", 1, 1, False, 0.03)


class Truth(NamedTuple):
    """A planted fault: the rule that finds it, the identity of the part, and the day."""

    rule: str
    identity: str
    day: float
    late: float = 0.0


class Site:
    """Four nodes over ten weeks.

    Args:
        seed: Seed of its noise, its sessions and the days of its faults.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.fabric = Fabric(_SHAPE, seed)
        chance = self.chance
        self.days = sorted(chance.uniform(0, DAYS) for _ in range(SESSIONS))
        self.nvlink_day, self.port_day, self.nic_day = (chance.uniform(25, 40) for _ in range(3))
        self.moved_day, self.replaced_day = chance.uniform(25, 45), chance.uniform(25, 45)
        self.update_day = chance.uniform(25, 45)
        self.moved_from, self.replaced_from = chance.uniform(5, 12), chance.uniform(5, 12)
        self.episodes = [start + chance.uniform(0, 4) for start in (8, 24, 40, 56)]
        self.uuids = {(end.node, end.index): f"GPU-{seed:04d}-{end.node}-{end.index}" for end in self.fabric.ends}
        self.guids = {
            (node, nic): f"0x{0xB83FD20000000000 + seed * 4096 + at * 16 + nic:016x}"
            for at, node in enumerate(self.fabric.names)
            for nic in range(4)
        }
        self.counts: dict[tuple[str, str], int] = {}
        self.before = 0.0

    def truths(self) -> list[Truth]:
        recurring = [day for day in self.days if self._is_episode(day)]
        return [
            Truth("FT401", f"{self.uuids['n01', 2]}/7", self.nvlink_day, _LATE),
            Truth("FT401", self.guids["n02", 1], self.port_day, _LATE),
            Truth("FT401", self.guids["n03", 3], self.nic_day, _LATE),
            # Its first sessions may have been put down to one of its rivals.
            Truth("FT402", self.uuids["n03", 0], recurring[0], _EPISODE),
            Truth("FT404", self.uuids["n00", 1], self._first(self.moved_day)),
            Truth("FT405", "", self._first(self.update_day)),
        ]

    def _first(self, day: float) -> float:
        return next(one for one in self.days if one >= day)

    def _is_episode(self, day: float) -> bool:
        return any(start <= day < start + _EPISODE for start in self.episodes)

    def entries(self) -> Iterator[SessionEntry]:
        for day in self.days:
            model = Model()
            for event in self.events(day, model):
                model.apply(event)
            yield entry_of(diagnose(model), f"{day:.1f}.jsonl.gz", title)

    def events(self, day: float, model: Model) -> Iterator[Event]:
        fabric, moved = self.fabric, day >= self.moved_day
        place = ("n02", 3) if moved else ("n00", 1)
        uuids = dict(self.uuids)
        if moved:
            uuids["n00", 1], uuids["n02", 3] = uuids["n02", 3], uuids["n00", 1]
        fabric.ends = [replace(end, uuid=uuids[end.node, end.index]) for end in fabric.ends]
        fabric.plan = Plan(factors=[lambda a, b, loaded: self._factor(day, place, a, b)])
        fabric.plan.probed.append(lambda node, inventory, probed: self._probe(day, node, inventory, probed, uuids))
        self._count(day)
        fabric._time = BEGAN + day * DAY
        yield from fabric.events(model)

    def _factor(self, day: float, place: tuple[str, int], a: Endpoint, b: Endpoint) -> float:
        ends, apart = [(a.node, a.index), (b.node, b.index)], a.node != b.node
        factor = 0.93 if day >= self.update_day else 1.0
        if place in ends and day >= self.moved_from:
            factor *= 0.5
        if ("n03", 0) in ends and self._is_episode(day):
            factor *= 0.5
        if apart and ("n01", 0) in ends and day >= self.replaced_from:
            factor *= 0.5
        if apart and ("n03", 3) in ends and day >= self.nic_day:
            factor *= max(0.6, 1 - 0.015 * (day - self.nic_day))
        return factor

    def _count(self, day: float) -> None:
        """Add what counters of links count since the session before: a few each, and more where links degrade."""
        span, self.before = day - self.before, day
        for node in self.fabric.names:
            for index in range(4):
                for key, rate in (((node, f"nvlink {index} 3"), 0.05), ((node, f"port {index}"), 0.1)):
                    self.counts[key] = self.counts.get(key, 0) + self._poisson(rate * span)
        for key, since in ((("n01", "nvlink 2 7"), self.nvlink_day), (("n02", "port 1"), self.port_day)):
            grown = max(0.0, day - since)
            self.counts[key] = self.counts.get(key, 0) + self._poisson(min(span, grown) * (2 + 0.5 * grown))

    def _poisson(self, mean: float) -> int:
        count, left = 0, math.exp(-mean)
        product = self.chance.random()
        while product > left:
            count += 1
            product *= self.chance.random()
        return count

    def _probe(
        self,
        day: float,
        node: str,
        inventory: dict[str, Any],
        probed: dict[str, Any],
        uuids: dict[tuple[str, int], str],
    ) -> None:
        inventory["driver"] = "580.65.06" if day >= self.update_day else "570.86.15"
        for gpu in inventory["gpus"]:
            gpu["uuid"] = uuids[node, gpu["index"]]
        for index, gpu in enumerate(probed["nvlink"]["gpus"]):
            gpu["uuid"] = uuids[node, index]
            for link in gpu["links"]:
                count = self.counts.get((node, f"nvlink {index} {link['link']}"), 0)
                link["counters"] = {"replay": 0, "recovery": count, "crc": 0}
        ports = []
        for nic, adapter in enumerate(probed["ibstat"]["cas"]):
            new = (node, nic) == ("n01", 0) and day >= self.replaced_day
            adapter["ports"][0]["guid"] = self.guids[node, nic] + ("-new" if new else "")
            errors = {"symbol_error": count} if (count := self.counts.get((node, f"port {nic}"), 0)) else {}
            ports.append({**adapter["ports"][0], "ca": f"mlx5_{nic}", "errors": errors, "saturated": []})
        probed["rdma"] = {**probed.get("rdma", {}), "ports": ports}


def judged(found: list[Finding], truths: list[Truth]) -> list[str]:
    """Return what is missing, late, or was not planted."""
    wrong, left = [], list(found)
    for truth in truths:
        mine = [one for one in left if one.rule.id == truth.rule and _identity(one) == truth.identity]
        if not mine:
            wrong.append(f"missing {truth.rule} {truth.identity} of day {truth.day:.1f}")
            continue
        left.remove(mine[0])
        day = (float(mine[0].facts["since_time"]) - BEGAN) / DAY
        if not (truth.day - (_EARLY if truth.late else 0.01) <= day <= truth.day + truth.late + 0.01):
            wrong.append(f"{truth.rule} {truth.identity}: day {day:.1f}, not {truth.day:.1f}")
    return wrong + [f"not planted: {one.rule.id} {title(one)}" for one in left]


def _identity(found: Finding) -> str:
    component = found.facts.get("component")
    return "" if component is None else str(component.identity)


def truth(seeds: range, show: bool, folder: Path) -> int:
    """Count the seeds in which all is right; return 1 if they are too few."""
    right = 0
    for seed in seeds:
        site = Site(seed)
        path = folder / f"site-{seed}" / "history.sqlite"
        HistoryWriter(path).add(site.entries())
        with reading(path) as base:
            wrong = judged([] if base is None else SiteHistory(base).findings, site.truths())
        right += not wrong
        for line in wrong if show else wrong[:3]:
            print(f"  seed {seed}: {line}", flush=True)
    share = right / len(seeds)
    verdict = held(share, RIGHT, least=True)
    print(f"all six found, nothing else: {right} of {len(seeds)} seeds (bar {RIGHT:.0%} {verdict})")
    return int(share < RIGHT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="number of sites (20)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (0)")
    parser.add_argument("--show", action="store_true", help="print everything that is wrong")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return truth(range(given.first, given.first + given.seeds), given.show, Path(name))


if __name__ == "__main__":
    sys.exit(main())
