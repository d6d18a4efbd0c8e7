"""Documentation: current tables, and the length of the README."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def reference_page(name: str) -> str:
    found = runpy.run_path(str(ROOT / "tools" / "generate_docs.py"))[name]()
    assert isinstance(found, str)
    return found


@pytest.mark.slow
def test_the_tables_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_docs.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_set_without_warnings() -> None:
    page = ROOT / "docs/reference/fabtui.1"
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", "-rHY=0", "-ww", page], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    for words in ("fabtui - test every GPU", "--host-key-policy", "fabtui replay session.jsonl.gz", "exit codes"):
        assert words in done.stdout, words


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100
