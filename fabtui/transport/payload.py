"""The command and the code that start the node side on a node.

Nothing is written to the disk of the node.

The command starts the first Python it finds with ``-c BOOT``. BOOT reads the payload from standard input: eight
hexadecimal digits of length and that many bytes of zlib-compressed JSON
``{"modules": {name: source}, "config": {...}, "entry": name}``. It runs ``fabtui_node.runtime.bootloader`` out of it
and calls its ``start`` with the whole object. The payload holds the supervisor and the keeper.
Probes and ranks are ten times as much code; they follow in pieces ahead of the first message that needs them.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import shlex
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import fabtui_node
from fabtui_node.protocol import encode_piece
from fabtui_node.runtime.bootloader import TAKE

ENTRY = "fabtui_node.runtime.supervisor"

#: The modules of the supervisor and the keeper, and those that probes and ranks have in common.
FIRST = (
    "runtime.bootloader",
    "runtime.keeper",
    "runtime.streams",
    "protocol",
    "runtime.processes",
    "runtime.supervisor",
    "system.sessions",
    "parsers.base",
    "parsers.lines",
    "parsers.nccl.log_lines",
    "parsers.nccl.transports",
)
#: Parts that follow later: the rank host with its engines, and the probes with their parsers, four times as much.
Part = Literal["ranks", "looks"]
PARTS: tuple[Part, ...] = ("ranks", "looks")
#: The part that each kind of message needs on the node.
NEEDS: Mapping[str, Part] = {"probe": "looks", "spawn": "ranks", "standby": "ranks"}

_FOLDER = Path(fabtui_node.__path__[0])

#: Timeout (s) of the first stage for its payload.
FIRST_STAGE = 30

PYTHONS = (
    "python3",
    "/usr/bin/python3",
    "/usr/libexec/platform-python",
    # Where python3 is too old, a newer one is often installed beside it under its own name.
    *(f"python3.{minor}" for minor in range(14, 7, -1)),
)

# Runs on Python 3.6 as well, only to hand over to a newer one. Without quotes of either kind but for names, without
# backslashes and exclamation marks: the login shell that sees it may be sh, bash, zsh, csh or fish.
_NEWER = f"""\
import json,os,signal,sys,zlib
if sys.version_info<(3,8):
 for i in range(2,len(sys.argv)):
  try:os.execvp(sys.argv[i],[sys.argv[i],"-IS","-c",sys.argv[1],sys.argv[1]]+sys.argv[i+1:])
  except OSError:pass
 os.write(2,b"python %d.%d is too old, 3.8 or newer is needed"%sys.version_info[:2])
 os._exit(127)
