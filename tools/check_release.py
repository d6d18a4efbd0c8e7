"""Check the files in dist/ before they are released: complete, valid, and the same bytes when built again.

Usage: python tools/check_release.py

The second build starts from the unpacked sdist, in another folder. tools/check_installs.py installs them.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMES = (f"fabtui-{VERSION}-py3-none-any.whl", f"fabtui-{VERSION}.tar.gz", "fabtui.pyz", "fabtui.cdx.json")


def sums() -> str:
    """Return the SHA-256 sums of the released files, as sha256sum prints them."""
    return "".join(f"{hashlib.sha256((DIST / name).read_bytes()).hexdigest()}  {name}\n" for name in NAMES)


def differences(folder: Path) -> list[str]:
    with tarfile.open(DIST / NAMES[1]) as archive:
        archive.extractall(folder, filter="data")
    source = folder / f"fabtui-{VERSION}"
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", source], check=True, stdout=subprocess.DEVNULL)
    zipapp: list[str | Path] = [
        sys.executable,
        source / "tools" / "build_zipapp.py",
        source / "dist" / NAMES[0],
        source / "dist" / NAMES[2],
    ]
    subprocess.run(zipapp, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, source / "tools" / "write_sbom.py", source / "dist" / NAMES[3]], check=True)
    return [name for name in NAMES if (source / "dist" / name).read_bytes() != (DIST / name).read_bytes()]


def main() -> int:
    """Check everything; return 1 at the first problem."""
    missing = [name for name in (*NAMES, "SHA256SUMS") if not (DIST / name).is_file()]
    if missing:
        print(f"dist/ has no {', '.join(missing)}; run: make dist")
        return 1
    if f"## [{VERSION}] - 20" not in (ROOT / "CHANGELOG.md").read_text():
        print(f"CHANGELOG.md has no dated section for {VERSION}")
        return 1
    if (DIST / "SHA256SUMS").read_text() != sums():
        print("dist/SHA256SUMS does not fit the files; run: make dist")
        return 1
    packages = [DIST / name for name in NAMES[:2]]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *packages], check=True)
    subprocess.run([Path(sys.executable).with_name("check-wheel-contents"), packages[0]], check=True)
    with tempfile.TemporaryDirectory() as folder:
        changed = differences(Path(folder))
    print(f"built again with other bytes: {', '.join(changed)}" if changed else "built again with the same bytes")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
