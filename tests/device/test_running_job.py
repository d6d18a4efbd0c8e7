"""A training on two GPUs is observed while ranks are late, stop or leave: the right rank is named, and soon."""

import contextlib
import importlib.util
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fabtui_node.probes import kernel_log
from tests.device.test_jobs import _port
from tests.serve.vt import Terminal

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch with NCCL and GPUs"),
    pytest.mark.timeout(900),
]
PROGRAM = Path(__file__).with_name("training_rank.py")
#: Maximum time (s) from the event to the named rank.
MOST = 15.0
#: How long (s) the job works evenly between two faults.
EVEN = 6.0
#: Faults that the job recovers from: words of the control file, and what the first line has besides the rank.
PASSING = {
    "stopped": ("", "hang(?:s|ing) .*rank 1 .*stopped"),
    "20 ms late": ("late 1 20", "slow.*rank 1 "),
    "50 ms late": ("late 1 50", "slow.*rank 1 "),
    "data loader": ("loader 1 20", "hang(?:s|ing) .*rank 1 "),
    "lock": ("lock 1 20", "hang(?:s|ing) .*rank 1 "),
    "left the loop": ("left 1 20", "hang(?:s|ing) .*rank 1 "),
    "checkpoint of one rank": ("checkpoint 1 12", "paused.*rank 1 .*writes files"),
    "checkpoint of all ranks": ("checkpoint -1 12", "paused.*all ranks write files"),
}
#: What the app shows about pauses, which are not faults.
APP = {name: "paused.*files" for name in PASSING if name.startswith("checkpoint")}
#: Faults that end the job.
ENDING = {
    "receive without send": ("receive 1 1", "hang(?:s|ing) .*rank 0 "),
    "different collectives": ("other 1 1", "different collectives"),
    "killed": ("", "hang(?:s|ing) .*rank 1 "),
}
#: What the screen shows of a job that is not well.
FAULTY = "hanging for|is slow:|paused for|different collectives"


class Training:
    """Two ranks on two GPUs, with RAS."""

    def __init__(self, gpus: list[str], folder: Path) -> None:
        self.folder, self.control = folder, folder / "control"
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())}
        shared |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus[:2]), "NCCL_RAS_ADDR": f"127.0.0.1:{_port()}"}
        self.do("even")
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.control), "nccl"],
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=(folder / f"rank{rank}").open("wb"),
                stderr=subprocess.STDOUT,
            )
            for rank in range(2)
        ]
        until = time.monotonic() + 120
        while len(self.times()) < 4:
            assert time.monotonic() < until, self.printed()
            assert self.ranks[0].poll() is None, self.printed()
            time.sleep(0.1)

    def do(self, words: str) -> None:
        fresh = self.control.with_suffix(".new")
        fresh.write_text(words)
        fresh.replace(self.control)

    def printed(self) -> str:
        return (self.folder / "rank0").read_text(errors="replace")

    def times(self) -> list[float]:
        """Times of iterations (ms), each the mean of fifty."""
        return [float(found) for found in re.findall(r"\(ms\): ([0-9.]+)", self.printed())]

    def signal(self, number: int) -> None:
        self.ranks[1].send_signal(number)

    def end(self) -> None:
        for rank in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.kill()
            rank.wait(20)


@pytest.fixture
def training(gpus: list[str], tmp_path: Path) -> Iterator[Training]:
    found = Training(gpus, tmp_path)
    yield found
    found.end()


def _environment(training: Training) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(training.folder / "state"), "PYTHONUNBUFFERED": "1"}


def _run(training: Training, *words: str) -> tuple[int, str, float]:
    """Run ``fabtui run`` beside the job; return its exit code, its first line, and the time it took (s).

    Recordings are kept in the folder ``FABTUI_RECORDINGS``.
    """
    argv = [sys.executable, "-m", "fabtui", *(words or ("run",)), "--transport", "local", "--ascii"]
    if kept := os.environ.get("FABTUI_RECORDINGS"):
        argv += ["--record", f"{kept}/{time.strftime('%H%M%S')}.jsonl.gz"]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=_environment(training))
    took = time.monotonic() - began
    first = (done.stdout.splitlines() or [done.stderr[-500:]])[0]
    print(f"    {' '.join(words) or 'run'}: exit code {done.returncode}, {took:.1f} s: {first}")
    return done.returncode, first, took


