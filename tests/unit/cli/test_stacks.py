"""`fabtui stacks` over a local link."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.cli.commands import stacks
from fabtui.session.running_job.inquiry import Reply

Out = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_a_rank_on_this_machine(capsys: Out) -> None:
    argv = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"]
    with subprocess.Popen(argv, env={**os.environ, "RANK": "31"}, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        code = entry.main(["stacks", "--json"])
        shown = entry.main(["stacks"])
        child.kill()
    assert code == shown == 0
    first, _, text = capsys.readouterr().out.partition("\n")
    ranks = [one for group in json.loads(first)["groups"] for one in group["ranks"]]
    assert 31 in [one["rank"] for one in ranks if one["pid"] == child.pid]
    assert "31" in text


def test_no_rank(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> list[Reply]:
        return [Reply("n060", {"ranks": []}, []), Reply("n061", None, [], "the login fails")]

    monkeypatch.setattr(stacks, "replies", nothing)
    assert entry.main(["stacks"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "no process with a rank is visible on n[060-061]",
        "n061: the login fails",
    ]


def test_hostile_stacks_are_bounded_text(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = "\x1b]0;x\x07\u202e[red]\n" + "f" * 100_000
    ranks = [
        {"rank": 1, "pid": 2, "frames": [{"name": bad, "site": [bad]}, 7, {"name": None}], "problem": bad},
        {"rank": 10**30, "pid": -1, "frames": bad, "state": [bad], "wait": {}, "cpu": "nan", "problem": [bad]},
        {"rank": True, "pid": 3, "state": "D", "wait": bad, "cpu": float("inf")},
        *({"rank": "1", "pid": 1}, None, bad, {"rank": 1}),
    ]

    async def hostile(*_: object) -> list[Reply]:
        odd: Any = {"ranks": {"rank": 1}}
        return [Reply("n060", {"ranks": ranks}, []), Reply("n061", odd, []), Reply("n062", None, [], bad)]

    monkeypatch.setattr(stacks, "replies", hostile)
    for words in ([], ["--json"]):
        assert entry.main(["stacks", *words]) == 0
        shown = capsys.readouterr().out
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", shown)
        assert shown.isascii() or words == []
    assert entry.main(["stacks"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 1100


def test_one_task_of_a_step_asks(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert entry.main(["stacks"]) == 0
    assert capsys.readouterr() == ("", "")
