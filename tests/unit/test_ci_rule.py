"""In CI, a skipped test is a failure, except for the reasons that a CI machine may have."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPS = {
    "mark": "@pytest.mark.skipif(True, reason='{}')\ndef test_it():\n    pass\n",
    "call": "def test_it():\n    pytest.skip('{}')\n",
    "module": "pytest.skip('{}', allow_module_level=True)\n",
    "import": "pytest.importorskip('no_such_module_at_all', reason='{}')\n",
}
ALLOWED = [
    "no GPU here",
    "no package index can be reached",
    "two GPUs are needed",
    "no real samples here",
    "no Python 3.8 here",
]

pytestmark = pytest.mark.slow


def outcome(folder: Path, bodies: dict[str, str], ci: bool) -> subprocess.CompletedProcess[str]:
    """Run pytest over test files of these names, with the rule of this project."""
    package = folder / "tests"
    package.mkdir()
    for name in ("__init__.py", "conftest.py", "effort.py", "forks.py"):
        shutil.copy(TESTS / name, package)
    for name, body in bodies.items():
        (package / f"test_{name}.py").write_text(f"import pytest\n{body}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FABTUI"))}
    # Plugins are not used: importing them takes most of the time.
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if ci:
        environment["FABTUI_CI"] = "1"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", folder, package],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_skip_passes_outside_ci(tmp_path: Path) -> None:
    bodies = {kind: body.format("no sshd here") for kind, body in SKIPS.items()}
    assert outcome(tmp_path, bodies, ci=False).returncode in (0, 5)


# A file that fails as a whole keeps the tests of others from running.
@pytest.mark.parametrize("kinds", [("mark", "call"), ("module", "import")])
def test_a_skip_is_a_failure_in_ci(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    done = outcome(tmp_path, {kind: SKIPS[kind].format(f"no sshd for a {kind}") for kind in kinds}, ci=True)
    assert done.returncode not in (0, 5)
    for kind in kinds:
        assert f"skipped in CI, where it has to run: Skipped: no sshd for a {kind}" in done.stdout
    assert re.search(r"\n(?:2 errors|1 failed, 1 error) in", done.stdout), done.stdout


def test_the_reasons_of_a_ci_machine_are_allowed(tmp_path: Path) -> None:
    bodies = {
        f"{kind}_{number}": body.format(reason) for kind, body in SKIPS.items() for number, reason in enumerate(ALLOWED)
    }
    done = outcome(tmp_path, bodies, ci=True)
    assert done.returncode in (0, 5), done.stdout
    assert f"{len(bodies)} skipped" in done.stdout


def test_an_expected_failure_is_not_a_skip(tmp_path: Path) -> None:
    body = "@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    assert outcome(tmp_path, {"it": body}, ci=True).returncode == 0
