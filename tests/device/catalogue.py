"""The faults of a lab under real NCCL: ``python -m tests.device.catalogue RESULTS.jsonl [--labs 4] [--seconds 540]``.

Labs of three nodes that share one GPU (``fabtui lab up --gpu``) stand side by side; each takes the next run: a fault
of the catalogue, three times each, or none, twenty times. A run is one line of JSON in RESULTS; what is there is
not run again, so that the catalogue may be spread over several calls. The table follows: whether the first title names
the fault, and whether it is the same each time. The exit code is 1 if a run is missing or the bars are not met: 46 of
48 right first, equal titles of each fault, no wrong data, and healthy runs with exit code 0 and without a finding.
``--cpu`` runs the same with CPU ranks.

Needs root, a GPU, and the programs of ``tools/carry_lab.sh``.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

Entry = dict[str, Any]
#: Deadline (s) of one run; a lab that is slower than that is broken.
_LONGEST = 240.0
_RIGHT_FIRST = 46


class Fault(NamedTuple):
    """A planted fault, and what its first title has to match."""

    name: str
    title: str


_PORT = r"(?=.*n001)(?=.*(eth0|NIC))"
FAULTS = (
    Fault("n001.eth0=pull", _PORT + ".*(carrier|down|cable)"),
    Fault("n001.eth0=misplug", "(?=.*n001).*(cut off|no traffic|nobody|reaches no)"),
    Fault("n001.eth0=down", _PORT + ".*(down|off)"),
    Fault("n001.eth0=flap:1", _PORT + ".*(flap|carrier)"),
    Fault("n001.eth0=slow-in:6MB", "(?=.*n001).*slow.*receiver"),
    Fault("n001.eth0=slow-out:6MB", "(?=.*n001).*slow.*sender"),
    Fault("n001.eth0=slow-out:60MB", "(?=.*n001).*slow.*sender"),
    Fault("n001.eth0=loss-in:5%", "(?=.*n001).*incoming.*lost"),
    Fault("n001.eth0=loss-out:5%", "(?=.*n001).*outgoing.*lost"),
    Fault("n001.eth0=blackhole:1500", "(?=.*n001).*(MTU|bytes|packets)"),
    Fault("n001.eth0=mtu:1500", "(?=.*n001).*MTU"),
    Fault("n000>n002=drop", "(?=.*n000 > n002).*one-way"),
    Fault("n000>n001=drop-tcp", "(?=.*n001)(?=.*n000).*TCP"),
    Fault("n000>n001=loss:20%", "(?=.*n000)(?=.*n001).*lost"),
    Fault("n000>n001=blackhole:1500", "(?=.*n000)(?=.*n001).*(MTU|bytes|packets)"),
    Fault("n001=firewall", "(?=.*n001).*TCP"),
)
HEALTHY = "healthy"


async def _call(*words: str, limit: float) -> tuple[int, str]:
    """Run a command; return its exit code (124: it took too long) and what it printed."""
    argv = [sys.executable, "-m", "fabtui", *words]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(limit):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        return 124, ""
    return process.returncode or 0, printed.decode(errors="replace")


async def _try(lab: str, config: str, fault: str, number: int, folder: Path, keep: Path | None) -> Entry:
    if fault != HEALTHY:
        code, printed = await _call("lab", "fault", "--name", lab, fault, limit=30)
        if code:
            row = {"fault": fault, "run": number, "code": code, "seconds": 0, "titles": []}
            return {**row, "first": f"not planted: {printed[-300:]}"}
    recording = folder / f"{lab}.jsonl.gz"
    for path in (recording, folder / f"{lab}.json"):
        path.unlink(missing_ok=True)
    words = ["run", "--force", "--nodes", "n[000-002]", "--ssh-config", config, "--json", str(folder / f"{lab}.json")]
    began = time.monotonic()
    code, printed = await _call(*words, "--record", str(recording), limit=_LONGEST)
    seconds = round(time.monotonic() - began, 1)
    try:
        answer = json.loads((folder / f"{lab}.json").read_text())
    except (OSError, ValueError):
        answer = {}
    if keep is not None and recording.exists():
        name = re.sub(r"\W+", "-", f"{fault}-{number}") + ".jsonl.gz"
        recording.replace(keep / name)
    await _call("lab", "heal", "--name", lab, limit=30)
    titles = [str(finding["title"]) for finding in answer.get("findings", []) if finding["severity"] != "note"]
    nodes = [" ".join(finding["nodes"]) for finding in answer.get("findings", []) if finding["severity"] != "note"]
    first = f"{titles[0]} [{nodes[0]}]" if titles else str(answer.get("sentence") or printed[-200:])
    wrong = [m for m in answer.get("measurements", []) if m["verdict"] == "wrong"]
    row = {"fault": fault, "run": number, "code": code, "seconds": seconds, "first": first, "titles": titles[:6]}
    return {**row, "wrong": len(wrong), "sentence": str(answer.get("sentence"))[:300], "tail": printed[-1500:]}


async def _worker(lab: str, kind: list[str], todo: list[tuple[str, int]], end: float, args: argparse.Namespace) -> None:
    code, printed = await _call("lab", "up", "--nodes", "3", "--rails", "1", *kind, "--name", lab, limit=120)
    if code:
        print(f"{lab} does not stand: {printed[-500:]}", file=sys.stderr)
        return
    config = re.search(r"\S+/ssh_config", printed)
    with tempfile.TemporaryDirectory() as folder:
        while todo and time.monotonic() < end and config is not None:
            fault, number = todo.pop(0)
            row = await _try(lab, config[0], fault, number, Path(folder), args.keep)
            with args.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{lab} {fault} {number}: rc {row['code']}, {row['seconds']} s, {row['first'][:150]}", flush=True)
    await _call("lab", "down", "--name", lab, limit=60)


async def _all(todo: list[tuple[str, int]], args: argparse.Namespace) -> None:
    end, kind = time.monotonic() + args.seconds, [] if args.cpu else ["--gpu"]
    async with asyncio.TaskGroup() as group:
        for number in range(min(args.labs, len(todo))):
            group.create_task(_worker(f"catalogue{number}-{os.getpid()}", kind, todo, end, args))


def table(rows: list[Entry]) -> bool:
    """Print the table; return True if the bars are met."""
    runs: dict[str, list[Entry]] = defaultdict(list)
    for row in rows:
        runs[row["fault"]].append(row)
    right = total = unequal = 0
    for fault in FAULTS:
        mine = runs[fault.name]
        hits = sum(bool(re.search(fault.title, row["first"])) for row in mine)
        # What was counted or measured differs from run to run.
        alike = sorted({re.sub(r"[\d.]+( to [\d.]+)? (%|times|GB/s|MB/s)", r"N \2", row["first"]) for row in mine})
        times = ", ".join(f"{row['seconds']:.0f}" for row in mine)
        right, total, unequal = right + hits, total + len(mine), unequal + (len(alike) > 1)
        print(f"{fault.name:28} {hits} of {len(mine)} right, {len(alike)} titles, {times} s: {' | '.join(alike)}")
    healthy = runs[HEALTHY]
    calm = sum(row["code"] == 0 and not row["titles"] for row in healthy)
    wrong = sum(row.get("wrong", 0) for row in rows)
    seconds = sorted(row["seconds"] for row in healthy)
    print(f"healthy: {calm} of {len(healthy)} calm, {seconds[:1]} to {seconds[-1:]} s")
    print(f"{right} of {total} right first (bar {_RIGHT_FIRST} of 48), {unequal} faults with unequal titles", end="")
    print(f", {wrong} wrong data")
    whole = total >= 3 * len(FAULTS) and len(healthy) >= 20
    return whole and right >= _RIGHT_FIRST and not unequal and not wrong and calm == len(healthy)


def main() -> int:
    """Run what is missing in RESULTS, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--labs", type=int, default=4, help="labs side by side (4)")
    parser.add_argument("--seconds", type=float, default=540.0, help="no run begins after this time (540)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each fault (3)")
    parser.add_argument("--healthy", type=int, default=20, help="runs without a fault (20)")
    parser.add_argument("--cpu", action="store_true", help="CPU ranks instead of NCCL")
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    args = parser.parse_args()
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    lines = args.results.read_text().splitlines() if args.results.exists() else []
    there = {(row["fault"], row["run"]) for row in map(json.loads, lines)}
    wanted = [(fault.name, number) for number in range(args.rounds) for fault in FAULTS]
    wanted += [(HEALTHY, number) for number in range(args.healthy)]
    todo = [run for run in wanted if run not in there]
    asyncio.run(_all(todo, args))
    return 0 if table([json.loads(line) for line in args.results.read_text().splitlines()]) else 1


if __name__ == "__main__":
    sys.exit(main())
