"""Promises of the pages about safety: each test that they name is there, and no row is without one."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The tables whose rows are promises, by page: their last column names tests.
PAGES = ("SECURITY.md", "docs/reliability.md")
_NAMED = re.compile(r"`(tests/[\w./]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES)
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    named = _NAMED.findall((ROOT / page).read_text())
    assert len(named) > 10
    for path, name in named:
        assert (ROOT / path).is_file(), path
        if name:
            assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (path, name)


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_has_a_test(page: str) -> None:
    inside = False
    for line in (ROOT / page).read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.rstrip(" |").endswith("| test"):
            inside = True
        elif inside and not line.startswith("|--"):
            assert _NAMED.search(line), line


def test_what_is_wrong_with_a_lock_file() -> None:
    fixed = {"aiohttp": {"version": "3.13.3", "id": "CVE-1"}}
    one = f"    --hash=sha256:{'0a' * 32}"
    lock = f"# comment\naiohttp==3.13.3 \\\n{one} \\\n{one}\naiohttp==3.9.10 ; python_version < '3.12' \\\n{one}\n"
    lock += f"aiohttp>=3\nother==1.0.dev1\ntorch==2\nthird==3 \\\n    --hash=md5:0a\nlast==1 \\\n{one} \\\n"
    problems = runpy.run_path(str(ROOT / "tools" / "check_lock.py"))["problems"]
    assert problems(lock, fixed) == [
        "line 5: aiohttp==3.9.10 has CVE-1; fixed in 3.13.3",
        "line 7: 'aiohttp>=3' is not NAME==VERSION",
        "line 8: other has no hash",
        "line 11: a hash is expected",
        "line 11: '    --hash=md5:0a' is not NAME==VERSION",
        "line 13: a hash is missing at the end",
    ]


def test_everything_is_installed_with_hashes() -> None:
    """PyTorch has a version alone, and fabtui itself is not a file of an index."""
    makefile = (ROOT / "Makefile").read_text()
    pips = re.findall(r"\$\(PIP\) install --quiet (.*)", makefile)
    assert pips == [
        "$(CHECKED) --requirement $(VENV)/$(1).txt",
        "--no-deps --no-build-isolation --editable .",
        "$(TORCH)",
    ]
    assert "CHECKED = --require-hashes --no-deps --only-binary :all:\n" in makefile
    workflows = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").iterdir())
    assert "pip install" not in workflows + (ROOT / ".ci" / "run").read_text()
    assert "run: make audit" in workflows


def test_actions_are_commits() -> None:
    for path in (ROOT / ".github" / "workflows").iterdir():
        for used in re.findall(r"uses: (.*)", path.read_text()):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", used), f"{path.name}: {used}"


def test_dependencies_have_upper_bounds() -> None:
    """A new major version may break what is installed from an index; one of nvidia-ml-py is a new CUDA."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    assert [one for one in every if not re.search(r">=[\d.]+,<\d+$", one)] == ["nvidia-ml-py>=12.560"]
