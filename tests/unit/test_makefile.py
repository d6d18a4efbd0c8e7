"""`make demo` and `make replay`: what they install, in a copy of the Makefile with an interpreter that notes it.

`make lint`: all parts run, and the output of each is whole.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fabtui

ROOT = Path(fabtui.__file__).parent.parent
pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").is_file() or shutil.which("make") is None, reason="not a checkout, or without make"
)

#: Stands for python3, and for the one of the virtual environment: notes each pip, which takes a while.
_PYTHON = """\
#!/bin/sh
case "$*" in
  *"-m venv"*) for last; do :; done; mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
  *"-m pip"*)
    echo "begin $*" >> pip.log; rm -f .venv/bin/fabtui; sleep 0.3
    printf '#!/bin/sh\\necho "fabtui $*"\\n' > .venv/bin/fabtui; chmod +x .venv/bin/fabtui; echo end >> pip.log ;;
  *) exec REAL "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "fake-python"
    python.write_text(_PYTHON.replace("REAL", sys.executable))
    python.chmod(0o755)
    return tmp_path


def make(folder: Path, target: str) -> subprocess.Popen[str]:
    words = ["make", "PYTHON=./fake-python", "TORCH=torch", target]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def installed(folder: Path) -> list[str]:
    lines = (folder / "pip.log").read_text().splitlines()
    assert lines[1::2] == ["end"] * (len(lines) // 2), lines
    return [line.partition(" install ")[2] for line in lines[::2]]


def test_two_at_once_install_one_after_the_other_and_once(checkout: Path) -> None:
    running = [make(checkout, target) for target in ("demo", "replay", "demo", "replay")]
    printed = [one.communicate(timeout=60)[0] for one in running]
    assert [one.returncode for one in running] == [0] * 4, printed
    hashed = "--require-hashes --no-deps --only-binary :all: --requirement .venv"
    app, editable, extras, torch = (line.removeprefix("--quiet ") for line in installed(checkout))
    assert (app, extras) == (f"{hashed}/app.txt", f"{hashed}/installed.txt")
    assert editable == "--no-deps --no-build-isolation --editable ."
    assert torch == "torch"
    listed = [(checkout / f".venv/{part}.txt").read_text() for part in ("app", "installed")]
    assert ["pandas==" in text for text in listed] == [False, True]
    assert ["textual==" in text for text in listed] == [True, False]
    for text, command in zip(printed, ("--lab", "replay", "--lab", "replay"), strict=True):
        assert f"fabtui {command}" in text
        assert "pip" not in text


def test_a_replay_after_a_demo_installs_nothing(checkout: Path) -> None:
    assert make(checkout, "demo").wait(60) == 0
    before = installed(checkout)
    replay = make(checkout, "replay")
    assert replay.communicate(timeout=60)[0] == "fabtui replay --demo\n"
    assert installed(checkout) == before


def test_lint_runs_all_parts_and_fails_with_any(checkout: Path) -> None:
    stamps = checkout / ".venv"
    (stamps / "bin").mkdir(parents=True)
    for stamp in (".python", ".app", ".installed", ".test", ".dev"):
        (stamps / stamp).touch()
    for tool in ("ruff", "codespell", "mypy", "lint-imports", "python", "vermin", "bandit"):
        (stamps / "bin" / tool).write_text(
            '#!/bin/sh\necho "begin $1"; sleep 0.05; echo "end $1"; [ "$1" != format ]\n'
        )
        (stamps / "bin" / tool).chmod(0o755)
    lint = make(checkout, "lint")
    printed = lint.communicate(timeout=60)[0]
    assert lint.returncode != 0
    assert "lint-format] Error 1" in printed
    lines = [line for line in printed.splitlines() if line.startswith(("begin", "end"))]
    assert len(lines) == 2 * 13
    assert [line.replace("begin", "end") for line in lines[::2]] == lines[1::2]
