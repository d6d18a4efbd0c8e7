"""Promises of the pages about safety: each test that they name is there, and no row is without one."""

from __future__ import annotations

import re
import runpy
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
    lock = "# comment\naiohttp==3.13.3\naiohttp==3.9.10\naiohttp>=3\nother==1.0.dev1\n"
    problems = runpy.run_path(str(ROOT / "tools" / "check_lock.py"))["problems"]
    assert problems(lock, fixed) == [
        "line 3: aiohttp==3.9.10 has CVE-1; fixed in 3.13.3",
        "line 4: 'aiohttp>=3' is not NAME==VERSION",
    ]
