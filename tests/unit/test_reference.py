"""Documentation: current tables, and links that lead somewhere."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def reference_page(name: str) -> str:
    """Return a page of docs/reference as it is written from the declarations of this process."""
    found = runpy.run_path(str(ROOT / "tools" / "generate_docs.py"))[name]()
    assert isinstance(found, str)
    return found


def test_the_tables_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_docs.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "recordings/README.md"])
def test_links_lead_to_files(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100
