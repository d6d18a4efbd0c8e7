"""Mutated outputs of all formats are recognised as what they are, and have no value that contradicts the original."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtui.importers.formats.job_dumps import results_of

from .mutations import MUTATIONS, Outcome, given, outcome, too_short
from .places import SAMPLES

#: Every mutation of each sample under ``nightly``; else each sample with some of them, all formats with all.
STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 10
#: Minimum share that is recognised.
LEAST = 0.95
#: Outputs in which a mutation leaves other values, and why.
OTHERS = {
    ("folded at 80", "all_reduce_bench/jz-1x4-v100-opa-full-log.txt"): "one line of many was longer",
    ("folded at 80", "slurm/sacct_c_jobcomp.txt"): "rows of one length look like lines that were cut",
    ("folded at 80", "slurm-sinfo/R-gres-gpu-reasons-truncated.txt"): "one line of many was longer",
    ("folded at 80", "pasted/30-watchdog-wrapped-138.txt"): "cut twice, at two widths",
    ("stamp in the first line", "pasted/30-watchdog-wrapped-138.txt"): "the first line is longer than the width then",
    ("prompt in the first line", "pasted/30-watchdog-wrapped-138.txt"): "the first line is longer than the width then",
    ("folded at 80", "ras/skip-rank1.log"): "one line of many was longer",
    ("lower case", "pasted/10-c10d-client-timeout.txt"): "the catalogue knows more precisely what failed",
    ("lower case", "pasted/11-c10d-in-use.txt"): "the catalogue knows more precisely what failed",
    ("lower case", "busbw-table 17"): "the unit is part of a heading in words",
    ("lower case", "dmesg-xid/aer-then-xid79.txt"): "an event of several lines begins with another of them",
    ("redacted", "ping/fping-answered-and-lost.txt"): "the command that we put above it looks like a target then",
    ("header dropped", "dmesg-xid/aer-then-xid79.txt"): "an event of several lines begins with another of them",
}


def _outcomes() -> list[Outcome]:
    chosen = [
        (one, mutation)
        for at, one in enumerate(given())
        for number, mutation in enumerate(MUTATIONS)
        if (at + number) % STEP == 0 and not too_short(mutation, one.text)
    ]
    return [outcome(one, mutation) for one, mutation in chosen]


@pytest.mark.slow
def test_mutated_outputs(record_property: Callable[[str, object], None]) -> None:
    outcomes = _outcomes()
    share = sum(one.recognised for one in outcomes) / len(outcomes)
    record_property("recognised", f"{share:.1%} of {len(outcomes)}")
    print(f"{share:.1%} of {len(outcomes)} recognised")
    assert len(outcomes) > 250
    assert share >= LEAST, [f"{one.given.name}: {one.mutation.name}" for one in outcomes if not one.recognised]
    wrong = [one for one in outcomes if one.wrong and (one.mutation.name, one.given.name) not in OTHERS]
    assert not wrong, [(one.given.name, one.mutation.name, one.wrong[:2]) for one in wrong]


def test_outputs_of_several_commands_in_one_paste(tmp_path: Path) -> None:
    """Each is read as what it is; two outputs of one kind stay one text."""
    topology = (SAMPLES / "h200x8/topo-m.txt").read_text()
    links = (SAMPLES / "h200x8/nvlink-s.txt").read_text()
    text = f"alice@n060:~$ nvidia-smi topo -m\n{topology}alice@n060:~$ nvidia-smi nvlink -s\n{links}"
    paste = tmp_path / "both.txt"
    paste.write_text(text)
    results = list(results_of([str(paste)]))
    assert [(one.kind, one.source.name) for one in results] == [
        ("nvidia-smi-topo-m", f"{paste} (1 of 2)"),
        ("nvidia-smi-nvlink-s", f"{paste} (2 of 2)"),
    ]
    assert results[1].values["links_total"] == 144
    paste.write_text(f"$ nvidia-smi nvlink -s\n{links}$ nvidia-smi nvlink -s\n{links}")
    assert [one.kind for one in results_of([str(paste)])] == ["nvidia-smi-nvlink-s"]
