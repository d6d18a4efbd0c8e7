"""Mesh of all addresses, against one ``ssh NODE ping`` per pair of addresses, one after the other, in one run.

    python bench/ping.py [--nodes 8] [--rails 4] [--sample 12] [--json]

Needs root, for network namespaces. The mesh is timed as users see it: all of ``fabtui run --probes ping``, from the
start of the interpreter to the summary, including echoes that fill the MTU. The sequential figures are extrapolated
from a sample of pairs: once with a login for each, once over warm connections (ControlMaster). Its pings send as many
echoes, as far apart, as the mesh does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui.lab.network import Network, missing
from fabtui.model.layers import Layer
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model

BAR = 50.0
ROUNDS = 3


def mesh(network: Network, folder: Path, probes: str) -> tuple[float, int]:
    """Return the seconds of a whole run, and how many address pairs answered."""
    recording = folder / f"{time.monotonic_ns()}.jsonl"
    argv = [sys.executable, "-m", "fabtui", "run", "--nodes", ",".join(network.names), "--quiet", "--probes", probes]
    argv += ["--ssh-config", str(network.ssh_config), "--record", str(recording)]
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"the mesh is not whole:\n{done.stdout}{done.stderr}")
    model = Model()
    for event in read_events(recording):
        model.apply(event)
    return seconds, len(list(model.addresses.pairs(Layer.PING)))


def sequential(network: Network, pairs: list[tuple[str, str, str]], *options: str) -> list[float]:
    """Return the seconds of one ssh with one ping for each pair of addresses."""
    found = []
    for node, here, there in pairs:
        ping = f"ping -n -q -c 3 -i 0.2 -W 1 -I {here} {there}"
        began = time.perf_counter()
        subprocess.run(
            ["ssh", "-F", str(network.ssh_config), *options, node, ping], check=True, stdout=subprocess.DEVNULL
        )
        found.append(time.perf_counter() - began)
    return found


def warm(network: Network, folder: Path, pairs: list[tuple[str, str, str]]) -> list[float]:
    """Return the same over connections that are open already."""
    options = ["-o", f"ControlPath={folder}/%n.control"]
    opened = sorted({node for node, _, _ in pairs})
    try:
        for node in opened:
            argv = [
                "ssh",
                "-F",
                str(network.ssh_config),
                *options,
                "-o",
                "ControlMaster=yes",
                "-o",
                "ControlPersist=120",
            ]
            subprocess.run([*argv, node, "true"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return sequential(network, pairs, *options)
    finally:
        for node in opened:
            argv = ["ssh", "-F", str(network.ssh_config), *options, "-O", "exit", node]
            subprocess.run(argv, check=False, capture_output=True)


def measure(nodes: int, rails: int, sample: int) -> dict[str, Any]:
    """Measure everything over one network, by turns."""
    with tempfile.TemporaryDirectory(prefix="mesh") as name, Network(Path(name), nodes, rails) as network:
        folder = Path(name)
        addresses = [(name, rail, network.address(name, rail)) for name in network.names for rail in network.rails]
        pairs = [(a, here, there) for a, _, here in addresses for b, _, there in addresses if a != b]
        chosen = random.Random(0).sample(pairs, min(sample, len(pairs)))
        ours: list[float] = []
        both: list[float] = []
        cold: list[float] = []
        kept: list[float] = []
        for turn in range(ROUNDS):
            part = chosen[turn::ROUNDS]
            seconds, answered = mesh(network, folder, "ping")
            if answered != len(pairs):
                raise SystemExit(f"{answered} of {len(pairs)} pairs were asked")
            ours.append(seconds)
            cold += sequential(network, part)
            kept += warm(network, folder, part)
            both.append(mesh(network, folder, "ping,udp")[0])
    mine = statistics.median(ours)
    one, one_warm = statistics.mean(cold), statistics.mean(kept)
    return {
        "pairs": len(pairs),
        "sample": len(chosen),
        "mesh_s": round(mine, 2),
        "mesh_with_udp_s": round(statistics.median(both), 2),
        "ssh_per_pair_s": round(one, 3),
        "ssh_all_pairs_s": round(one * len(pairs), 1),
        "warm_a_pair_s": round(one_warm, 3),
        "warm_all_pairs_s": round(one_warm * len(pairs), 1),
        "ratio": round(one * len(pairs) / mine, 1),
        "ratio_warm": round(one_warm * len(pairs) / mine, 1),
    }


def main() -> int:
    """Measure, print, and return 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rails", type=int, default=4)
    parser.add_argument("--sample", type=int, default=12, help="pairs of the sequential way that are measured")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    why = missing()
    if why is not None:
        print(f"ping: not measured: {why}", file=sys.stderr)
        return 0
    found = measure(args.nodes, args.rails, args.sample)
    if args.json:
        print(json.dumps(found))
    else:
        print(f"{args.nodes} nodes x {args.rails} rails, {found['pairs']} address pairs; load {os.getloadavg()[0]:.1f}")
        print(f"  fabtui run --probes ping      {found['mesh_s']:8.2f} s   small echoes and such that fill the MTU")
        print(f"  fabtui run --probes ping,udp  {found['mesh_with_udp_s']:8.2f} s   and one way, and TCP")
        extrapolated = f"extrapolated from {found['sample']} pairs"
        for name, one, everything, ratio in (
            ("one ssh per pair", "ssh_per_pair_s", "ssh_all_pairs_s", "ratio"),
            ("over warm connections", "warm_a_pair_s", "warm_all_pairs_s", "ratio_warm"),
        ):
            print(
                f"  {name:<29} {found[everything]:8.1f} s   {found[one]:.3f} s each, {extrapolated}: "
                f"{found[ratio]:.0f} x"
            )
    good = found["ratio"] >= BAR
    if not args.json:
        print(f"  bar: at least {BAR:.0f} x one ssh per pair: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
