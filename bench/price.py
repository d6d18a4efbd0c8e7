"""Price: what the cost model predicts of a collective, and what it gives then.

    python bench/price.py    32 cases in a lab of six nodes with slow links; needs root

A fabric of the lab has a rate for each node and one or two nodes that are slower; all are far below what busy
processors reach. A session over all nodes predicts the busbw without the slow ones, and a session with ``--exclude``
measures it. At least 30 of 32 have to be within 15 %.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from bars import held

from fabtui.diagnosis.finding import finished
from fabtui.diagnosis.price import Calibration, CostModel, fabric_rates
from fabtui.importers.session import read_session
from fabtui.model.layers import COLLECTIVES
from fabtui.model.session_model import Model

NODES = 6
KINDS = ("all_reduce", "reduce_scatter")
#: Bar: relative error of a prediction, and how many of 32 have to be within it.
BAR, WITHIN, OF = 0.15, 30, 32
#: Rates of healthy and of slow links, MB/s.
HEALTHY, SLOW = (24, 40), (6, 14)
#: Maximum time of a session, s.
_LONGEST = 240.0
_FABTUI = [sys.executable, "-m", "fabtui"]


class Case(NamedTuple):
    """A prediction, and what was measured."""

    what: str
    before: float  #: busbw over all nodes, GB/s.
    predicted: float | None  #: None: the model gives no number.
    measured: float

    @property
    def error(self) -> float:
        """Relative error; infinite without a prediction."""
        return float("inf") if self.predicted is None else abs(self.predicted / self.measured - 1)

    def __str__(self) -> str:
        predicted = "no number" if self.predicted is None else f"{1e3 * self.predicted:7.2f} predicted"
        values = f"{1e3 * self.before:7.2f} -> {predicted}, {1e3 * self.measured:7.2f} MB/s"
        return f"{self.what}: {values} ({self.error:.1%})"


def session(folder: Path, *words: str) -> Model:
    """Run a session, and return its model."""
    path = folder / f"{time.monotonic_ns()}.jsonl.gz"
    done = subprocess.run(
        [*_FABTUI, "run", *words, "--record", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_LONGEST,
        check=False,
    )
    if done.returncode not in (0, 1) or not path.exists():
        raise SystemExit(f"fabtui run {' '.join(words)}: exit {done.returncode}\n{done.stdout.decode()[-2000:]}")
    return read_session(str(path))


def largest(model: Model, kind: str, group: str) -> float | None:
    """Return the busbw of a collective over a group, with the largest message."""
    one = model.latest(COLLECTIVES[kind], group, group)
    return None if one is None else one.value


def calibrated(model: Model, kind: str) -> tuple[CostModel, Calibration]:
    rates = finished(fabric_rates(model))
    costs = None if rates is None else CostModel(model, rates)
    of = None if costs is None else finished(costs.calibrated(kind))
    if costs is None or of is None:
        raise SystemExit(f"{kind} was not measured, or a rate is unknown")
    return costs, of


def cases(folder: Path, fabrics: int, seed: int, name: str) -> Iterator[Case]:
    """Yield the cases of some fabrics: each without its slowest node, and without both slow ones."""
    chance = random.Random(seed)
    config = folder / "state" / "fabtui" / "labs" / name / "ssh_config"
    names = [f"n{at:03}" for at in range(NODES)]
    common = ["--ssh-config", str(config), "--nodes", f"n[000-{NODES - 1:03}]", "--iters", "3", "--warmup", "1"]
    common += ["--collectives", ",".join(KINDS), "--bytes", "1M", "--sizes", "2M", "--timeout", "20"]
    for at in range(fabrics):
        slow = chance.sample(names, 2)
        rates = {node: chance.randint(*SLOW if node in slow else HEALTHY) for node in names}
        worst = min(slow, key=rates.__getitem__)
        way = chance.choice(("out", "in"))
        _lab("heal", "--name", name, quiet=True)
        _lab("fault", "--name", name, *(f"{node}.eth0=slow-{way}:{rate}MB" for node, rate in rates.items()))
        whole = session(folder, *common, "--probes", "p2p,all_reduce")
        for out in ([worst], slow):
            count = NODES - len(out)
            left = session(
                folder, *common, "--exclude", ",".join(out), "--probes", "all_reduce", "--groups", str(count)
            )
            for kind in KINDS:
                costs, of = calibrated(whole, kind)
                ranks = [end.number for end in whole.endpoints if end.node not in out]
                predicted = costs.busbw(of, np.array(ranks, dtype=np.int64)) if of.fits else None
                measured = largest(left, kind, f"first{count}")
                assert measured is not None
                what = f"fabric {at + 1} ({way} {' '.join(map(str, rates.values()))}), {kind} without {'+'.join(out)}"
                yield Case(f"{what}, model error {of.error:.1%}", of.busbw, predicted, measured)


def _lab(*words: str, quiet: bool = False) -> None:
    done = subprocess.run([*_FABTUI, "lab", *words], capture_output=True, timeout=60, check=False)
    if done.returncode and not quiet:
        raise SystemExit(f"fabtui lab {' '.join(words)}: {done.stderr.decode()[-500:]}")


def in_lab(args: argparse.Namespace) -> list[Case]:
    name = f"price{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="price-") as text:
        os.environ["XDG_STATE_HOME"] = f"{text}/state"
        _lab("up", "--nodes", str(NODES), "--rails", "1", "--name", name)
        try:
            return list(_printed(cases(Path(text), args.fabrics, args.seed, name)))
        finally:
            _lab("down", "--name", name, quiet=True)


def _printed(found: Iterator[Case]) -> Iterator[Case]:
    for one in found:
        print(one, flush=True)
        yield one


def main() -> int:
    """Run the cases; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabrics", type=int, default=OF // (2 * len(KINDS)))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if os.geteuid():
        print("skipped: needs root, for network namespaces")
        return 0
    found = in_lab(args)
    good = sum(one.error <= BAR for one in found)
    least = WITHIN * len(found) // OF
    print(f"{good} of {len(found)} within {BAR:.0%} (bar {least:.0f}: {held(good, least, least=True)})")
    return int(good < least)


if __name__ == "__main__":
    sys.exit(main())
