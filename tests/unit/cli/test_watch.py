"""``fabtui watch`` from its arguments to its file of metrics, over nodes that are played."""

import asyncio
import fcntl
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser

from fabtui.cli import main as entry
from fabtui.cli.commands import watch as command
from fabtui.cli.commands.run import Ended, caught_signals, sleep_until
from fabtui.errors import InputError
from fabtui.export.openmetrics import write_round
from fabtui.session.feeds import live
from fabtui.session.feeds.live import Opener
from fabtui.session.options import SessionOptions
from fabtui.transport.link import Link, NodeUnreachable
from tests.unit.session.fakenodes import FakeNodes, Script

GPUS = {"a": 2, "b": 2}


class Silent:
    """Nodes that never answer."""

    async def open(self, host: str) -> Link:
        await asyncio.sleep(3600)
        raise AssertionError


def refused() -> FakeNodes:
    refusal = NodeUnreachable("refused", "connection refused")
    return FakeNodes(Script(GPUS, unreachable=dict.fromkeys(GPUS, refusal)))


def watch(
    monkeypatch: pytest.MonkeyPatch, path: Path, rounds: list[Opener], *words: str, after: Callable[[int], None] = print
) -> int:
    """Run a round over each of some sets of nodes; then the signal of an administrator comes."""
    real, left, slept = live.LiveFeed, list(rounds), []
    seen: list[SessionOptions] = []

    def make(options: SessionOptions) -> live.LiveFeed:
        seen.append(options)
        return real(options, left.pop(0))

    async def sleep(_: Ended, seconds: float) -> signal.Signals | None:
        slept.append(seconds)
        after(len(slept))
        return None if left else signal.SIGTERM

    monkeypatch.setattr(command, "LiveFeed", make)
    monkeypatch.setattr(command, "sleep_until", sleep)
    code = entry.main(["watch", "--nodes", "a,b", "--timeout", "0.5", "--prom", str(path), *words])
    assert not left
    assert all(options.mode == "quick" and options.record is None for options in seen)
    assert all(0 < seconds <= 900 for seconds in slept)
    return code


def metrics(path: Path) -> dict[str, float]:
    """Return the value of each series, by its name and labels."""
    found = {}
    for family in parser.text_string_to_metric_families(path.read_text()):
        for one in family.samples:
            inner = ",".join(f"{name}={text}" for name, text in one.labels.items())
            found[f"{one.name}{{{inner}}}"] = one.value
    return found


def state(values: dict[str, float]) -> str:
    names = [name for name, value in values.items() if name.startswith("fabtui_watch_round_state") and value == 1]
    (name,) = names
    return name.partition("state=")[2].rstrip("}")


def test_one_round_writes_metrics_and_has_the_exit_code_of_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "fabtui.prom", tmp_path / "fabtui.json"
    words = ("--once", "--json", str(other), "--prom-label", "fabric=x")
    assert watch(monkeypatch, path, [FakeNodes(Script(GPUS, silent={(0, 2)}))], *words) == 1
    values = metrics(path)
    assert state(values) == "complete,fabric=x"
    assert values["fabtui_pairs{layer=p2p,verdict=timeout,fabric=x}"] == 1
    assert values["fabtui_run_exit_code{fabric=x}"] == 1
    assert path.read_text().endswith("\n# EOF\n")
    assert path.read_text().count("# EOF") == 1
    assert other.exists()
    assert "round 1: 1 of 8 GPU pairs is bad: a:0 > b:0 timed out, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bad", "expected", "printed"),
    [(Silent(), "over-budget", "longer than --budget 1 s"), (refused(), "nothing-tested", "a: connection refused")],
)
def test_a_failed_round_keeps_the_last_good_values(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bad: Opener,
    expected: str,
    printed: str,
) -> None:
    path = tmp_path / "fabtui.prom"
    of_round: list[dict[str, float]] = []
    good = FakeNodes(Script(GPUS))
    assert watch(monkeypatch, path, [good], "--once", "--budget", "60") == 0
    of_round.append(metrics(path))
    words = ("--budget", "1")
    assert watch(monkeypatch, path, [bad], *words, after=lambda _: of_round.append(metrics(path))) == 0
    first, second = of_round
    assert (state(first), state(second)) == ("complete", expected)
    ours = {name for name in first if not name.startswith("fabtui_watch_")}
    assert {name: second[name] for name in ours} == {name: first[name] for name in ours}
    assert second["fabtui_watch_round_timestamp_seconds{}"] > first["fabtui_watch_round_timestamp_seconds{}"]
    assert second["fabtui_run_timestamp_seconds{}"] < second["fabtui_watch_round_timestamp_seconds{}"]
    out = capsys.readouterr().out
    assert printed in out
    assert "the values of the last good round stay" in out
    assert out.endswith("ended by SIGTERM\n")


