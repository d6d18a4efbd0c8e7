"""Mutated outputs of all formats are recognised as what they are, and have no value that contradicts the original."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtui.importers.catalogue import UNKNOWN
from fabtui.importers.formats.job_dumps import results_of

from .mutations import LEFT, MUTATIONS, Outcome, given, outcome, too_short
from .places import SAMPLES

#: Every mutation of each sample under ``nightly``; else each sample with some of them, all formats with all.
STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 10
#: Minimum share that is recognised, of all outputs and of each format with enough of them to have a share.
LEAST = 0.95
ENOUGH = 20


def _outcomes(*, short: bool = False) -> list[Outcome]:
    chosen = [
        (one, mutation)
        for at, one in enumerate(given())
        for number, mutation in enumerate(MUTATIONS)
        if (at + number) % STEP == 0 and too_short(mutation, one.text) == short
    ]
    return [outcome(one, mutation) for one, mutation in chosen]


@pytest.mark.slow
def test_what_is_too_short_is_taken_for_nothing_else() -> None:
    outcomes = _outcomes(short=True)
    assert len(outcomes) > 50
    taken = {(one.given.result.kind, one.kind): one.given.name for one in outcomes if not one.recognised}
    assert {kinds: name for kinds, name in taken.items() if kinds[1] != UNKNOWN and kinds not in LEFT} == {}


@pytest.mark.slow
def test_mutated_outputs(record_property: Callable[[str, object], None]) -> None:
    outcomes = _outcomes()
    share = _share(outcomes)
    record_property("recognised", f"{share:.1%} of {len(outcomes)}")
    print(f"{share:.1%} of {len(outcomes)} recognised")
    assert len(outcomes) > 250
    assert share >= LEAST, [f"{one.given.name}: {one.mutation.name}" for one in outcomes if not one.recognised]
    formats: dict[str, list[Outcome]] = collections.defaultdict(list)
    for one in outcomes:
        formats[one.given.result.kind].append(one)
    assert not [kind for kind, of in formats.items() if len(of) >= ENOUGH and _share(of) < LEAST]
    wrong = [one for one in outcomes if one.wrong]
    assert not wrong, [(one.given.name, one.mutation.name, one.wrong[:2]) for one in wrong]


def _share(outcomes: list[Outcome]) -> float:
    return sum(one.recognised for one in outcomes) / len(outcomes)


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
