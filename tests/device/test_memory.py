"""Memory of GPUs and of the rank host: bounded and flat in watch mode, free after a kill; others keep theirs.

FABTUI_WATCH_SECONDS is how long it watches (60).
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fabtui.session.measure.communicator_cache import bound

MIB = 1 << 20
BYTES = 256 * MIB
SECONDS = float(os.environ.get("FABTUI_WATCH_SECONDS", "60"))
#: Seconds within which everything has to be gone after a kill -9.
GONE = 5.0
#: What NCCL and the driver load into a context besides.
CODE = 256 * MIB
#: What others may take or give back meanwhile.
NOISE = 64 * MIB


#: Takes contexts on all GPUs and some memory; checks it at the end.
NEIGHBOUR = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)
call("cuInit", 0)
size, kept = int(sys.argv[1]), []
for ordinal in range(int(sys.argv[2])):
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    if size:
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0xA5), ctypes.c_size_t(size))
        kept.append((context, pointer))
print("ready", flush=True)
sys.stdin.read(1)
for context, pointer in kept:
    call("cuCtxSetCurrent", context)
    data = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(size))
    assert data.raw == b"\\xa5" * size
print("intact", flush=True)
"""


class Sample(NamedTuple):
    at: float
    used: list[int]  #: Memory of each GPU in bytes.
    rss: int  #: Resident memory of the process that has the GPUs.
    descriptors: int
    threads: int


def memory(gpus: list[str]) -> list[int]:
    argv = ["nvidia-smi", "-i", ",".join(gpus), "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    return [int(line) * MIB for line in done.stdout.split("\n") if line.strip()]


def family(pid: int) -> set[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    left = [pid]
    while left:
        children = parents.get(left.pop(), [])
        found.update(children)
        left += children
    return found


def _vital(pid: int) -> tuple[int, int, int]:
    """Return RSS, descriptors and threads of a process; zeros if it has ended."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        rss = int(status.get("VmRSS", "0 kB").split()[0]) * 1024
        return rss, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])
    except OSError:
        return 0, 0, 0


def sample(pid: int, gpus: list[str], began: float) -> Sample:
    """Look once; the rank host is the largest descendant."""
    vitals = max((_vital(one) for one in family(pid)), default=(0, 0, 0))
    return Sample(time.monotonic() - began, memory(gpus), *vitals)


def _environment(gpus: list[str]) -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NO_COLOR": "1"}


@contextmanager
def neighbour(gpus: list[str], size: int) -> Iterator[subprocess.Popen[str]]:
    """A process of somebody else with a context on each GPU and ``size`` bytes there."""
    argv = [sys.executable, "-c", NEIGHBOUR, str(size), str(len(gpus))]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(gpus)
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def session(gpus: list[str], folder: Path, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "fabtui", "run", "--transport", "local", "--no-record", "--force"]
    argv += ["--probes", "p2p", "--bytes", str(BYTES), *args]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=_environment(gpus))
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(5)


def until(what: str, holds: Callable[[], bool], seconds: float) -> float:
    """Wait until something holds, and return how long that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


def _table(samples: list[Sample]) -> None:
    for one in samples[:: max(1, len(samples) // 30)]:
        used = " ".join(f"{value / MIB:7.0f}" for value in one.used)
        print(
            f"  {one.at:6.1f} s  GPUs {used} MiB  rank host {one.rss / MIB:6.0f} MiB, {one.descriptors} fds, ", end=""
        )
        print(f"{one.threads} threads")


def test_watching_stays_within_the_bound_and_is_flat(gpus: list[str], tmp_path: Path) -> None:
    gpus = gpus[:2]
    at_first = memory(gpus)
    with neighbour(gpus, 0):
        context = max(now - before for now, before in zip(memory(gpus), at_first, strict=True))
    print(f"\na context takes {context / MIB:.0f} MiB; at most {bound(BYTES) / MIB:.0f} MiB besides")
    until("the memory of the contexts is free", lambda: max(memory(gpus)) <= max(at_first) + NOISE, 20.0)
    with neighbour(gpus, 64 * MIB) as other:
        before = memory(gpus)
        with session(gpus, tmp_path, "--watch", f"{SECONDS:g}", "--watch-rate", "20") as process:
            began, samples = time.monotonic(), []
            while process.poll() is None:
                assert time.monotonic() - began < SECONDS + 120
                samples.append(sample(process.pid, gpus, began))
                time.sleep(max(0.0, began + len(samples) - time.monotonic()))
        print((tmp_path / "out").read_text()[-3000:])
        _table(samples)
        out, _ = other.communicate("x", timeout=30)
        assert other.returncode == 0, "the process of somebody else is gone"
        assert out == "intact\n"
    assert process.returncode == 0
    most = [max(one.used[at] for one in samples) - before[at] for at in range(len(gpus))]
    print(f"most: {[round(value / MIB) for value in most]} MiB above what was used before")
    assert all(value > context for value in most), "the tests took no memory"
    assert all(value <= bound(BYTES) + context + CODE for value in most)
    there = [one for one in samples if one.rss]
    early, late = there[len(there) // 5 : 2 * len(there) // 5], there[-len(there) // 5 : -1]
    assert early
    assert late
    for name in ("rss", "descriptors", "threads"):
        first, last = (statistics.median(getattr(one, name) for one in part) for part in (early, late))
        print(f"{name}: {first:.0f}, later {last:.0f}")
        assert last <= 1.1 * first + 2, name
    assert max(one.descriptors for one in there) < 200
    assert max(one.rss for one in there) < 1536 * MIB


def test_after_a_kill_in_mid_sweep_nothing_is_left(gpus: list[str], tmp_path: Path) -> None:
    gpus = gpus[:2]
    with neighbour(gpus, 64 * MIB) as other:
        before = memory(gpus)
        with session(gpus, tmp_path, "--watch", "60", "--watch-rate", "20") as process:
            until("tests", lambda: min(memory(gpus)) > max(before) + BYTES, 90.0)
            mine = family(process.pid)
            assert mine
            os.kill(process.pid, signal.SIGKILL)
            process.wait(5)
            took = until("all processes are gone", lambda: not any(_vital(pid)[0] for pid in mine), GONE)
            took += until("the memory is free", lambda: max(memory(gpus)) <= max(before) + NOISE, GONE - took)
            print(f"\n{len(mine)} processes and their memory were gone after {took:.1f} s")
        out, _ = other.communicate("x", timeout=30)
        assert (other.returncode, out) == (0, "intact\n")