def test_the_next_good_round_replaces_the_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "fabtui.prom"
    of_round: list[dict[str, float]] = []
    rounds: list[Opener] = [refused(), FakeNodes(Script(GPUS)), FakeNodes(Script({"a": 2, "b": 3}))]
    watch(monkeypatch, path, rounds, after=lambda _: of_round.append(metrics(path)))
    assert [state(values) for values in of_round] == ["nothing-tested", "complete", "complete"]
    # The first round had nothing to keep.
    assert not any("fabtui_pairs" in name for name in of_round[0])
    ends = [sum("endpoint_share_bad" in name for name in values) for values in of_round]
    assert ends == [0, 4, 5]


@pytest.mark.parametrize("text", ["", "garbage", "# HELP fabtui_info cut off\nfabtui_info 1\n", "\xff"])
def test_a_file_that_is_not_whole_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    path = tmp_path / "fabtui.prom"
    path.write_text(text, encoding="latin-1")
    assert watch(monkeypatch, path, [refused()], "--once") == 3
    assert all(name.startswith("fabtui_watch_") for name in metrics(path))


def test_two_processes_do_not_watch_for_one_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fabtui.prom"
    descriptor = os.open(tmp_path / ".fabtui.prom.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert watch(monkeypatch, path, [], "--once") == 2
    finally:
        os.close(descriptor)
    assert "another fabtui watch writes" in capsys.readouterr().err
    assert not path.exists()


def test_a_lock_that_leads_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".fabtui.prom.lock").symlink_to(tmp_path / "other")
    assert watch(monkeypatch, tmp_path / "fabtui.prom", [], "--once") == 2
    assert "cannot lock" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "watch needs --prom FILE.prom"),
        (("--prom", "x.prom", "--every", "60", "--budget", "55"), "--budget 55 does not fit in --every 60"),
        (("--prom", "x.prom", "--every", "1m"), "--every: '1m' is not a time"),
        (("--prom", "x.prom", "--record", "x"), "has no option --record"),
    ],
)
def test_what_cannot_be_watched_ends_in_one_line(
    words: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = entry.main(["watch", "--nodes", "a", *words])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_first_round_ends_it_and_of_a_later_one_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        async def open(self, host: str) -> Link:
            raise InputError("the lab cannot be made")

    path = tmp_path / "fabtui.prom"
    assert watch(monkeypatch, path, [Broken()]) == 2
    of_round: list[str] = []
    rounds: list[Opener] = [FakeNodes(Script(GPUS)), Broken(), FakeNodes(Script(GPUS))]
    watch(monkeypatch, path, rounds, after=lambda _: of_round.append(state(metrics(path))))
    assert of_round == ["complete", "error", "complete"]
    assert "error: the lab cannot be made" in capsys.readouterr().out


async def test_a_signal_ends_the_time_between_rounds_at_once() -> None:
    with caught_signals() as ended:
        assert await sleep_until(ended, 0.001) is None
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        assert await sleep_until(ended, 60.0) is signal.SIGTERM


def test_a_signal_while_files_are_written_ends_it_after_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def write(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write_round(*args)

    path = tmp_path / "fabtui.prom"
    nodes = FakeNodes(Script(GPUS))
    feed = live.LiveFeed
    monkeypatch.setattr(command, "LiveFeed", lambda options: feed(options, nodes))
    monkeypatch.setattr(command, "write_round", write)
    assert entry.main(["watch", "--nodes", "a,b", "--timeout", "0.5", "--prom", str(path)]) == 0
    assert state(metrics(path)) == "complete"


def test_a_passive_round_tests_nothing_and_prints_each_finding_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A rank that is stopped, beside one that waits for it.
    ranks = [
        {"rank": at, "pid": 1040 + at, "world": 2, "name": "python", "gpus": [at], "state": "RT"[at]} for at in (0, 1)
    ]
    gpus = [{"index": at, "util": use, "power": 125.0, "limit": 700.0} for at, use in enumerate((100, 0))]
    results = {"a": {"activity": {"clock": 5.0, "ranks": ranks, "gpus": gpus}}}
    left, real = [FakeNodes(Script(GPUS, probe_results=results)) for _ in range(2)], live.LiveFeed
    seen: list[SessionOptions] = []

    def make(options: SessionOptions) -> live.LiveFeed:
        seen.append(options)
        return real(options, left.pop(0))

    async def sleep(_: Ended, __: float) -> signal.Signals | None:
        return None if left else signal.SIGTERM

    monkeypatch.setattr(command, "LiveFeed", make)
    monkeypatch.setattr(command, "sleep_until", sleep)
    assert entry.main(["watch", "--nodes", "a,b", "--passive", "--budget", "1"]) == 0
    assert all(options.read_only for options in seen)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("round ")[2][0] for line in lines if "  round " in line] == ["1", "2"]
    findings = [line for line in lines if "  bad: " in line]
    assert len(findings) == 1
    assert re.search(r"bad: the job on a \(2 ranks\) (?:hangs|has been hanging)", findings[0])
    assert findings[0].endswith("next: ssh a kill -CONT 1041")
