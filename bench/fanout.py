"""Cold start to an answer of 64 nodes, against clush running ``true`` on them.

    python bench/fanout.py [--nodes 64] [--rounds 7]

The nodes are real OpenSSH servers on loopback addresses of this machine (``loopback.py``); both sides use the same
ssh_config, keys and known hosts. Each round runs clush with the key exchange curve25519-sha256, and fabtui's login
(``fanclient.py``) with ``true`` as the command on each node: one after the other, each in a new process. Wall time is
from the start of the process, interpreter included, to its end.

The ratio is of the same round; the median counts. Processor time is user and system of the client and its children
(``ssh -G``, and clush's ``ssh``), per node, for fabtui after imports. The minimum of all rounds counts, because other
work on the machine only adds to it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bars import MISSED, held
from loopback import Loopback, clush, lacking, nodes

BAR_CURVE = 1.2
#: Processor time of the client in ms a node.
BAR_CPU = 8.0
DEADLINE = 120.0
CLIENT = Path(__file__).with_name("fanclient.py")
CURVE, TRUE = "clush, true, curve25519", "fabtui, true"


class Cost(NamedTuple):
    """Cost of one run: wall time (s), processor time (s), and that of imports (s)."""

    wall: float
    cpu: float
    imports: float = 0.0


def run(argv: Sequence[str]) -> tuple[float, str]:
    """Run a command; returns its wall time and its output."""
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"{argv[0]} did not end within {DEADLINE:.0f} s") from None
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(argv[:3])} failed: {errors[-2000:]}")
    return wall, output


def of_children() -> float:
    """Return the processor seconds of all ended children of this process."""
    used = os.times()
    return used.children_user + used.children_system


def of_clush(config: Path, names: list[str]) -> Cost:
    """Have clush run ``true`` on all nodes."""
    program = clush()
    assert program is not None
    before = of_children()
    argv = [program, "-f", str(len(names)), "-w", ",".join(names), "-o", f"-F {config}", "-N", "-q", "true"]
    wall, _ = run(argv)
    return Cost(wall, of_children() - before)


def of_client(config: Path, names: list[str]) -> Cost:
    """Have fabtui run ``true`` on all nodes."""
    wall, output = run([sys.executable, str(CLIENT), str(config), ",".join(names)])
    printed: dict[str, float] = json.loads(output)
    return Cost(wall, printed["whole"] + printed["children"], printed["imports"])


def measure(place: Loopback, rounds: int) -> list[dict[str, Cost]]:
    """Run the rounds, each in another order."""
    curve = place.folder / "curve_config"
    curve.write_text("KexAlgorithms curve25519-sha256\n" + place.config.read_text())
    runs_by_name: dict[str, Callable[[], Cost]] = {
        CURVE: lambda: of_clush(curve, place.names),
        TRUE: lambda: of_client(place.config, place.names),
    }
    # What was never imported is compiled now, as it was at an installation.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(place.folder / "compiled")
    for once in runs_by_name.values():
        once()
    return [
        {name: runs_by_name[name]() for name in ((CURVE, TRUE) if number % 2 else (TRUE, CURVE))}
        for number in range(rounds)
    ]


def show(rounds: list[dict[str, Cost]], count: int) -> int:
    """Print the medians, the ratio and bars; returns the exit code."""
    print(f"{'':25} {'wall s':>7} {'min':>7} {'x clush':>8} {'CPU ms/node':>12}")
    missed = 0
    for name in (CURVE, TRUE):
        walls = [costs[name].wall for costs in rounds]
        ratio = statistics.median(costs[name].wall / costs[CURVE].wall for costs in rounds)
        least = min(costs[name].cpu for costs in rounds) / count * 1e3
        bars = [(ratio, BAR_CURVE), (least, BAR_CPU)] if name == TRUE else []
        printed = ", ".join(f"<= {bar:g} {held(value, bar)}" for value, bar in bars)
        missed += printed.count(MISSED)
        print(f"{name:25} {statistics.median(walls):7.2f} {min(walls):7.2f} {ratio:8.2f} {least:12.2f}  {printed}")
    print(f"imports, once: {min(costs[TRUE].imports for costs in rounds) * 1e3:.0f} ms")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64, help="how many nodes (64)")
    parser.add_argument("--rounds", type=int, default=7, help="how many rounds (7)")
    options = parser.parse_args()
    if lack := lacking():
        print(f"not run: {lack}")
        return 0
    with nodes(options.nodes) as place:
        return show(measure(place, options.rounds), options.nodes)


if __name__ == "__main__":
    sys.exit(main())
