"""Print requirements.lock: a version of every package, for all platforms and versions of Python, with its hashes.

Usage: python tools/write_lock.py [--upgrade] [--declared PART]

uv resolves what pyproject.toml declares, and keeps the versions of the present lock where they fit. Each part of the
file is installed after those below it, without asking for dependencies: with them it is complete. PyTorch has a version
alone: its builds (for CPUs, for some CUDA) are files of different indexes, and which one fits is the choice of the
user; the packages that only a build for CUDA needs are that build's.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
#: The parts in the order in which they are installed, and those below each.
PARTS: dict[str, tuple[str, ...]] = {
    "app": (),
    "installed": ("app",),
    "test": ("app", "installed"),
    "dev": ("app", "installed", "test"),
    "docs": ("app", "installed", "test", "dev"),
    "release": ("app", "installed", "test", "dev"),
    "hosted": (),
}
#: PyTorch, and what only its builds for CUDA need.
_BUILDS = re.compile(r"torch|triton|cuda-.+|nvidia-(?!ml-py$).+")
_NAME = re.compile(r"[a-z0-9.-]+(?===)")


def declared(part: str) -> list[str]:
    """Return the requirements that pyproject.toml declares for a part, without PyTorch."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if part == "app":
        # What builds the package is installed as well, so that nothing is fetched beside the lock.
        return [*settings["project"]["dependencies"], *settings["build-system"]["requires"]]
    if part == "installed":
        extras = settings["project"]["optional-dependencies"]
        return [each for extra, needed in extras.items() if extra != "torch" for each in needed]
    return list(settings["dependency-groups"][part])


def _torch() -> list[str]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["torch"])


def resolved(requirements: list[str], out: Path, *options: str | Path) -> dict[str, str]:
    """Return the lines of each package that requirements need, by name; versions that ``out`` has are preferred.

    Raises:
        CalledProcessError: There is no such set of packages.
    """
    wanted = out.with_suffix(".in")
    wanted.write_text("\n".join(requirements))
    uv: list[str | Path] = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", wanted]
    uv += ["--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", "3.11", *options]
    subprocess.run([*uv, "--output-file", out], check=True, stdout=subprocess.DEVNULL)
    found: dict[str, str] = {}
    for entry in re.findall(r"^\S.*\n(?:[ \t].*\n)*", out.read_text(), re.MULTILINE):
        name = _NAME.match(entry)
        assert name is not None, entry
        # One with markers may have a version for each.
        found[name[0]] = found.get(name[0], "") + entry
    return found


def lock(upgrade: bool) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = folder / "kept.lock"
        kept.write_text("" if upgrade else LOCK.read_text())
        everything = [*_torch(), *(each for part in PARTS for each in declared(part))]
        whole = resolved(everything, kept, "--generate-hashes")
        pins = folder / "pins.txt"
        # Without the hashes: in a file of constraints they would have to be there for PyTorch, too.
        pins.write_text(re.sub(r" ?\\\n +--hash=\S+", "", "".join(whole.values())))
        names: dict[str, set[str]] = {}
        for part, below in PARTS.items():
            needed = [each for one in (*below, part) for each in declared(one)]
            needed += _torch() if "installed" in (*below, part) else []
            names[part] = set(resolved(needed, folder / f"{part}.lock", "--constraint", pins))
    lines = [
        "# Versions that the tests passed with, and hashes of their files (make lock). Each part is installed after",
        "# those below it in PARTS of tools/write_lock.py, without dependencies, and wheels alone.",
    ]
    for part, below in PARTS.items():
        own = names[part].difference(*(names[one] for one in below))
        lines += ["", f"# {part}", *(whole[each].rstrip() for each in sorted(own) if not _BUILDS.fullmatch(each))]
    torch = _NAME.split(whole["torch"])[-1].split()[0]
    return "\n".join([*lines, "", "# PyTorch, in the build that fits: see TORCH in the Makefile", f"torch{torch}"])


def main() -> None:
    """Print the lock, or what is declared for a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="the newest versions that fit, not those of the lock")
    parser.add_argument("--declared", choices=PARTS, metavar="PART", help="print the requirements of a part instead")
    args = parser.parse_args()
    print("\n".join(declared(args.declared)) if args.declared else lock(args.upgrade))


if __name__ == "__main__":
    main()
