"""The files that commands of the documentation name: recordings, snapshots, logs and outputs of tools."""

import shutil
from pathlib import Path

from fabtui.cli.main import main

from .blocks import ROOT

SAMPLES = ROOT / "tests" / "samples"
RECORDINGS = {
    "h200x8-lab-2x4.jsonl.gz": ("yesterday.jsonl.gz", "monday.jsonl.gz", "before.jsonl.gz", "good.jsonl.gz"),
    "h200x8-lab-2x4-faults.jsonl.gz": ("session.jsonl.gz", "today.jsonl.gz", "after.jsonl.gz", "FILE", "RECORDING"),
}


def fill(folder: Path) -> Path:
    shutil.copytree(SAMPLES / "docs", folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "recordings", folder / "recordings")
    for name, copies in RECORDINGS.items():
        for copy in copies:
            shutil.copy(ROOT / "tests" / "samples" / "sessions" / name, folder / copy)
    shutil.copy(SAMPLES / "ibsim" / "ibstat_n061.txt", folder / "ibstat.txt")
    shutil.copy(SAMPLES / "ibsim" / "perfquery_ok.txt", folder / "odd.txt")
    for name in ("bw", "results"):
        (folder / name).mkdir()
        shutil.copy(folder / "ar.txt", folder / name / "n060.txt")
    shutil.copy(folder / "ar.txt", folder / "bw-n060.txt")
    for recording, csv, json in (("good", "good.csv", "a.json"), ("today", "pairs.csv", "b.json")):
        words = ["--csv", str(folder / csv), "--json", str(folder / json)]
        words += ["--planner", str(folder / "planner.json")]
        main(["replay", str(folder / f"{recording}.jsonl.gz"), "--text", *words])
    with (folder / "pairs.csv").open("r+") as file:
        arm = [line.replace(",p2p,", ",p2p@NCCL_P2P_DISABLE=1,") for line in file if ",p2p," in line]
        file.writelines(arm)
    shutil.copy(folder / "b.json", folder / "fabric.json")
    _isolated_rails(folder / "p2p-runs")
    return folder


def _isolated_rails(folder: Path) -> None:
    """Write the output of a job for each pair of 16 ranks, of which only those on the same rail reach each other."""
    folder.mkdir()
    nodes = [f"n06{rank // 8}" for rank in range(16)]
    hello = "".join(f"{node} [{rank}/16]\n" for rank, node in enumerate(nodes))
    for a in range(16):
        for b in range(16):
            good = nodes[a] == nodes[b] or a % 8 == b % 8
            text = f"{nodes[a]} [{a}] : OK {a} -> {b}" if good else "RuntimeError: timed out"
            if a != b:
                (folder / f"p2p-test-{a}-{b}-{100 + 16 * a + b}.out").write_text(f"{hello}{text}\n")
