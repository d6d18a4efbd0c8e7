"""One node of three lies to ranks of others, or to the store: the others are measured, and it is named."""

import json
from pathlib import Path

import pytest

from tests import liar
from tests.labrun import run_lab

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["poison", "planted"])
def test_a_lying_node_harms_no_other_and_its_attack_on_the_store_is_named(tmp_path: Path, mode: str) -> None:
    python = liar.interpreter(tmp_path / "python3", mode)
    words = ["--remote-python", str(python), "--probes", "p2p", "--layers", "p2p", "--bytes", "64k", "--iters", "4"]
    run = run_lab(tmp_path, "3x1", *words, "--timeout", "10", "--json", str(tmp_path / "s.json"))
    honest = [row for row in liar.of_others(run.rows) if row["layer"] == "p2p"]
    assert len(honest) == 2, run.story()
    assert {row["verdict"] for row in honest} <= {"ok", "slow"}, run.story()
    titles = [found["title"] for found in json.loads((tmp_path / "s.json").read_text())["findings"]]
    assert ("n001 lost" in titles) == (mode == "poison"), run.story()
    # No rank is ended by the fault that its peer asks for.
    assert "ended with signal" not in run.printed, run.story()
