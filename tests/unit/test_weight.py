"""The gate for weight: a line more fails until its commit gives a reason."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one module, whose figures are committed."""
    for folder in ("fabtui/model", "probes", "tests", "bench", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "fabtui/model/a.py").write_text(
        '"""Module."""\n\n# A reason.\nA = 1\n\n\ndef b() -> int:\n    """Return 1."""\n    return A\n'
    )
    (tmp_path / "tools/lazy_imports.toml").write_text("")
    (tmp_path / "tools/weight.toml").write_text("[figures]\n")
    (tmp_path / "tools/weight.py").write_text((ROOT / "tools/weight.py").read_text())
    assert weigh(tmp_path, "--write").returncode == 0
    commit(tmp_path)
    return tmp_path


def weigh(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "tools/weight.py", *words], cwd=root, capture_output=True, text=True)


def commit(root: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True)


def test_blank_lines_comments_and_docstrings_are_no_code(checkout: Path) -> None:
    printed = dict(line.split() for line in weigh(checkout).stdout.splitlines())
    assert (printed["lines.fabtui/model"], printed["code.fabtui/model"], printed["total.files"]) == ("9", "3", "1")


def test_one_line_more_fails_without_a_reason(checkout: Path) -> None:
    assert weigh(checkout, "--check").stdout == "weight: 0 problems\n"
    with (checkout / "fabtui/model/a.py").open("a") as file:
        file.write("B = 2\n")
    done = weigh(checkout, "--check")
    assert done.returncode == 1
    assert "lines.fabtui/model is 10, tools/weight.toml has 9" in done.stdout
    weigh(checkout, "--write")
    done = weigh(checkout, "--check")
    assert done.returncode == 1
    assert "lines.fabtui/model rises from 9 to 10 without a reason" in done.stdout
    rose = ("lines.fabtui/model", "code.fabtui/model", "total.lines", "total.code", "habit.late-constants")
    with (checkout / "tools/weight.toml").open("a") as file:
        file.writelines(f'\n[[raise]]\nfigure = "{name}"\nby = 1\nreason = "B is needed"\n' for name in rose)
    assert weigh(checkout, "--check").stdout == "weight: 0 problems\n"
    commit(checkout)
    assert weigh(checkout, "--check").stdout == "weight: 0 problems\n"


def test_a_reason_is_good_for_one_commit(checkout: Path) -> None:
    test_one_line_more_fails_without_a_reason(checkout)
    with (checkout / "fabtui/model/a.py").open("a") as file:
        file.write("C = 2\n")
    weigh(checkout, "--write")
    assert "rises from 10 to 11 without a reason" in weigh(checkout, "--check").stdout


def test_fewer_lines_have_to_be_written_down(checkout: Path) -> None:
    (checkout / "fabtui/model/a.py").write_text("A = 1\n")
    assert "lines.fabtui/model is 1, tools/weight.toml has 9" in weigh(checkout, "--check").stdout
    weigh(checkout, "--write")
    assert weigh(checkout, "--check").returncode == 0
