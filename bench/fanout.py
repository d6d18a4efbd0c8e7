"""Cold start to an answer of 64 nodes, against clush running ``true`` on them.

    python bench/fanout.py [--nodes 64] [--rounds 7]

The nodes are real OpenSSH servers on loopback addresses of this machine (``loopback.py``); both sides use the same
ssh_config, keys and known hosts. Each round runs, one after the other and each in a new process:

- clush with the key exchange curve25519-sha256, and clush with the default of its ssh, in many versions far slower.
- ``true``: fabtui's login, with ``true`` as the command on each node, as clush does. The bars of wall time are
  for this: from the start of the process, interpreter included, to its end. So is the bar of processor time.
- ``alone``: the same by asyncssh without the tool, with the ssh_config of one node for all; it reads
  the known hosts again for each node.
- ``hello``: the tool's links, until every node's supervisor has sent its first frame. A Python starts on each node and
  receives its program, which clush does not do. Where all nodes share the processors of one machine, as here, that is
  most of the wall time.
- ``look``: the same until every node's inventory is read: the probes were sent, and sysfs was read.

Ratios are of the same round; their medians count. Processor time is user and system of the client and its children
(``ssh -G``, and clush's ``ssh``), per node, for fabtui after imports. The minimum of all rounds counts, because other
work on the machine only adds to it. The stages come from further runs in which all nodes wait for each other.
Separate runs measure cryptography, because measuring it costs about as much.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bars import MISSED, held
from loopback import Loopback, clush, lacking, nodes

BAR_CURVE = 1.2
BAR_STOCK = 0.35
#: Processor time of the client in ms a node.
BAR_CPU = 8.0
DEADLINE = 120.0
CLIENT = Path(__file__).with_name("fanclient.py")

CURVE, STOCK, ALONE, TRUE, HELLO, LOOK = "curve", "stock", "alone", "true", "hello", "look"
TITLES = {
    CURVE: "clush, true, curve25519",
    STOCK: "clush, true, as ssh is",
    ALONE: "asyncssh alone, true",
    TRUE: "fabtui, true",
    HELLO: "fabtui, hello",
    LOOK: "fabtui, inventory",
}


class Cost(NamedTuple):
    """Cost of one run: wall time (s), processor time (s), and the output of the client."""

    wall: float
    cpu: float
    printed: dict[str, float]


def run(argv: Sequence[str]) -> tuple[float, float, str]:
    """Run a command; returns when it began, its wall time and its output."""
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
    return began, wall, output


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
    _, wall, _ = run(argv)
    return Cost(wall, of_children() - before, {})


def of_client(mode: str, config: Path, names: list[str]) -> Cost:
    """Run the client; its wall time is to its end with ``true``, else to the last answer."""
    began, wall, output = run([sys.executable, str(CLIENT), mode, str(config), ",".join(names)])
    printed: dict[str, float] = json.loads(output)
    if mode in (HELLO, LOOK):
        return Cost(printed["done"] - began, printed["cpu"] + printed["children"], printed)
    return Cost(wall, printed["whole"] + printed["children"], printed)


def measure(place: Loopback, rounds: int) -> list[dict[str, Cost]]:
    """Run the rounds, each in another order."""
    curve = place.folder / "curve_config"
    curve.write_text("KexAlgorithms curve25519-sha256\n" + place.config.read_text())
    runs_by_name: dict[str, Callable[[], Cost]] = {
        CURVE: lambda: of_clush(curve, place.names),
        STOCK: lambda: of_clush(place.config, place.names),
        **{mode: partial(of_client, mode, place.config, place.names) for mode in (ALONE, TRUE, HELLO, LOOK)},
    }
    # What was never imported is compiled now, as it was at an installation.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(place.folder / "compiled")
    for name in (CURVE, TRUE, LOOK):
        runs_by_name[name]()
    found = []
    for number in range(rounds):
        order = [*runs_by_name][number % len(runs_by_name) :] + [*runs_by_name][: number % len(runs_by_name)]
        costs = {name: runs_by_name[name]() for name in order}
        found.append(costs)
        shown = "  ".join(f"{name} {costs[name].wall:.2f} s" for name in TITLES)
        print(f"round {number + 1}: {shown}", file=sys.stderr)
    return found


def show(rounds: list[dict[str, Cost]], count: int) -> int:
    """Print the medians, ratios and bars; returns the exit code."""
    least = {name: min(one[name].cpu for one in rounds) / count * 1e3 for name in TITLES}
    names = f"{'wall s':>7} {'min':>7} {'x curve':>8} {'x stock':>8} {'CPU ms/node':>12} {'median':>7} {'x alone':>8}"
    print(f"{'':25} {names}")
    missed = 0
    for name, title in TITLES.items():
        walls = [one[name].wall for one in rounds]
        curve = statistics.median(one[name].wall / one[CURVE].wall for one in rounds)
        stock = statistics.median(one[name].wall / one[STOCK].wall for one in rounds)
        cpus = [one[name].cpu / count * 1e3 for one in rounds]
        alone = least[name] / least[ALONE]
        bars = []
        if name == TRUE:
            bars += [(curve, BAR_CURVE), (stock, BAR_STOCK), (least[name], BAR_CPU)]
        printed = ", ".join(f"<= {bar:g} {held(value, bar)}" for value, bar in bars)
        missed += printed.count(MISSED)
        print(
            f"{title:25} {statistics.median(walls):7.2f} {min(walls):7.2f} {curve:8.2f} {stock:8.2f}"
            f" {least[name]:12.2f} {statistics.median(cpus):7.2f} {alone:8.2f}  {printed}"
        )
    return 1 if missed else 0


def show_stages(runs: list[Cost], count: int) -> None:
    """Print what each stage costs the client."""
    names = dict.fromkeys(name for one in runs for name in one.printed)
    least = {name: min(one.printed[name] for one in runs if name in one.printed) for name in names}
    print("\nprocessor time of the client, ms a node:")
    for name, seconds in least.items():
        if name.startswith(("stage ", "of it ", "children")):
            print(f"  {name.removeprefix('stage '):25} {seconds / count * 1e3:6.2f}")
    print(f"imports, once: {least['imports'] * 1e3:.0f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64, help="how many nodes (64)")
    parser.add_argument("--rounds", type=int, default=7, help="how many rounds (7)")
    options = parser.parse_args()
    if lack := lacking():
        print(f"not run: {lack}")
        return 0
    with nodes(options.nodes) as place:
        rounds = measure(place, options.rounds)
        runs = [of_client(mode, place.config, place.names) for _ in range(3) for mode in ("stages", "crypto")]
    code = show(rounds, options.nodes)
    show_stages(runs, options.nodes)
    return code


if __name__ == "__main__":
    sys.exit(main())
