"""Canaries in environment, arguments, settings file, ssh configuration and answers, which reach no output."""

import asyncio
import contextlib
import gzip
import os
import pty
import sys
from pathlib import Path

import pytest

from tests.forked import fabtui
from tests.wire.asking import Asking, asking_servers
from tests.wire.stranger import content, descendants

pytestmark = pytest.mark.timeout(180)

CANARY = "canary-4711-"
NODES = ("n1", "n2")
#: Runs a program with its standard input as the controlling terminal.
ON_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


async def typed_into(argv: list[str], environment: dict[str, str], answers: dict[str, str], seen: set[bytes]) -> str:
    """Return what a program prints on a terminal on which each answer is typed once, after its question.

    ``seen`` gets the command lines of the node sides below this process.
    """
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ON_TERMINAL, *argv), stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    printed = b""
    try:
        async with asyncio.timeout(150):
            while process.returncode is None:
                await asyncio.sleep(0.05)
                with contextlib.suppress(BlockingIOError, OSError):
                    printed += os.read(ours, 1 << 20)
                for question in [one for one in answers if one.encode() in printed]:
                    os.write(ours, answers.pop(question).encode() + b"\n")
                seen |= {content(f"/proc/{pid}/cmdline") for pid in descendants(os.getpid())}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        with contextlib.suppress(OSError):
            printed += os.read(ours, 1 << 20)
        os.close(ours)
    return printed.decode(errors="replace")


def files_with_a_canary(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            found += [str(path.relative_to(folder))] * (CANARY.encode() in data)
    return found


async def test_no_output_contains_a_secret(tmp_path: Path) -> None:
    out, given = tmp_path / "out", tmp_path / "given"
    for folder in (out / "tmp", out / "state", given / "fabtui", tmp_path / "node"):
        folder.mkdir(parents=True)
    (given / "fabtui" / "config.toml").write_text(f'[session.env]\nNCCL_CONFIGURED = "{CANARY}config"\n')
    environment = {
        **os.environ,
        "AWS_SECRET_ACCESS_KEY": f"{CANARY}environment",
        "NCCL_SECRET": f"{CANARY}environment",
        "XDG_CONFIG_HOME": str(given),
        "XDG_STATE_HOME": str(out / "state"),
        "XDG_CACHE_HOME": str(out / "state"),
        "TMPDIR": str(out / "tmp"),
    }
    processes: set[bytes] = set()
    answer = f"{CANARY}answer"
    asking = Asking(lambda text: text == answer, home=tmp_path / "node")
    async with asking_servers(given, NODES, asking):
        asking.config.write_text(asking.config.read_text() + f"  SetEnv TOKEN={CANARY}ssh-config\n")
        argv = [sys.executable, "-m", "fabtui", "run", "--nodes", ",".join(NODES), "--probes", "udp"]
        argv += ["--ssh-config", str(asking.config)]
        argv += ["--env", f"NCCL_TYPED={CANARY}argument", "--remote-python", sys.executable]
        argv += ["--csv", f"{out}/a.csv", "--json", f"{out}/a.json", "--record", f"{out}/a.jsonl.gz", "--text"]
        printed = await typed_into(argv, environment, {"Password:": answer}, processes)
    # It has served both nodes, and was asked for once.
    assert sorted(asking.answers) == [(node, answer) for node in NODES], printed
    assert printed.count("has a question for alice") == 1
    assert "udp: no loss on 2 of 2" in printed, printed
    assert CANARY not in printed
    assert processes
    assert not [line for line in processes if CANARY.encode() in line]
    shown = ""
    for words in (["info"], ["replay", "--text", f"{out}/a.jsonl.gz"], ["config"], ["run", "--nodes", "-x"]):
        done = fabtui(*words, env=environment)
        shown += done.stdout + done.stderr
    assert "udp: no loss on 2 of 2" in shown
    assert CANARY not in shown, [line for line in shown.splitlines() if CANARY in line]
    assert {path.name for path in out.iterdir()} >= {"a.csv", "a.json", "a.jsonl.gz"}
    assert files_with_a_canary(out) == []
    assert list((tmp_path / "node").iterdir()) == [], "nothing is written on nodes"
