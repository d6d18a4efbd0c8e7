"""Our figures against other tools' on the same GPUs: nccl-tests where they are, else torch.distributed."""

import importlib.util
import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.labrun import Row, Run, run_local

MIB = 1 << 20
SIZES = (256 * MIB, 1024 * MIB)
NEAR = 0.03
REFERENCE = Path(__file__).with_name("reference.py")

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch with NCCL and GPUs")


def _reference(gpus: list[str], kinds: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    words = ["--gpus", ",".join(gpus), "--kinds", kinds, "--bytes", ",".join(map(str, sizes))]
    done = subprocess.run([sys.executable, str(REFERENCE), *words], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def _nccl_tests(program: str, count: int) -> dict[int, float] | None:
    """Return the busbw (GB/s) of each size, or None where the program is not there.

    It has two columns. Ours sums in place, and sends from memory that nothing is received into: the other column.
    """
    path = shutil.which(program)
    if path is None:
        return None
    least, most = f"{SIZES[0] // MIB}M", f"{SIZES[-1] // MIB}M"
    argv = [path, "-b", least, "-e", most, "-f", "4", "-g", str(count), "-n", "20", "-w", "5"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for line in done.stdout.splitlines():
        if re.match(r"\s*\d+\s+\d+\s+float\s", line):
            fields = line.split()
            found[int(fields[0])] = float(fields[-6] if program.startswith("sendrecv") else fields[-2])
    assert set(found) == set(SIZES), done.stdout
    print("\n" + "\n".join(line for line in done.stdout.splitlines() if re.match(r"\s*(\d|#\s+size)", line)))
    return found


@pytest.fixture(scope="module")
def ours(gpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Measurements of fabtui: pairs one at a time, and the collectives over all."""
    sizes = ",".join(f"{size // MIB}M" for size in SIZES)
    args = ["--probes", "p2p,all_reduce", "--layers", "p2p", "--isolated", "--bytes", f"{SIZES[0] // MIB}M"]
    args += ["--collectives", "all_reduce,sendrecv", "--sizes", sizes]
    run = run_local(tmp_path_factory.mktemp("ours"), gpus, *args)
    assert run.code == 0, run.story()
    return run


def _p2p(run: Run, src: int, dst: int) -> Row:
    (row,) = (
        row
        for row in run.layer("p2p").values()
        if (row["src_index"], row["dst_index"]) == (str(src), str(dst)) and row["src_node"] == row["dst_node"]
    )
    return row


def _collective(run: Run, layer: str) -> dict[int, float]:
    # A session of one node has no other group over all endpoints than that of the node.
    found = [row for row in run.rows if row["layer"] == layer and row["src"] == row["dst"]]
    return {int(row["bytes"]): float(row["value"]) for row in found}


def _compare(what: str, mine: float, theirs: float, whose: str) -> str | None:
    text = f"{what}: {mine:.2f} GB/s, {whose} {theirs:.2f} GB/s, {mine / theirs:.3f} of it"
    print(f"  {text}")
    return None if abs(mine / theirs - 1) <= NEAR else text


@needs_torch
def test_p2p_against_torch(gpus: list[str], ours: Run) -> None:
    off = []
    for a, b in sorted({(0, 1), (0, len(gpus) - 1)}):
        theirs = _reference([gpus[a], gpus[b]], "p2p", SIZES[:1])
        print(f"\ntorch {theirs['torch']}, NCCL {theirs['nccl']}, GPUs {gpus[a]} and {gpus[b]}")
        for src, dst, key in ((a, b, "0>1"), (b, a, "1>0")):
            row = _p2p(ours, src, dst)
            what = f"p2p {row['src']} > {row['dst']}, {int(row['bytes']) // MIB} MiB, {row['transport']}"
            off.append(_compare(what, float(row["value"]), theirs[key][str(SIZES[0])], "torch"))
    assert not any(off), off


@pytest.mark.parametrize(
    ("layer", "kind", "program"),
    [("busbw", "all_reduce", "all_reduce_perf"), ("sendrecv", "sendrecv", "sendrecv_perf")],
)
def test_collectives_against_others(gpus: list[str], ours: Run, layer: str, kind: str, program: str) -> None:
    whose, theirs = program, _nccl_tests(program, len(gpus))
    if theirs is None:
        if importlib.util.find_spec("torch") is None:
            pytest.skip(f"needs {program}, or torch with NCCL and GPUs")
        factor = 2 * (len(gpus) - 1) / len(gpus) if kind == "all_reduce" else 1.0
        found = _reference(gpus, kind, SIZES)
        whose = f"torch {found['torch']} with NCCL {found['nccl']}"
        theirs = {int(size): value * factor for size, value in found[kind].items()}
    mine = _collective(ours, layer)
    print(f"\n{kind} over {len(gpus)} GPUs, busbw")
    off = [_compare(f"{kind} {size // MIB} MiB", mine[size], theirs[size], whose) for size in SIZES]
    assert not any(off), off


def test_with_and_without_p2p_both_transports_are_named(gpus: list[str], tmp_path: Path) -> None:
    args = ("--probes", "p2p", "--layers", "p2p", "--mode", "quick", "--bytes", "64M")
    run = run_local(tmp_path, gpus, *args, "--ab", "NCCL_P2P_DISABLE=0,1")
    first, second = run.layer("p2p"), run.layer("p2p@NCCL_P2P_DISABLE=1")
    assert first, run.story()
    assert set(first) == set(second), run.story()
    for name, rows in (("NCCL_P2P_DISABLE=0", first), ("NCCL_P2P_DISABLE=1", second)):
        transports = {row["transport"] for row in rows.values()}
        print(f"\n{name}: {statistics.median(float(row['value']) for row in rows.values()):.2f} GB/s over {transports}")
    assert all(row["transport"].startswith("P2P") for row in first.values()), run.story()
    assert all(row["transport"].startswith(("SHM", "NET")) for row in second.values()), run.story()
    # The table of the summary names the arms and their transports as well.
    for word in ("NCCL_P2P_DISABLE=0", "NCCL_P2P_DISABLE=1", "P2P", "SHM"):
        assert word in run.printed or (word == "SHM" and "NET" in run.printed), run.printed
