"""Whole sessions without a screen, over the lab."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from fabtui.cli import main as entry
from fabtui.export.formats import schema
from fabtui.model.recording import read_events
from tests.conftest import needs_torch
from tests.forked import fabtui

pytestmark = [pytest.mark.slow, needs_torch]


def test_run_fills_the_grid_and_writes_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv, value = tmp_path / "s.csv", tmp_path / "s.json"
    record = tmp_path / "r.jsonl.gz"
    argv = ["--lab", "1x2", "--bytes", "64K", "--csv", str(csv), "--json", str(value), "--record", str(record)]
    done = fabtui("run", *argv)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "p2p, GB/s at 64 KiB" in done.stdout
    assert f"recorded in {record}" in done.stdout
    assert "p2p: 2 tests\n" in done.stderr
    verdicts = [m["verdict"] for m in json.loads(value.read_text())["measurements"] if m["layer"] == "p2p"]
    assert len(verdicts) == 2
    assert entry.main(["replay", "--text", str(record)]) == done.returncode
    # The files come before the last line, which is the first one once more.
    written = ("wrote ", "recorded in ")
    expected = [line for line in done.stdout.splitlines() if not line.startswith(written)]
    assert capsys.readouterr().out.splitlines() == expected


def test_watch_keeps_its_files_up_to_date_until_a_signal(tmp_path: Path) -> None:
    prom, value = tmp_path / "fabtui.prom", tmp_path / "s.json"
    argv = ["watch", "--lab", "1x2", "--bytes", "64K", "--every", "600", "--budget", "80", "--prom", str(prom)]
    process = subprocess.Popen(
        [sys.executable, "-m", "fabtui", *argv, "--json", str(value)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=40)
    finally:
        process.kill()
    assert "  round 1: All 2 pairs are ok" in first
    assert (process.returncode, out.endswith("ended by SIGTERM\n")) == (0, True)
    families = {family.name: family.samples for family in text_string_to_metric_families(prom.read_text())}
    states = {one.labels["state"]: one.value for one in families["fabtui_watch_round_state"]}
    assert states == {"complete": 1, "over-budget": 0, "nothing-tested": 0, "error": 0}
    assert families["fabtui_class_bandwidth_bytes_per_second"]
    Draft202012Validator(schema("session")).validate(json.loads(value.read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_writes_what_it_has(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, record = tmp_path / "s.csv", tmp_path / "r.jsonl.gz"
    argv = ["run", "--lab", "1x3", "--lab-fault", "n000:0>n000:1=drop", "--timeout", "60"]
    argv += ["--csv", str(csv), "--record", str(record), "--bytes", "64K"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fabtui", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        # The dead pair is the last one, and holds the sweep for its deadline of 60 s; that is when the signal comes.
        end = time.monotonic() + 60
        assert process.stderr is not None
        while time.monotonic() < end and not process.stderr.readline().startswith("p2p"):
            pass
        time.sleep(2)
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    assert f"interrupted by {number.name}" in err
    assert "Traceback" not in out + err
    assert "the session was not finished: it ended in p2p" in out
    assert ",p2p," in csv.read_text()
    # What was measured of this machine's cores until then may well be slow.
    assert entry.main(["replay", "--text", str(record)]) in (1, 3)
    assert "the session was not finished: it ended in p2p" in capsys.readouterr().out


def test_watching_a_lab_tests_again_without_starting_ranks_again(tmp_path: Path) -> None:
    # Beside other tests the dead pair alone, with its deadline and its second test, has taken 6 s.
    seconds = 15
    record = tmp_path / "r.jsonl.gz"
    argv = ["--lab", "1x3", "--lab-fault", "n000:0>n000:1=drop", "--timeout", "2", "--bytes", "64K"]
    argv += ["--record", str(record)]
    done = fabtui("run", *argv, "--probes", "p2p", "--watch", str(seconds), "--watch-rate", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    events = [event.to_json() for event in read_events(record)]
    (on,) = [at for at, event in enumerate(events) if event["kind"] == "watch" and event["on"]]
    (off,) = [at for at, event in enumerate(events) if event["kind"] == "watch" and not event["on"]]
    tested = [
        (m["src"], m["dst"], m["verdict"])
        for event in events[on:off]
        if event["kind"] == "measured"
        for m in event["measurements"]
        if m["layer"] == "p2p"
    ]
    pairs = {frozenset(ends[:2]) for ends in tested}
    assert len(pairs) == 3, "every pair came round"
    assert ("n000:0", "n000:1", "timeout") in tested
    assert events[-1]["kind"] == "end"
    assert events[-1]["exit"] == 1
    rate = len(tested) / 2 / seconds
    assert rate <= 6, "bounded, a retest of a dead pair aside"
