"""All tests run in rows; the few that fail beside the others pass if they pass alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "run_tests.py"
PASSES = "    pass\n"
FAILS = "    assert False\n"
#: Fails the first time that it runs.
FLAKES = """\
    once = pathlib.Path(__file__).with_suffix('.{row}')
    if not once.exists():
        once.touch()
        assert False
"""

pytestmark = pytest.mark.slow
sys.path.append(str(SCRIPT.parent))

import run_tests  # noqa: E402


def write(folder: Path, bodies: dict[str, str]) -> None:
    """Write one test per row (``wire``, ``lab``, ``slurm``, ``planted``, ``others``)."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  wire: w\n  lab: l\n  slurm: s\n  planted: p\n")
    text = "import pathlib, pytest\n"
    for row, body in bodies.items():
        mark = "" if row == "others" else f"@pytest.mark.{row}\n"
        text += f"{mark}def test_{row}():\n{body.format(row=row)}"
    (folder / "test_rows.py").write_text(text)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FABTUI"))}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def started(folder: Path, /, **bodies: str) -> subprocess.CompletedProcess[str]:
    """Run the rows as ``make test`` does."""
    write(folder, bodies)
    argv = [sys.executable, str(SCRIPT), "0"]
    return subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=100)


def test_one_that_passes_alone_passes(tmp_path: Path) -> None:
    done = started(tmp_path, wire=PASSES, lab=FLAKES, slurm=PASSES, planted=PASSES, trained=PASSES, others=FLAKES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 failed beside all others, run once more, alone:\n  test_rows.py::test_others" in done.stdout


def test_one_that_fails_alone_too_fails(tmp_path: Path) -> None:
    done = started(tmp_path, wire=PASSES, lab=PASSES, slurm=FAILS, planted=PASSES, trained=PASSES, others=FAILS)
    assert done.returncode == 1, done.stdout + done.stderr
    for row in ("slurm", "others"):
        assert done.stdout.count(f"FAILED test_rows.py::test_{row}") == 2


@pytest.mark.parametrize(
    ("codes", "failed", "code"),
    [
        ({"wire": 0, "others": 0}, [], 0),
        ({"wire": 0, "lab": 5, "others": 0}, [], 5),
        ({"wire": 0, "others": 1}, [f"test_{number}.py::test_it" for number in range(4)], 1),
        ({"wire": 0, "others": 1}, [f"test_one.py::test_{number}" for number in range(41)], 1),
    ],
    ids=["all pass", "a row without tests", "many files", "many tests"],
)
def test_nothing_is_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, codes: dict[str, int], failed: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_tests, "_run_rows", lambda jobs: codes)
    monkeypatch.setattr(run_tests, "_failed", lambda row: failed)
    monkeypatch.setattr(subprocess, "call", None)
    assert run_tests.main("0") == code


def forked(folder: Path, body: str, *more: str) -> subprocess.CompletedProcess[str]:
    for number in range(2):
        (folder / f"test_of_{number}.py").write_text(f"import os, time, warnings, pytest\n{body}")
    argv = [sys.executable, "-m", "pytest", "-p", "tests.forks", "-p", "no:cacheprovider", "--forks", "2", *more]
    variables = {**environment(), "PYTHONPATH": str(SCRIPT.parents[1])}
    return subprocess.run(argv, cwd=folder, env=variables, capture_output=True, text=True, timeout=100)


def test_processes_report_each_test_once(tmp_path: Path) -> None:
    body = """
@pytest.fixture(scope='module')
def shared():
    yield 1
    assert False, 'in the end'
def test_passes(shared, tmp_path): assert shared
@pytest.mark.parametrize('number', range(40))
def test_many(number): time.sleep(0.01)
def test_fails(): assert 1 == 2, 'as it should'
def test_is_skipped(): pytest.skip('for a reason')
def test_warns(): warnings.warn('of something')
"""
    done = forked(tmp_path, body, "-rs")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"2 failed, 84 passed, 2 skipped, 2 warnings, [2-4] errors in", done.stdout), done.stdout
    for reported in (
        "AssertionError: as it should",
        "in the end",
        "for a reason",
        "UserWarning: of something",
        "[100%]",
    ):
        assert reported in done.stdout


def test_a_process_that_dies_ends_the_tests(tmp_path: Path) -> None:
    done = forked(tmp_path, "def test_dies(): os._exit(7)\ndef test_passes(): pass\n")
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(r"exit code 7 of a process that ran test_of_[01]\.py::test_dies", done.stdout)


def test_no_more_than_one_has_to_fail(tmp_path: Path) -> None:
    body = "@pytest.mark.parametrize('number', range(900))\ndef test_it(number): assert False\n"
    done = forked(tmp_path, body, "-x")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"stopping after [12] failures", done.stdout)
