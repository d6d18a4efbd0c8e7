"""Coverage-guided fuzzing of everything that reads untrusted input, with atheris (libFuzzer).

    pip install atheris
    nice python tools/fuzz.py [--seconds 600] [--jobs 1] [TARGET...]

Targets are in `fuzz_targets.TARGETS`. Findings are exceptions other than the declared refusals, and unfit characters in
text for a terminal. An input that takes more than 5 s of processor time or 256 MiB of memory is a finding, too.

Findings are made small, counted once per place in the code, and kept with their traceback in
``build/fuzz/TARGET/found``; the corpus stays in ``build/fuzz/TARGET/corpus`` for the next run. Nothing that is read can
start a process or open a connection. Exit code: 1 with findings.

An input that was found belongs in a test: ``tests/unit/test_fuzzed.py`` replays those in ``tests/samples/fuzzed``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from fuzz_targets import Target

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT), str(ROOT / "probes")]
BUILD = ROOT / "build" / "fuzz"
#: Processor time (s) and growth of memory (KiB) of one input that are findings.
CPU, MEMORY = 5.0, 256 * 1024
#: Runs that making an input small may take.
TRIES = 400
PACKAGES = ("fabtui", "fabtui_node")
#: What no reader may do.
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")


class TooSlow(BaseException):
    """An input took more than `CPU` seconds of processor time."""


def _too_slow(number: int, frame: FrameType | None) -> NoReturn:
    raise TooSlow(f"more than {CPU:g} s of processor time")


def problem(target: Target, data: bytes) -> tuple[str, str] | None:
    """Run an input; return kind and place of what goes wrong, with its traceback, or None. For the main thread."""
    before = _peak()
    handler = signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU)
    try:
        with redirect_stdout(io.StringIO()):
            target.run(data)
    except target.refusals:
        pass
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return _key(error), "".join(traceback.format_exception(error, limit=-30))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
    grown = _peak() - before
    return ("Memory", f"{grown >> 10} MiB more memory") if grown > MEMORY else None


def _peak() -> int:
    """Return the most memory (KiB) that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Case:
    """One target under test, and what was found so far."""

    def __init__(self, name: str) -> None:
        from fuzz_targets import TARGETS

        self.target = TARGETS[name]
        self.folder = BUILD / name
        self._seen: set[str] = set()
        for part in ("corpus", "found"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)

    def try_input(self, data: bytes) -> None:
        """Run an input, and keep it if it finds something new."""
        found = problem(self.target, data)
        if found is None or found[0] in self._seen:
            return
        key, text = found
        self._seen.add(key)
        small = data if key.startswith(("TooSlow", "Memory")) else self._smaller(data, key)
        name = re.sub(r"[^\w.-]+", "_", key)[:120]
        (self.folder / "found" / f"{name}.input").write_bytes(small)
        (self.folder / "found" / f"{name}.txt").write_text(f"{key}\n{small!r}\n\n{text}", errors="backslashreplace")
        print(f"\nFOUND {key}", file=sys.stderr, flush=True)

    def _smaller(self, data: bytes, key: str) -> bytes:
        """Leave out pieces of an input, shorter and shorter ones, as long as it finds the same."""
        size, tries = len(data) // 2, 0
        while size and tries < TRIES:
            at = 0
            while at < len(data) and tries < TRIES:
                without = data[:at] + data[at + size :]
                tries += 1
                found = problem(self.target, without)
                if found is not None and found[0] == key:
                    data = without
                else:
                    at += size
            size //= 2
        return data


