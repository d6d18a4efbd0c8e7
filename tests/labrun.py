"""``fabtui run`` as a user runs it, and what came out; for tests on CPU ranks and on GPUs alike."""

import csv
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.model.recording import read_events
from tests.forked import fabtui

Pair = tuple[str, str]
Row = dict[str, str]


class Run(NamedTuple):
    """A run.

    Attributes:
        seconds: How long it took.
        code: Its exit code.
        printed: What it printed.
        rows: The rows of its CSV.
        recording: Where its recording is.
    """

    seconds: float
    code: int
    printed: str
    rows: list[Row]
    recording: Path

    def layer(self, name: str) -> dict[Pair, Row]:
        """Return the rows of a layer by source and destination; of several message sizes the largest."""
        found = [row for row in self.rows if row["layer"] == name]
        return {(row["src"], row["dst"]): row for row in sorted(found, key=lambda row: int(row["bytes"] or 0))}

    def bad(self, layer: str = "p2p") -> dict[Pair, tuple[str, str]]:
        found = self.layer(layer).items()
        return {pair: (row["verdict"], row["error"]) for pair, row in found if row["verdict"] != "ok"}

    def story(self) -> str:
        """Return what happened when, and what was printed."""
        return "\n".join([*self._lines(), self.printed])

    def _lines(self) -> Iterable[str]:
        began = None
        for event in (one.to_json() for one in read_events(self.recording)):
            began = began or event["time"]
            at = f"{event['time'] - began:8.2f}"
            if event["kind"] == "phase":
                yield f"{at} phase {event['name']}"
            elif event["kind"] == "log":
                yield f"{at} {event['level']} {event.get('node') or ''} {event['text'][:300]}"
            for m in event.get("measurements", ()):
                if m["verdict"] != "ok":
                    yield f"{at} {m['layer']} {m['src']} > {m['dst']} {m['verdict']}: {m.get('error', '')[:300]}"


def run_lab(folder: Path, shape: str, *args: str, faults: Iterable[str] = (), limit: float = 280.0) -> Run:
    """Run a session over a lab of a shape, with faults."""
    words = [word for fault in faults for word in ("--lab-fault", fault)]
    return _run(folder, ["--lab", shape, *words, *args], {}, limit)


def run_local(folder: Path, gpus: Sequence[str], *args: str, limit: float = 280.0) -> Run:
    env = {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return _run(folder, ["--transport", "local", *args], env, limit)


def _run(folder: Path, args: list[str], env: dict[str, str], limit: float) -> Run:
    path, recording = folder / "s.csv", folder / "r.jsonl.gz"
    words = ["run", "--csv", str(path), "--record", str(recording), *args]
    began = time.monotonic()
    done = fabtui(*words, env={**os.environ, "NO_COLOR": "1", **env}, timeout=limit)
    seconds = time.monotonic() - began
    assert path.exists(), done.stderr + done.stdout
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return Run(seconds, done.returncode, done.stderr + done.stdout, rows, recording)


def check_healthy(code: int, rows: list[Row], printed: str, *, bad_findings: bool = False) -> None:
    """See that every test of CPU ranks passed, and that the exit code reports just that.

    Other work on the processors does slow some of them, and being slow is then the right verdict. A pair that is slow
    in the world communicator and ok in p2p does not count; ``bad_findings`` about nodes do. No slow pair counts where
    busy cores are the finding (FT029).
    """
    assert rows, printed
    assert {row["verdict"] for row in rows} <= {"ok", "slow"}, printed
    alone = {(row["src"], row["dst"]) for row in rows if row["layer"] == "p2p" and row["verdict"] == "ok"}
    slow = [row for row in rows if row["verdict"] == "slow"]
    counted = any(row["layer"] != "world" or (row["src"], row["dst"]) not in alone for row in slow)
    assert code in ({0, 1} if counted and "  FT029\n" in printed else {counted or bad_findings}), printed
    assert ("all ok\n" in printed) <= (not slow and not bad_findings), printed


def check_cells(
    run: Run,
    expected: Mapping[Pair, tuple[str, str]],
    reasons: Mapping[str, str],
    pairs: int,
    unsteady: Collection[str] = (),
) -> None:
    """See that exactly the expected cells of p2p are not ok, each with its verdict and with its own reason alone.

    Args:
        run: The run.
        expected: Verdict and name of the reason of each cell that has to be bad.
        reasons: By name of a reason, a pattern that its text matches and no other's does.
        pairs: How many ordered pairs there are.
        unsteady: Verdicts that other cells may have: ``slow`` on processors that others use as well.
    """
    bad = {pair: found for pair, found in run.bad().items() if pair in expected or found[0] not in unsteady}
    assert set(bad) == set(expected), run.story()
    assert len(run.layer("p2p")) == pairs, run.story()
    for pair, (verdict, reason) in expected.items():
        assert bad[pair][0] == verdict, (pair, bad[pair], run.story())
        names: list[Any] = [name for name, pattern in reasons.items() if re.search(pattern, bad[pair][1])]
        assert names == [reason], (pair, bad[pair], run.story())
    assert "Traceback" not in run.printed, run.printed
