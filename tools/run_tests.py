"""Run all tests in rows side by side; the few that fail there are run once more, alone.

Real SSH servers and ranks, networks and Slurm have deadlines: tests of these run one at a time, each kind in its own
row beside all others, as they mostly wait. The others give way to them (``nice``). On a busy machine one of thousands
may still miss a deadline, which is not a fault of the product. One that fails alone too is one, and so are many.

Usage: python tools/run_tests.py JOBS, or python tools/run_tests.py compile, which runs none
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

BUILD = Path("build")
TESTS = Path("tests")
#: Number of changed files from which on they are compiled before the tests begin.
MANY = 20


def _without(*folders: str) -> list[str]:
    """Return arguments of pytest that leave out folders without a test of the row: to collect those takes seconds."""
    return [word for folder in folders for word in ("--ignore", f"tests/{folder}")]


#: Folders of the rows that are marked.
WIRE, LAB = _without("unit", "screen", "serve", "device", "lab"), _without("unit", "screen", "serve", "device", "wire")
#: Arguments of pytest for the rows that print at the end.
QUIET = ["--durations", "20"]
#: Rows of tests and the arguments of pytest for them; the last row prints as it goes.
ROWS = {
    "wire": ["-m", "wire", *QUIET, *WIRE],
    "lab": ["-m", "lab and not (slurm or planted or trained)", *QUIET, *LAB],
    "slurm": ["-m", "slurm", *QUIET, *LAB],
    "planted": ["-m", "planted", *QUIET, *LAB],
    "trained": ["-m", "trained", *QUIET, *LAB],
    "others": ["-m", "not (wire or lab or slurm or planted or trained)", *_without("wire", "lab")],
}
#: Rows that run at once, each with those that follow it; all of them beside the last row.
LANES = (("wire",), ("lab",), ("planted",), ("slurm", "trained"))
#: Maximum numbers of failed tests that are run again, and of files that they are in: more have a common cause. Those of
#: one file may have one, as a session is shared by its tests.
MOST_REPEATED, MOST_FILES = 40, 3
#: Niceness of the tests without deadlines: on a core that another row keeps busy they get a quarter of the time.
GIVE_WAY = "5"
#: What pytest returns where all tests passed, and where some failed.
PASSED, FAILED = 0, 1


def _cache(row: str) -> Path:
    return BUILD / "test-cache" / row


def _command(row: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-o", f"cache_dir={_cache(row)}", *ROWS[row], *more]


def _repeated(names: list[str]) -> bool:
    """Return whether failed tests are few enough to be run again."""
    return 0 < len(names) <= MOST_REPEATED and len({name.split("::")[0] for name in names}) <= MOST_FILES


def _failed(row: str) -> list[str]:
    file = _cache(row) / "v" / "cache" / "lastfailed"
    return list(json.loads(file.read_text())) if file.exists() else []


def compile_tests() -> None:
    """Compile the tests, each file once: rows and their workers would all do it, at the same time."""
    tail = f".{sys.implementation.cache_tag}-pytest-{version('pytest')}.pyc"
    changed = []
    for file in TESTS.rglob("test_*.py"):
        compiled = file.parent / "__pycache__" / (file.stem + tail)
        if not compiled.exists() or compiled.stat().st_mtime < file.stat().st_mtime:
            changed.append(str(file))
    if len(changed) < MANY:
        return
    # What is wrong with a file, its row reports.
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    jobs = min(os.cpu_count() or 1, len(changed) // MANY)
    running = [subprocess.Popen([*collect, *changed[at::jobs]], stdout=subprocess.DEVNULL) for at in range(jobs)]
    for one in running:
        one.wait()


def _run_lane(rows: Sequence[str]) -> dict[str, int]:
    """Run rows one after the other, each with a log of its own, and return their exit codes."""
    codes = {}
    for row in rows:
        with (BUILD / f"{row}.log").open("wb") as log:
            codes[row] = subprocess.call(_command(row, "--cache-clear"), stdout=log, stderr=subprocess.STDOUT)
    return codes


def _run_rows(jobs: str) -> dict[str, int]:
    """Run all rows side by side, and return the exit code of each."""
    forks = () if jobs == "0" else ("--forks", jobs)
    with ThreadPoolExecutor(len(LANES)) as pool:
        lanes = [pool.submit(_run_lane, rows) for rows in LANES]
        codes = {"others": subprocess.call(["nice", "-n", GIVE_WAY, *_command("others", "--cache-clear", *forks)])}
        for lane in lanes:
            for row, code in lane.result().items():
                codes[row] = code
                print((BUILD / f"{row}.log").read_text(errors="replace"), flush=True)
    return codes


def main(jobs: str) -> int:
    """Run all tests, and return the exit code."""
    BUILD.mkdir(exist_ok=True)
    compile_tests()
    codes = _run_rows(jobs)
    again = {row: _failed(row) for row, code in codes.items() if code == FAILED}
    names = [name for row in again.values() for name in row]
    if set(codes.values()) <= {PASSED, FAILED} and _repeated(names):
        print(f"{len(names)} failed beside all others, run once more, alone:", *names, sep="\n  ", flush=True)
        codes |= {row: subprocess.call(_command(row, "--last-failed")) for row in again}
    return next((code for code in codes.values() if code != PASSED), PASSED)


if __name__ == "__main__":
    if sys.argv[1] == "compile":
        compile_tests()
    else:
        sys.exit(main(sys.argv[1]))