class App:
    def __init__(self, training: Training) -> None:
        self.screen = Terminal(120, 40)
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            environment = {**_environment(training), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
            os.execve(sys.executable, [sys.executable, "-m", "fabtui", "--transport", "local"], environment)

    def wait_for(self, pattern: str, seconds: float) -> float | None:
        """Return after how many seconds the verdict has a text, None if it does not."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if select.select([self.terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.screen.feed(os.read(self.terminal, 1 << 16))
            if re.search(pattern, self.verdict):
                return time.monotonic() - began
        return None

    @property
    def verdict(self) -> str:
        """The line about the job; the log below has earlier ones."""
        lines = (line.lstrip(" x!") for line in self.screen.text.splitlines())
        return next((line for line in lines if line.startswith("the job ")), "")

    def moves(self) -> None:
        self.wait_for("never shown", EVEN)
        assert self.wait_for(rf"\A(?!.*(?:{FAULTY})).* is making progress", 60) is not None, self.screen.text

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def _good() -> int:
    """Return the exit code of ``fabtui run`` beside a job that is well: pairs that the job uses are not tested.

    An Xid in the kernel's log is a bad finding about the node, at any age.
    """
    return 1 if "NVRM: Xid" in kernel_log.read_log(10.0).text else 3


def test_faults_are_reported_and_pass(training: Training) -> None:
    """The app is open all the time, and ``fabtui run`` is started with each fault."""
    app = App(training)
    failed = []
    good = _good()
    for name, (words, expected) in PASSING.items():
        app.moves()
        training.signal(signal.SIGSTOP) if not words else training.do(words)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(_run, training)
            shown = app.wait_for(APP.get(name, expected), MOST + 5)
            code, first, took = running.result()
        right = code == (good if name in APP else 1) and re.search(expected, first) is not None and took <= MOST
        print(f"  {name}: run {'right' if right else 'WRONG'} after {took:.1f} s, app after {shown or -1:.1f} s")
        if not right or shown is None or shown > MOST:
            failed.append(name)
        training.signal(signal.SIGCONT)
        training.do("even")
        count = len(training.times())
        until = time.monotonic() + 40
        while len(training.times()) < count + 2 and time.monotonic() < until:
            app.wait_for("never shown", 0.2)
    app.end()
    assert not failed


@pytest.mark.parametrize("fault", list(ENDING))
def test_faults_that_stay(training: Training, fault: str) -> None:
    words, expected = ENDING[fault]
    app = App(training)
    app.moves()
    training.do(words) if words else training.signal(signal.SIGKILL)
    began = time.monotonic()
    shown = app.wait_for(expected, MOST)
    print(f"  app, {fault}: {'right' if shown is not None else 'WRONG'} after {shown or -1:.1f} s")
    app.end()
    code, first, took = _run(training)
    print(f"  run, {fault}: {time.monotonic() - began:.1f} s after the event")
    assert shown is not None
    assert code == 1
    assert re.search(expected, first)
    assert took <= MOST


def _memory_group(folder: str) -> Path:
    """Return a group of processes with little memory, in which the kernel kills; skip where none can be made."""
    path = Path("/sys/fs/cgroup") / folder
    try:
        path.mkdir()
        (path / "memory.max").write_text("64M")
        (path / "memory.swap.max").write_text("0")
    except OSError as error:
        pytest.skip(f"needs a machine with GPUs whose memory groups may be made: {error}")
    return path


def test_a_rank_that_is_killed_for_memory(training: Training) -> None:
    group = _memory_group("fabtui-test")
    time.sleep(EVEN)
    try:
        (group / "cgroup.procs").write_text(str(training.ranks[1].pid))
        # What is allocated from now on counts.
        training.do("memory 1 256")
        training.ranks[1].wait(30)
        code, first, took = _run(training)
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()
    assert code == 1
    assert re.search("rank 1 .*(memory|ended)", first), first
    assert took <= MOST


def test_a_healthy_job_is_left_in_peace(training: Training) -> None:
    """Nothing is reported in ``FABTUI_HEALTHY_SECONDS`` (60), and iterations take as long as alone."""
    times: dict[str, list[float]] = {"alone": [], "observed": []}
    observed = float(os.environ.get("FABTUI_HEALTHY_SECONDS", "60")) / 3
    for _ in range(3):
        for kind, kept in times.items():
            before = len(training.times())
            if kind == "alone":
                time.sleep(min(20.0, observed))
            else:
                app = App(training)
                assert app.wait_for(FAULTY, observed) is None, app.screen.text
                app.end()
            kept.append(statistics.median(training.times()[before + 1 :]))
    print(f"  medians of iterations (ms): {times}")
    alone, beside = (statistics.median(found) for found in times.values())
    print(f"  {alone:.2f} ms alone, {beside:.2f} ms observed: {beside / alone:.4f}")
    assert beside <= 1.01 * alone
    code, first, _ = _run(training)
    assert code == _good(), first
    assert " is making progress" in first


def test_an_xid_while_the_job_moves(training: Training) -> None:
    """A line in the kernel's log, as the driver writes it. It stays there: this test is the last one."""
    bus = subprocess.run(
        ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader", "-i", "1"], capture_output=True, text=True
    ).stdout.strip()
    app = App(training)
    app.moves()
    assert "Xid" not in app.verdict
    try:
        Path("/dev/kmsg").write_text(f"NVRM: Xid (PCI:{bus[4:].lower()}): 79, pid=1, GPU has fallen off the bus.\n")
    except OSError as error:
        pytest.skip(f"needs a machine with GPUs whose kernel log may be written: {error}")
    shown = app.wait_for("Xid 79", MOST)
    app.end()
    code, first, took = _run(training)
    print(f"  Xid: app after {shown or -1:.1f} s, run {took:.1f} s")
    assert shown is not None
    assert code == 1
    assert re.search(r"is making progress.*rank 1 on \S+ is on a GPU that reported Xid 79", first), first
    hang_code, hang, _ = _run(training, "hang")
    assert hang_code == 0
    assert "Xid 79" in hang, hang
