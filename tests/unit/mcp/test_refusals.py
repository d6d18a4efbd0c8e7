"""Refusals name what a tool takes: an assistant has no command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.main import main

from .assistant import assistant

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("preflight", {}, "no nodes given; use nodes n060,n061, jobid ID or"),
    ("preflight", {"nodes": "a,"}, "nodes: an empty name in 'a,'"),
    ("preflight", {"nodes": " "}, "the nodes of a Slurm job: jobid 4711"),
    ("preflight", {"nodes": "a", "exclude": "a"}, "exclude leaves no node"),
    ("preflight", {"nodes": "a.example", "exclude": "a"}, "exclude: a is not in the node set, but a.example is"),
    ("preflight", {"nodes": "a", "expect": ["gpus"]}, "expect: 'gpus' is not FACT=VALUE"),
    ("preflight", {"jobid": "x"}, "jobid: 'x' is not a job id"),
    ("run", {"nodes": "a,b", "bytes": "x"}, "bytes: 'x' is not a size"),
    ("run", {"nodes": "a,b", "pair": ["a:0>c:0"]}, "pair: 'c:0': there is no c among the nodes"),
    ("run", {"nodes": "a,b", "probes": ["host"], "confirm": True}, "confirm needs the probe p2p, which probes leaves"),
    ("run", {"nodes": "a,b", "layers": ["world"], "isolated": True}, "isolated applies to the layer p2p, which layers"),
    ("hang", {"jobid": "1 2"}, "jobid: '1 2' is not a job id"),
    ("job", {}, "no job given; use jobid 4711, or logs FOLDER for logs without Slurm"),
    ("job", {"jobid": "x"}, "jobid: 'x' is not a job id"),
    ("job", {"jobid": "1,2"}, "jobid: one job at a time"),
    ("job", {"logs": ["/nowhere"]}, "logs: no logs were found: /nowhere"),
    ("job", {"logs": ["/nowhere", "/nor/here"]}, "logs: no such file or folder: /nowhere"),
    ("job", {"jobid": "\u0661"}, "is not a job id"),
    ("explain", {"text": "x" * (1 << 20)}, "explain: Expected `str` of length <= 524288 - at `$.text`"),
    ("explain", {"files": ["/x"] * 65}, "explain: Expected `array` of length <= 64 - at `$.files`"),
    ("explain", {"files": []}, "explain: Expected `array` of length >= 1 - at `$.files`"),
    ("preflight", {"nodes": ["a"]}, "preflight: Expected `str`, got `array` - at `$.nodes`"),
]


@pytest.fixture(autouse=True)
def without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


async def test_a_refusal_names_the_argument_of_the_tool() -> None:
    async with assistant("--allow-tests") as one:
        for tool, arguments, why in REFUSED:
            assert why in await one.refusal(tool, **arguments), (tool, arguments)


def test_the_command_line_keeps_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (["run", "--nodes", "a,b", "--bytes", "x"], "--bytes: 'x' is not a size"),
        (["job", "x"], "JOBID: 'x' is not a job id"),
        (["job", "--logs", "/nowhere"], "--logs: no logs were found: /nowhere"),
        (["job"], "no job given; use fabtui job 4711, or --logs FOLDER for logs without Slurm"),
    ):
        assert main(words) == 2
        assert why in capsys.readouterr().err, words
