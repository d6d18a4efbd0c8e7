"""``fabtui info``: versions, paths, the terminal and the tools of this machine."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from fabtui import __version__
from fabtui.config.file import config_path
from fabtui.paths import recordings_folder, state_folder, theme_folder, user_path, user_theme_folder
from fabtui.sanitize import one_line
from fabtui.session.measure.communicator_cache import BOUND_MESSAGES, bound
from fabtui.session.options import MIB

HELP = """\
Show versions, paths, the terminal and the tools of this machine. Include it in bug reports.
"""

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
    "mcp",
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
    found = {
        "state": state_folder(),
        "recordings": recordings_folder(),
        "settings": config_path(),
        "themes": theme_folder(),
        "user themes": user_theme_folder(),
        "ssh config": user_path("~/.ssh/config"),
    }
    rows = [(name, str(path) if path.exists() else f"{path} (missing)") for name, path in found.items()]
    return [*rows, ("temporary", os.environ.get("TMPDIR", "/tmp"))]


def terminal() -> list[tuple[str, str]]:
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
    ssh = shutil.which("ssh")
    version = (_run([ssh, "-V"])[1].splitlines() or ["no output"])[0] if ssh else ""
    torch = find_spec("torch") is not None
    tools = ("ping", "fping", "ibstat", "nvidia-smi", "clush", "tmux")
    return [
        ("ssh", f"{ssh}, {version}" if ssh else "not found: no node can be reached"),
        ("GPUs", _gpus()),
        ("CPU ranks", "yes" if torch else "no, PyTorch is not installed here (pip install 'fabtui[torch]')"),
        ("lab", "yes" if torch else "probes and pings only, without PyTorch or a GPU"),
        ("GPU memory", f"tests take at most {bound(0) // MIB} MiB, or {BOUND_MESSAGES} messages, and a CUDA context"),
        *((tool, shutil.which(tool) or "not found") for tool in tools),
    ]


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return "none found (no nvidia-smi)"
    code, output = _run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    if code != 0:
        return f"nvidia-smi fails: {output}"
    return ", ".join(f"{number} x {name}" for name, number in Counter(output.splitlines()).items()) or "none found"


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
