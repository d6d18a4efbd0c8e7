"""Install fabtui in each way that the README names, each in a new environment, and try it there; print the times.

Usage: python tools/check_installs.py [METHOD ...] [--dist dist]

The environment has its own home, no caches of pip and uv, and no compiler on its PATH. Needs pipx and uv, and in the
folder dist the wheel, the sdist and fabtui.pyz. Settings of pip for a package index are kept.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

_COMPILERS = re.compile(r".*(gcc|g\+\+|clang|cpp)(-[\d.]+)?|c?cc|c[89]9(-gcc)?|c\+\+|.*\bld(\..*)?|as|rustc|cargo")
#: How the package index and its certificate are found.
_KEPT = re.compile(
    r"(PIP_|UV_(INDEX|DEFAULT_INDEX|FIND_LINKS)|SSL_CERT_|.*_proxy$|REQUESTS_CA_BUNDLE|LANG$)", re.IGNORECASE
)


def _install_zipapp(dist: Path, home: Path) -> list[list[str | Path]]:
    (home / ".local/bin/fabtui").symlink_to(next(dist.glob("fabtui.pyz")))
    return [[home / ".local/bin/fabtui", "--version"]]


def _install_with_pip(dist: Path, home: Path, package: str) -> list[list[str | Path]]:
    pip = home / "venv/bin/pip"
    link: list[str | Path] = ["ln", "-s", home / "venv/bin/fabtui", home / ".local/bin/fabtui"]
    return [["python3", "-m", "venv", home / "venv"], [pip, "install", "--quiet", next(dist.glob(package))], link]


#: The commands of each way to install; they leave ``~/.local/bin/fabtui``.
METHODS: dict[str, Callable[[Path, Path], list[list[str | Path]]]] = {
    "pipx": lambda dist, _: [[sys.executable, "-m", "pipx", "install", "--backend", "pip", next(dist.glob("*.whl"))]],
    "uv": lambda dist, _: [[sys.executable, "-m", "uv", "tool", "install", "--quiet", next(dist.glob("*.whl"))]],
    "zipapp": _install_zipapp,
    "wheel": lambda dist, home: _install_with_pip(dist, home, "*.whl"),
    "sdist": lambda dist, home: _install_with_pip(dist, home, "*.tar.gz"),
}


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a user without caches and without a compiler."""
    programs = home / "programs"
    for folder in (home / ".local/bin", programs):
        folder.mkdir(parents=True)
    for folder in map(Path, ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")):
        for path in folder.glob("*"):
            if not _COMPILERS.fullmatch(path.name) and not (programs / path.name).is_symlink():
                (programs / path.name).symlink_to(path)
    kept = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    fresh = {"HOME": str(home), "PATH": f"{home}/.local/bin:{programs}", "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    return {**kept, **fresh, "TERM": "dumb"}


def timed(argv: list[str | Path], env: dict[str, str], codes: tuple[int, ...] = (0,)) -> tuple[float, str]:
    """Return the wall time (s) and the output of a command.

    Raises:
        SystemExit: Its exit code is not in ``codes``.
    """
    begin = time.monotonic()
    done = subprocess.run(argv, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=600)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - begin, done.stdout


def check(method: str, dist: Path, version: str) -> str:
    """Install in one way and try it; return a line with the times.

    Raises:
        SystemExit: It does not install, has the wrong version, or a command fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = environment(home)
        compiler = shutil.which("cc", path=env["PATH"]) or shutil.which("gcc", path=env["PATH"])
        if compiler:
            raise SystemExit(f"{compiler} is on the PATH of an environment that has to be without a compiler")
        times = {"install": sum(timed(step, env)[0] for step in METHODS[method](dist, home))}
        fabtui = home / ".local/bin/fabtui"
        times["--version"], printed = timed([fabtui, "--version"], env)
        if printed != f"fabtui {version}\n":
            raise SystemExit(f"{method}: --version printed {printed!r}, not {version}")
        # The one that ships with planted faults (1).
        times["replay --demo"], printed = timed([fabtui, "replay", "--demo", "--text"], env, (1,))
        if not printed.startswith("4 of 12 GPU pairs are bad"):
            raise SystemExit(f"{method}: replay --demo --text printed {printed!r}")
        if find_spec("torch"):
            lab: list[str | Path] = [fabtui, "run", "--lab", "1x2", "--bytes", "64K", "--remote-python", sys.executable]
            # A busy machine may find a pair slow (1).
            times["--lab 1x2"], _ = timed(lab, env, (0, 1))
        size = sum(path.lstat().st_size for path in home.rglob("*")) / 1e6
    return f"{method:<8}" + "".join(f"{name} {seconds:.1f} s   " for name, seconds in times.items()) + f"{size:.0f} MB"


def main() -> int:
    """Check the ways that are named, or all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--dist", type=Path, default=Path(__file__).resolve().parents[1] / "dist")
    args = parser.parse_args()
    dist = args.dist.resolve()
    (wheel,) = dist.glob("*.whl")
    for method in args.methods or METHODS:
        print(check(method, dist, wheel.name.split("-")[1]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
