"""Install the wheel and the sdist in dist/, each into a new virtual environment, and start fabtui once.

Usage: python tools/check_release.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def check(package: Path, folder: Path) -> None:
    """Install a package into a new environment; it has to start and to replay a shipped recording.

    Raises:
        SystemExit: The package does not install, does not start, or has the wrong version.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    lock = ROOT / "requirements.lock"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--constraint", lock, package], check=True)
    fabtui = folder / "bin" / "fabtui"
    printed = subprocess.run([fabtui, "--version"], check=True, capture_output=True, text=True).stdout
    if printed != f"fabtui {VERSION}\n":
        raise SystemExit(f"{package.name}: --version printed {printed!r}")
    recording = ROOT / "recordings" / "h200x8-lab-2x4.jsonl.gz"
    subprocess.run([fabtui, "replay", "--text", recording], check=True, capture_output=True)
    print(f"{package.name} installs and starts")


def main() -> int:
    """Check every package in dist/; return 1 if there is none, or if CHANGELOG.md has no section of this version."""
    packages = [*ROOT.glob(f"dist/fabtui-{VERSION}*.whl"), *ROOT.glob(f"dist/fabtui-{VERSION}.tar.gz")]
    if len(packages) != 2:
        print(f"dist/ does not hold one wheel and one sdist of {VERSION}; run: make dist")
        return 1
    if f"## [{VERSION}] - 20" not in (ROOT / "CHANGELOG.md").read_text():
        print(f"CHANGELOG.md has no dated section for {VERSION}")
        return 1
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            check(package, Path(folder) / "venv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
