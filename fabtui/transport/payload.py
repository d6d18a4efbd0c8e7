"""The command and the code that start the node side on a node.

Nothing is written to the disk of the node.

The command starts the first Python it finds with ``-c BOOT``. BOOT reads the payload from standard input: eight
hexadecimal digits of length and that many bytes of zlib-compressed JSON
``{"modules": {name: source}, "config": {...}, "entry": name}``. It runs ``fabtui_node.runtime.bootloader`` out of it
and calls its ``start`` with the whole object. The payload holds the supervisor and the keeper.
Probes and ranks are ten times as much code; a node gets them in pieces ahead of the first message that needs them, each
module once. Comments and docstrings, a third of all, stay here.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import re
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fabtui_node
from fabtui_node.protocol import encode_piece
from fabtui_node.registry import PROBES, module_of
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
#: Names of modules in a source text, and what is imported from a package.
_NAMED = re.compile(r"\b(fabtui_node(?:\.\w+)*|pynvml)\b(?: import (?:\(([^)]*)\)|(.*)))?")
#: Modules of the process that runs the probes.
_OF_PROBES = ("fabtui_node.registry", "fabtui_node.system.limits")
#: The probe that runs the probes of the user.
_USER_PROBE = "own"

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
    return {f"fabtui_node.{name}".removesuffix("."): lean(source) for name, source in sources.items()}


def lean(source: str) -> str:
    """Return a source of the node side with empty lines in place of its comments and docstrings."""
    lines, inside, begins = [], "", True
    for line in source.split("\n"):
        text = line.strip()
        if inside:
            lines.append(line if inside == "text" else "")
            inside = "" if '"""' in text else inside
        elif text.startswith("#"):
            lines.append("")
        elif begins and text.startswith('"""'):
            # The body of a class may be its docstring alone.
            lines.append("0".rjust(line.index('"') + 1) if line[0] == " " else "")
            inside, begins = "" if text.count('"""') == 2 else "docstring", False
        else:
            lines.append(line)
            inside = "text" if text.count('"""') % 2 else ""
            begins = text.endswith(":") or (begins and not text)
    return "\n".join(lines)


@functools.cache
def node_modules() -> Mapping[str, str]:
    """Return the sources of everything a node may need: the package ``fabtui_node`` and ``pynvml``.

    Raises:
        FileNotFoundError: The installation is broken: the sources are not there.
    """
    sources = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        parts = path.relative_to(_FOLDER.parent).with_suffix("").parts
        sources[".".join(parts).removesuffix(".__init__")] = lean(path.read_text(encoding="utf-8"))
    if "fabtui_node.runtime.bootloader" not in sources:
        raise FileNotFoundError(f"no node side sources in {_FOLDER}")
    # Found but not imported: this process has no use for it.
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pynvml is not installed (package nvidia-ml-py)")
    sources["pynvml"] = Path(spec.origin).read_text(encoding="utf-8")
    return sources


@functools.cache
def _named(source: str) -> frozenset[str]:
    """Return the modules of the node side that a source names, and what may be some."""
    named: set[str] = set()
    for match in _NAMED.finditer(source):
        words = re.findall(r"\w+", match[2] or match[3] or "")
        named |= {match[1], *(f"{match[1]}.{word}" for word in words)}
    return frozenset(named)


def needed_for(roots: Iterable[str]) -> frozenset[str]:
    """Return modules and all that they import, without those that the payload has."""
    sources, needed, left = node_modules(), set[str](), list(roots)
    while left:
        if (name := left.pop()) not in needed and name in sources:
            needed.add(name)
            left += [*_named(sources[name]), name.rpartition(".")[0]]
        elif "." in name and name not in sources:
            # A function that a module has.
            left.append(name.rpartition(".")[0])
    words = [f"fabtui_node.{name}".split(".") for name in FIRST]
    return frozenset(needed) - {".".join(one[:size]) for one in words for size in range(1, len(one) + 1)}


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
    """The payload and what follows it, packed once for all nodes; see `ConnectorOptions`."""

    def __init__(self, entry: str, modules: Mapping[str, str] | None, more: tuple[tuple[str, str], ...]) -> None:
        self._entry = entry
        self._modules = modules
        self._more = more
        self._packing: asyncio.Task[Payload] | None = None
        #: Modules of each part: a thousand nodes ask for the same ones.
        self._parts: dict[str, frozenset[str]] = {}
        self._pieces: dict[frozenset[str], asyncio.Task[list[bytes]]] = {}

    def begin(self) -> asyncio.Task[Payload]:
        """Begin to pack the payload, in a thread, as it reads files; one task for all links."""
        if self._packing is None:
            self._packing = asyncio.create_task(asyncio.to_thread(self._pack_first))
        return self._packing

    async def payload(self, config: Mapping[str, Any]) -> bytes:
        """Return the payload of one node. Raises `OSError` if the installation is broken."""
        first = await asyncio.shield(self.begin())
        if self._modules is None and not self._pieces:
            # While the node starts: it is asked for its inventory as soon as it has.
            self._begin(await asyncio.to_thread(self.modules, "inventory"))
        return first.packed(config, self._entry)

    def needed_by(self, message: Mapping[str, Any]) -> str | None:
        """Return the part of the node side that must be there before a message, if there is one."""
        if self._modules is not None or message.get("t") not in ("probe", "spawn", "standby"):
            return None
        return str(message.get("name")) if message["t"] == "probe" else "ranks"

    def modules(self, part: str) -> frozenset[str]:
        """Return the modules of a part: a probe, or the ranks. Blocks. Raises `OSError` as `node_modules` does."""
        if part == "ranks":
            return needed_for(name for name in node_modules() if name.startswith("fabtui_node.ranks."))
        own = dict(self._more) if part == _USER_PROBE else {}
        probe = PROBES.get(part)
        roots = [
            *_OF_PROBES,
            *([] if probe is None else [module_of(probe)]),
            *(one for text in own.values() for one in _named(text)),
        ]
        return needed_for(roots) | frozenset(own)

    def _begin(self, names: frozenset[str]) -> asyncio.Task[list[bytes]]:
        if names not in self._pieces:
            self._pieces[names] = asyncio.create_task(asyncio.to_thread(self._pack, names))
        return self._pieces[names]

    async def pieces(self, part: str, sent: set[str]) -> list[bytes]:
        """Return the frames of a part without modules that were sent, and add its modules to these.

        Raises `OSError` if the installation is broken.
        """
        if part not in self._parts:
            self._parts[part] = await asyncio.to_thread(self.modules, part)
        names = self._parts[part] - sent
        if not names:
            return []
        pieces = await asyncio.shield(self._begin(names))
        sent |= names
        return pieces

    def _pack_first(self) -> Payload:
        return Payload(first_modules() if self._modules is None else self._modules)

    def _pack(self, names: frozenset[str]) -> list[bytes]:
        sources = {**node_modules(), **dict(self._more)}
        text = json.dumps({name: sources[name] for name in sorted(names)}, separators=(",", ":"))
        packed = zlib.compress(text.encode("ascii"), 6)
        starts = range(0, len(packed), PIECE)
        return [encode_piece(packed[start : start + PIECE], start == starts[-1]) for start in starts]

    async def close(self) -> None:
        tasks = [*self._pieces.values(), *([self._packing] if self._packing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
