"""``fabtui info``: what a maintainer asks first."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

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
_DEADLINE = 5.0


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "info",
        help="versions, paths, the terminal, and what was found on this machine",
        description="Show versions, paths, the terminal, and what was found on this machine.",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print it; returns the exit code."""
    from fabtui.sanitize import one_line

    sections = {"versions": versions(), "paths": paths(), "terminal": terminal(), "this machine": machine()}
    for title, rows in sections.items():
        print(f"{title}:")
        for name, text in rows:
            print(f"  {name:<14} {one_line(text, 300)}")
        print()
    return 0


def versions() -> list[tuple[str, str]]:
    """Return the versions of fabtui, Python and the packages it stands on."""
    from importlib import metadata

    from fabtui import __version__

    rows = [("fabtui", f"{__version__} in {Path(__file__).resolve().parents[2]}")]
    rows.append(("python", f"{sys.version.split()[0]} ({sys.executable})"))
    for package in _PACKAGES:
        try:
            rows.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def paths() -> list[tuple[str, str]]:
    """Return where things lie."""
    from fabtui.config.file import config_path
    from fabtui.paths import recordings_folder, state_folder, theme_folder, user_theme_folder

    ssh = Path("~/.ssh/config").expanduser()
    return [
        ("state", _path(state_folder())),
        ("recordings", _path(recordings_folder())),
        ("settings", _path(config_path())),
        ("themes", _path(theme_folder())),
        ("own themes", _path(user_theme_folder())),
        ("ssh config", _path(ssh)),
        ("temporary", os.environ.get("TMPDIR", "/tmp")),
    ]


def _path(path: Path) -> str:
    return str(path) if path.exists() else f"{path} (not there)"


def terminal() -> list[tuple[str, str]]:
    """Return what the terminal says it is."""
    import shutil

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
    """Say how many colours a terminal has, as far as its environment tells."""
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR"):
        return "none (NO_COLOR)"
    if term in ("", "dumb", "unknown"):
        return "none (TERM)"
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "16 million (COLORTERM)"
    return "256 (TERM)" if "256color" in term else "16, unless --colors says more"


def machine() -> list[tuple[str, str]]:
    """Return what this machine has."""
    import shutil

    ssh = shutil.which("ssh")
    rows = [("ssh", f"{ssh}, {_said([ssh, '-V'])}" if ssh else "not found: nodes cannot be reached")]
    rows.append(("GPUs", _gpus()))
    from importlib.util import find_spec

    torch = find_spec("torch") is not None
    rows.append(("CPU ranks", "yes" if torch else "no, PyTorch is not installed here (pip install 'fabtui[torch]')"))
    lab = "yes" if torch else "looks and pings only without PyTorch or a GPU"
    rows.append(("lab", lab))
    for tool in ("ping", "fping", "ibstat", "nvidia-smi", "clush", "tmux"):
        rows.append((tool, shutil.which(tool) or "not found"))
    return rows


def _gpus() -> str:
    import shutil

    if shutil.which("nvidia-smi") is None:
        return "none found (no nvidia-smi)"
    code, said = _ask(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    if code != 0:
        return f"nvidia-smi fails: {said}"
    names: dict[str, int] = {}
    for name in said.splitlines():
        names[name] = names.get(name, 0) + 1
    return ", ".join(f"{number} x {name}" for name, number in names.items()) or "none found"


def _said(argv: list[str]) -> str:
    """Return the first line of what a command prints, or why there is none."""
    return (_ask(argv)[1].splitlines() or ["no output"])[0]


def _ask(argv: list[str]) -> tuple[int | None, str]:
    """Return a command's exit code, None when it could not be run to its end, and what it prints."""
    import subprocess

    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", timeout=_DEADLINE
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_DEADLINE:.0f} s"
    except OSError as error:
        return None, f"cannot be run: {error.strerror}"
    return done.returncode, (done.stdout or done.stderr).strip()