def _key(error: BaseException) -> str:
    """Return the kind of an error and the last place of ours that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tools/fuzz" not in frame.filename]
    ours = [frame for frame in frames if any(f"/{name}/" in frame.filename for name in PACKAGES)] or frames[-1:]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} {place}"


def _refuse(event: str, _: object) -> None:
    if event in FORBIDDEN:
        raise PermissionError(f"{event} while reading")


def _import_all() -> None:
    import atheris

    # It lists each module on standard error.
    with atheris.instrument_imports(include=list(PACKAGES)), redirect_stderr(io.StringIO()):
        importlib.import_module("fuzz_targets")
        importlib.import_module("fabtui.screen.app")
        importlib.import_module("fabtui.screen.views.command_line")
        for package in ("fabtui.importers", "fabtui.diagnosis", "fabtui_node.parsers"):
            for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
                importlib.import_module(found.name)


def _child(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris
    import fuzz_targets

    case = Case(name)
    corpus = case.folder / "corpus"
    for seed in case.target.seeds():
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    # Once before the hook: what imports late, or starts the app.
    problem(case.target, seed)
    os.chdir(fuzz_targets.place())
    sys.addaudithook(_refuse)

    def mutated(data: bytes, longest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.6:
            return fuzz_targets.mutate_json_lines(data, chance)[:longest]
        return bytes(atheris.Mutate(data, longest))

    options = [f"-max_total_time={seconds}", "-timeout=600", "-rss_limit_mb=3000", "-print_final_stats=1"]
    options += ["-max_len=16384", f"-artifact_prefix={case.folder}/found/", "-reload=0", "-report_slow_units=600"]
    more: dict[str, Any] = {"custom_mutator": mutated} if case.target.json_lines else {}
    atheris.Setup([sys.argv[0], *options, str(corpus)], case.try_input, **more)
    atheris.Fuzz()


class Job:
    """A target while it is fuzzed, in one process after the other: an input that kills one does not end its time."""

    def __init__(self, name: str, seconds: int) -> None:
        self.name, self.seconds = name, seconds
        self.folder = BUILD / name
        shutil.rmtree(self.folder / "found", ignore_errors=True)
        (self.folder / "found").mkdir(parents=True)
        self.end = time.monotonic() + seconds
        self.logs: list[str] = []

    @property
    def left(self) -> int:
        return int(self.end - time.monotonic())

    def start(self) -> int:
        """Start a process; return its number."""
        pid = os.fork()
        if pid == 0:
            log = os.open(self.folder / "log.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            try:
                _child(self.name, max(self.left, 1))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(3)
        return pid

    def ended(self) -> bool:
        """Take the log of the process that ended; return whether the target is finished."""
        self.logs.append((self.folder / "log.txt").read_text(errors="replace"))
        return self.left < 3 or "INITED" not in self.logs[-1] or len(self.logs) > 20

    def result(self) -> tuple[str, int]:
        """Return a line of figures with the findings, and their number."""
        runs = sum(int(_last(r"#(\d+)\t", text) or 0) for text in self.logs)
        cover = _last(r"cov: (\d+ ft: \d+ corp: \d+)", self.logs[-1])
        cover = re.sub(r"(\d+) ft: (\d+) corp: (\d+)", r"\1 edges, \2 features, \3 inputs kept", cover)
        if not cover:
            cover = f"did not start:\n{self.logs[-1][-1500:]}"
        found = sorted(path for path in (self.folder / "found").glob("*") if path.suffix != ".txt")
        lines = [
            f"{self.name:11} {self.seconds - max(self.left, 0):5} s  {runs:9} runs  {cover}; {len(found)} findings"
        ]
        return "\n".join([*lines, *(f"{'':11}   {path.relative_to(ROOT)}" for path in found)]), len(found)


def _fuzz(names: list[str], seconds: int, jobs: int) -> int:
    """Fuzz targets, some at once; print a line for each, and return the number of findings."""
    waiting, running, findings = list(names), dict[int, Job](), 0
    while waiting or running:
        while waiting and len(running) < jobs:
            job = Job(waiting.pop(0), seconds)
            running[job.start()] = job
        pid, _ = os.wait()
        job = running.pop(pid)
        if job.ended():
            text, found = job.result()
            print(text, flush=True)
            findings += found
        else:
            running[job.start()] = job
    return findings


def _last(pattern: str, text: str) -> str:
    return str((re.findall(pattern, text) or [""])[-1])


def main() -> int:
    """Run the fuzzer; the exit code is 1 with findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=600, help="wall time of each target (600)")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once (1)")
    parser.add_argument("--input", type=Path, help="run the target on this file and print what it finds")
    args = parser.parse_args()
    if args.input:
        from fuzz_targets import TARGETS

        found = problem(TARGETS[args.targets[0]], args.input.read_bytes())
        print(found[1] if found else "nothing found")
        return int(found is not None)
    _import_all()
    from fuzz_targets import TARGETS

    wanted = args.targets or list(TARGETS)
    if unknown := set(wanted) - set(TARGETS):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    # libFuzzer ends its process without any clearing up, so that the folders of all of them are cleared here.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as tempfile.tempdir:
        return int(_fuzz(wanted, args.seconds, args.jobs) > 0)


if __name__ == "__main__":
    sys.exit(main())
