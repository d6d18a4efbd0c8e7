"""In CI a test that is skipped is a test that is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent.parent / "conftest.py"


def outcome(folder: Path, body: str, ci: bool) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(f"import pytest\n{body}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FABTUI"))}
    if ci:
        environment["FABTUI_CI"] = "1"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


SKIPS = {
    "mark": "@pytest.mark.skipif(True, reason='{}')\ndef test_it():\n    pass\n",
    "call": "def test_it():\n    pytest.skip('{}')\n",
    "module": "pytest.skip('{}', allow_module_level=True)\n",
    "import": "pytest.importorskip('no_such_module_at_all', reason='{}')\n",
}


@pytest.mark.parametrize("kind", SKIPS)
def test_a_skip_is_a_failure_in_ci_alone(tmp_path: Path, kind: str) -> None:
    body = SKIPS[kind].format("no sshd here")
    assert outcome(tmp_path, body, ci=False).returncode in (0, 5)
    done = outcome(tmp_path, body, ci=True)
    assert done.returncode not in (0, 5)
    assert "skipped in CI, where it has to run: Skipped: no sshd here" in done.stdout


@pytest.mark.parametrize("kind", SKIPS)
@pytest.mark.parametrize("reason", ["no GPU here", "two GPUs are needed", "no real samples here", "no Python 3.8 here"])
def test_some_skips_are_right_in_ci(tmp_path: Path, kind: str, reason: str) -> None:
    assert outcome(tmp_path, SKIPS[kind].format(reason), ci=True).returncode in (0, 5)


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    assert outcome(tmp_path, "@pytest.mark.xfail\ndef test_it():\n    assert False\n", ci=True).returncode == 0
