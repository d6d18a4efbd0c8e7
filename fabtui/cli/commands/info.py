"""``fabtui info``: versions, paths, the terminal and the tools of this machine."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from fabtui import __version__
from fabtui.config.file import config_path
from fabtui.paths import recordings_folder, state_folder, theme_folder, user_theme_folder
from fabtui.sanitize import one_line

_PACKAGES = (
    "textual",
    "rich",
    "asyncssh",
    "cryptography",
    "pandas",
    "numpy",
    "ClusterShell",
    "nvidia-ml-py",
    "torch",
    "shtab",
    "textual-serve",
)
#: Timeout (s) of a command.
_TIMEOUT = 5.0


def execute(args: argparse.Namespace) -> int:
    """Print the sections; return the exit code."""
    sections = {"versions": versions(), "paths": paths(), "terminal": terminal(), "this machine": machine()}
    for title, rows in sections.items():
        print(f"{title}:")
        for name, text in rows:
            print(f"  {name:<14} {one_line(text, 300)}")
        print()
    return 0


def versions() -> list[tuple[str, str]]:
    """Return the versions of fabtui, Python and the packages it uses."""
    rows = [("fabtui", f"{__version__} in {Path(__file__).resolve().parents[3]}")]
    rows.append(("python", f"{sys.version.split()[0]} ({sys.executable})"))
    for package in _PACKAGES:
        try:
            rows.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def paths() -> list[tuple[str, str]]:
    """Return the folders and files of fabtui."""
    ssh = Path("~/.ssh/config").expanduser()
    return [
        ("state", _path(state_folder())),
        ("recordings", _path(recordings_folder())),
        ("settings", _path(config_path())),
        ("themes", _path(theme_folder())),
        ("user themes", _path(user_theme_folder())),
        ("ssh config", _path(ssh)),
        ("temporary", os.environ.get("TMPDIR", "/tmp")),
    ]


def _path(path: Path) -> str:
    return str(path) if path.exists() else f"{path} (missing)"


def terminal() -> list[tuple[str, str]]:
    """Return the properties of the terminal."""
    size = shutil.get_terminal_size()
    names = ("TERM", "COLORTERM", "NO_COLOR", "TMUX", "SSH_TTY", "LANG", "LC_ALL")
    rows = [(name, value) for name in names if (value := os.environ.get(name))]
    return [
        *rows,
        ("size", f"{size.columns}x{size.lines}" if sys.stdout.isatty() else "stdout is not a terminal"),
        ("encoding", sys.stdout.encoding or "unknown"),
        ("colours", colours(os.environ)),
    ]


def colours(environment: os._Environ[str] | dict[str, str]) -> str:
    """Return the number of colours of a terminal according to its environment."""
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR"):
        return "none (NO_COLOR)"
    if term in ("", "dumb", "unknown"):
        return "none (TERM)"
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "16 million (COLORTERM)"
    return "256 (TERM)" if "256color" in term else "16, unless --colors sets more"


def machine() -> list[tuple[str, str]]:
    """Return the tools and devices of this machine."""
    ssh = shutil.which("ssh")
    rows = [("ssh", f"{ssh}, {_first_line([ssh, '-V'])}" if ssh else "not found: no node can be reached")]
    rows.append(("GPUs", _gpus()))
    torch = find_spec("torch") is not None
    rows.append(("CPU ranks", "yes" if torch else "no, PyTorch is not installed here (pip install 'fabtui[torch]')"))
    lab = "yes" if torch else "probes and pings only, without PyTorch or a GPU"
    rows.append(("lab", lab))
    for tool in ("ping", "fping", "ibstat", "nvidia-smi", "clush", "tmux"):
        rows.append((tool, shutil.which(tool) or "not found"))
    return rows


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return "none found (no nvidia-smi)"
    code, output = _run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    if code != 0:
        return f"nvidia-smi fails: {output}"
    names: dict[str, int] = {}
    for name in output.splitlines():
        names[name] = names.get(name, 0) + 1
    return ", ".join(f"{number} x {name}" for name, number in names.items()) or "none found"


def _first_line(argv: list[str]) -> str:
    """Return the first line of a command's output, or why there is none."""
    return (_run(argv)[1].splitlines() or ["no output"])[0]


def _run(argv: list[str]) -> tuple[int | None, str]:
    """Return a command's exit code, None if it did not finish, and its output."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", timeout=_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return None, f"no output within {_TIMEOUT:.0f} s"
    except OSError as error:
        return None, f"cannot run: {error.strerror}"
    return done.returncode, (done.stdout or done.stderr).strip()