signal.alarm({FIRST_STAGE})
"""
#: The first stage on one line: csh ends a quoted word at a newline.
BOOT = "exec(" + json.dumps(_NEWER + TAKE) + ")"

# The arguments are BOOT, the two texts below and interpreters to try; BOOT gets those that are left, should this one be
# too old. The name of the shell is the beginning of its error messages. An exec that fails ends most shells
# (permission, architecture): their trap continues the search, and has each interpreter run nothing before its exec.
_SEARCH = (
    'boot=$1 loop=$2 again=$3 none=found; shift 3; trap "$again" 0; '
    'command -v shopt >/dev/null && shopt -s execfail; eval "$loop"'
)
_LOOP = (
    'for p do shift; case $p in "~/"*) p=$HOME/${p#"~/"};; esac; '
    'if command -v "$p" >/dev/null 2>&1; then if test -z "$all" || why=$("$p" -IS -c "" 2>&1 </dev/null); then '
    'exec "$p" -IS -c "$boot" "$boot" "$@"; test "$all" || eval "$again"; fi; none=runs tried="$tried $p ($why)"; '
    'elif test -e "$p"; then none=runs tried="$tried $p (no permission to execute it)"; '
    'else tried="$tried $p"; fi; done; '
    'trap - 0; echo "no python3 $none, tried:$tried" | tr "[:cntrl:]" " " >&2; exit 127'
)
_AGAIN = 'set -- "$p" "$@"; all=1; eval "$loop"'
#: Size of a piece (bytes): heartbeats pass between two pieces, even on a slow path.
PIECE = 32 * 1024


def marked(boot: str, session: str) -> str:
    """Return a first stage whose command line shows to others that it belongs to a session (8 hexadecimal digits)."""
    return f"{boot}#fabtui {session}"


def command(remote_python: str | None = None, pythons: Sequence[str] = PYTHONS, boot: str = BOOT) -> str:
    """Return the command line that starts the node side, for any login shell.

    ``remote_python`` is the one interpreter to use, a name or a path (``~/`` is the home of the user on the node).
    """
    candidates = [remote_python] if remote_python else list(pythons)
    return "exec " + shlex.join(["sh", "-c", _SEARCH, "fabtui", boot, _LOOP, _AGAIN, *candidates])


def calling_boot() -> str:
    """Return a first stage that connects to the controller before it reads, for a node side whose input is not it.

    Raises:
        FileNotFoundError: The installation is broken.
    """
    source = (_FOLDER / "runtime" / "call_back.py").read_text(encoding="utf-8")
    return "exec(" + json.dumps(f"{_NEWER}exec({json.dumps(source)})\nconnect()\n{TAKE}") + ")"


def first_modules() -> dict[str, str]:
    """Return the sources of `FIRST`.

    Raises:
        FileNotFoundError: The installation is broken: the sources are not there.
    """
    files = {name: name.replace(".", "/") + ".py" for name in FIRST}
    packages = {parent.as_posix() for file in files.values() for parent in Path(file).parents}
    files |= {"" if name == "." else name.replace("/", "."): f"{name}/__init__.py" for name in packages}
    sources = {name: (_FOLDER / file).read_text(encoding="utf-8") for name, file in files.items()}
    return {f"fabtui_node.{name}".removesuffix("."): source for name, source in sources.items()}


def part_of(name: str) -> Part | None:
    """Return the part of the node side that a module goes with, None for `FIRST`."""
    package, _, module = name.partition(".")
    if package != "fabtui_node":
        return "looks"
    if not module or any(f"{first}.".startswith(f"{module}.") for first in FIRST):
        return None
    return "ranks" if module.split(".")[0] == "ranks" else "looks"


@functools.cache
def node_modules() -> Mapping[str, str]:
    """Return the sources of everything a node needs: the package ``fabtui_node`` and ``pynvml``.

    Raises:
        FileNotFoundError: The installation is broken: the sources are not there.
    """
    sources = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        parts = path.relative_to(_FOLDER.parent).with_suffix("").parts
        sources[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    if "fabtui_node.runtime.bootloader" not in sources:
        raise FileNotFoundError(f"no node side sources in {_FOLDER}")
    # Found but not imported: this process has no use for it.
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pynvml is not installed (package nvidia-ml-py)")
    sources["pynvml"] = Path(spec.origin).read_text(encoding="utf-8")
    return sources


class Payload:
    """Modules (sources by dotted name) compressed once for all nodes: only the configuration differs."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._compressor = zlib.compressobj(6)
        text = '{"modules":' + json.dumps(dict(modules), separators=(",", ":")) + ","
        head = self._compressor.compress(text.encode("ascii"))
        self._head = head + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def packed(self, config: Mapping[str, Any], entry: str = ENTRY) -> bytes:
        """Return what the first stage reads: length and compressed modules, configuration and entry.

        The configuration has ``nonce``, ``node``, ``lease``, ``python`` and ``env``, see docs/architecture.md; the
        ``main`` of the module ``entry`` is called with it.
        """
        compressor = self._compressor.copy()
        tail = json.dumps({"config": dict(config), "entry": entry}, separators=(",", ":"))[1:]
        body = self._head + compressor.compress(tail.encode("ascii")) + compressor.flush()
        return b"%08x" % len(body) + body


class Cargo:
    """The payload and the parts that follow it, packed once for all nodes; see `ConnectorOptions`."""

    def __init__(self, entry: str, modules: Mapping[str, str] | None, more: tuple[tuple[str, str], ...]) -> None:
        self._entry = entry
        self._modules = modules
        self._more = more
        #: Under None the payload.
        self._tasks: dict[Part | None, asyncio.Task[Any]] = {}

    def begin(self, part: Part | None = None) -> asyncio.Task[Any]:
        """Begin to pack the payload or a part, in a thread, as it reads files; one task for all links."""
        if part not in self._tasks:
            pack = self._pack_first if part is None else functools.partial(self._pack_part, part)
            self._tasks[part] = asyncio.create_task(asyncio.to_thread(pack))
        return self._tasks[part]

    async def payload(self, config: Mapping[str, Any]) -> bytes:
        """Return the payload of one node. Raises `OSError` if the installation is broken."""
        first: Payload = await asyncio.shield(self.begin())
        if self._modules is None:
            # While the node starts: it asks for them as soon as it has.
            for part in PARTS:
                self.begin(part)
        return first.packed(config, self._entry)

    def needed_by(self, kind: str) -> Part | None:
        """Return the part that must be sent before a message of a kind, if there is one."""
        return NEEDS.get(kind) if self._modules is None else None

    async def pieces(self, part: Part) -> list[bytes]:
        """Return the frames of a part. Raises `OSError` if the installation is broken."""
        pieces: list[bytes] = await asyncio.shield(self.begin(part))
        return pieces

    def _pack_first(self) -> Payload:
        return Payload(first_modules() if self._modules is None else self._modules)

    def _pack_part(self, part: Part) -> list[bytes]:
        sources = {**node_modules(), **dict(self._more)}
        chosen = {name: source for name, source in sources.items() if part_of(name) == part}
        packed = zlib.compress(json.dumps(chosen, separators=(",", ":")).encode("ascii"), 6)
        starts = range(0, len(packed), PIECE)
        return [encode_piece(packed[start : start + PIECE], start == starts[-1]) for start in starts]

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
