"""Run the unit and screen tests with the lowest direct dependencies that pyproject.toml allows, and with the newest.

Usage: python tools/check_dependencies.py [lowest-direct | highest] [-- ARGUMENT OF PYTEST ...]

Each runs in a new virtual environment, without PyTorch. Needs uv. Pictures of the screen belong to one version of
Textual and are left out.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESOLUTIONS = ("lowest-direct", "highest")
TESTS = ["--forks", "2", "-m", "not slow and not fuzz and not snapshot", "tests/unit", "tests/screen"]


def check(resolution: str, tests: list[str]) -> int:
    """Install with a resolution of uv and run the tests; return the exit code of pytest.

    Raises:
        CalledProcessError: There is no such set of packages.
    """
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]
    # Pinned for the pictures.
    needed = [each for each in group if not each.startswith("textual==")]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "venv/bin/python"
        uv = [sys.executable, "-m", "uv"]
        install: list[str | Path] = [*uv, "pip", "install", "--quiet", "--python", python]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, Path(folder) / "venv"], check=True)
        subprocess.run([*install, "--resolution", resolution, "--editable", f"{ROOT}[pandas,serve]"], check=True)
        frozen = subprocess.run([*uv, "pip", "freeze", "--python", python], check=True, capture_output=True, text=True)
        kept = [line for line in frozen.stdout.splitlines() if "==" in line]
        print(f"{resolution}: {', '.join(kept)}", flush=True)
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(kept))
        subprocess.run([*install, "--constraint", constraints, *needed], check=True)
        return subprocess.run([python, "-m", "pytest", "-q", *(tests or TESTS)], cwd=ROOT).returncode


def main() -> int:
    """Check one resolution or both; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("resolution", nargs="?", choices=RESOLUTIONS)
    parser.add_argument("tests", nargs="*", metavar="ARGUMENT")
    args = parser.parse_args()
    chosen = (args.resolution,) if args.resolution else RESOLUTIONS
    return max(check(resolution, args.tests) for resolution in chosen)


if __name__ == "__main__":
    sys.exit(main())
