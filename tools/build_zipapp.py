"""Build fabtui.pyz, one file that runs without an installation, from a wheel and the packages it needs.

Usage: python tools/build_zipapp.py WHEEL OUT [--python 3.11 ...] [--machine x86_64]

It holds the packages for each Python version, pinned by requirements.lock; what is equal for all versions is stored
once. The same wheel and the same lock give the same bytes. Needs uv.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Notes of the installer, which differ from one build to the next, tests, and what lies beside packages.
LEFT_OUT = {"bin", "etc", "share", "__pycache__", "tests"}
NOTES = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock"}
#: The oldest glibc that the packages are chosen for: RHEL 8 has 2.28.
LIBC = "manylinux_2_28"


def packages(wheel: Path, python: str, machine: str, folder: Path) -> dict[str, bytes]:
    """Return the files of a wheel and of its dependencies for a Python version, by path.

    Raises:
        CalledProcessError: There are no wheels of a package for this version and machine.
    """
    command: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", folder]
    command += ["--only-binary", ":all:", "--python-version", python, "--python-platform", f"{machine}-{LIBC}"]
    command += ["--constraint", ROOT / "requirements.lock", wheel]
    subprocess.run(command, check=True)
    files = {}
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not LEFT_OUT & set(parts) and path.name not in NOTES and path.suffix != ".pyi":
            files["/".join(parts)] = path.read_bytes()
    return files


def write(wheel: Path, out: Path, pythons: list[str], machine: str) -> None:
    found: dict[str, dict[str, bytes]] = {}
    for python in pythons:
        with tempfile.TemporaryDirectory() as folder:
            found["cp" + python.replace(".", "")] = packages(wheel, python, machine, Path(folder))
    entries: dict[str, bytes] = {}
    for tag, files in found.items():
        for name, data in files.items():
            shared = all(other.get(name) == data for other in found.values())
            entries[f"{'any' if shared else tag}/{name}"] = data
    content = hashlib.sha256()
    for name, data in sorted(entries.items()):
        content.update(f"{name}\0{len(data)}\0".encode() + data)
    version = wheel.name.split("-")[1]
    about = {"version": version, "machine": machine, "tags": list(found), "content": content.hexdigest()}
    entries["about.json"] = json.dumps(about).encode()
    entries["__main__.py"] = (ROOT / "tools" / "zipapp_start.py").read_bytes()
    with out.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in sorted(entries.items()):
                # Without a date of its own, an entry is of 1980.
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    out.chmod(0o755)


def main() -> int:
    """Build it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"])
    parser.add_argument("--machine", default="x86_64")
    args = parser.parse_args()
    write(args.wheel, args.out, args.python, args.machine)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
