"""First code on a node: reads the payload from a pipe and imports its modules from memory.

An interpreter is started with ``-c BOOT``; BOOT reads one payload from fd 0, runs the source of this module out of it
and calls ``start``. Nothing is written to a disk. The same lines start the rank host, under another interpreter.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import signal
import sys
import zlib
from typing import Any, Dict, Optional, Set

#: Exit status of a first stage if its payload does not begin as it was sent: the login has read a part of it.
INPUT_TAKEN = 86

# Reads are exact because frames follow the payload on the same pipe. Without quotes but for names, and without
# backslashes and exclamation marks, for a login shell sees it.
TAKE = """\
os.set_blocking(0,True)
def take(n):
 got=bytes()
 while len(got)<n:
  more=os.read(0,min(n-len(got),65536))
  if more==bytes():os._exit(3)
  got+=more
 return got
try:size=int(take(8),16)
except ValueError:os._exit(86)
payload=json.loads(zlib.decompress(take(size)).decode())
space=dict(__name__="fabtui_node.runtime.bootloader")
source=payload["modules"][space["__name__"]]
exec(compile(source,"payload:fabtui_node/runtime/bootloader.py","exec"),space)
space["start"](payload)
"""

# The working directory is often a home with the user's own json.py or torch/: it must not shadow anything. The alarm
# ends a first stage whose sender froze.
BOOT = """\
import sys
sys.path[:] = [p for p in sys.path if p]
import json, os, signal, zlib
signal.alarm(60)
"""
BOOT += TAKE

Payload = Dict[str, Any]

# The payload of this process; the keeper boots the rank host from the same modules. None if the package was imported
# from a disk.
PAYLOAD: Optional[Payload] = None
IMPORTER: Optional[MemoryImporter] = None


def pack(modules: Dict[str, str], config: Dict[str, Any], entry: str, **more: Any) -> bytes:
    """Return what BOOT reads from fd 0, to run ``main(config)`` of the module ``entry``.

    ``modules`` are source texts by dotted name; one with other names below it is a package. ``more`` are further keys
    of the payload (``"child": True`` for processes that own no protocol on fd 0).
    """
    document = dict(more, modules=modules, config=config, entry=entry)
    # It goes through a local pipe: level 1 takes a third of the time of a better compression.
    packed = zlib.compress(json.dumps(document).encode("ascii"), 1)
    return b"%08x" % len(packed) + packed


class MemoryImporter:
    """Imports modules from a mapping of dotted names to source texts.

    A finder and a loader without their base classes: importing those took a fifth of the node side's start.
    """

    def __init__(self, modules: Dict[str, str]) -> None:
        self._modules: Dict[str, str] = {}
        self._packages: Set[str] = set()
        self.add(modules)

    def add(self, modules: Dict[str, str]) -> None:
        self._modules.update(modules)
        for name in modules:
            while "." in name:
                name = name.rpartition(".")[0]
                self._packages.add(name)

    def _path(self, fullname: str) -> str:
        tail = "/__init__.py" if fullname in self._packages else ".py"
        # Not in angle brackets: only then does linecache ask the loader for the source, for tracebacks.
        return "payload:" + fullname.replace(".", "/") + tail

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module of the payload, None for any other.

        Raises:
            ModuleNotFoundError: It belongs to a package of the payload but is missing. A disk may have another
                release of it, and the two must not be mixed.
        """
        if fullname not in self._modules and fullname not in self._packages:
            if fullname.partition(".")[0] in self._packages:
                raise ModuleNotFoundError("No module named %r in the payload" % fullname, name=fullname)
            return None
        package = fullname in self._packages
        loader: Any = self
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=self._path(fullname), is_package=package)
        if package:
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: Any) -> None:
        """Return None: the import system creates the module."""
        return None

    def exec_module(self, module: Any) -> None:
        name = module.__name__
        module.__file__ = self._path(name)
        # This is how the node side gets its modules: from the controller, which may run anything here anyway.
        code = compile(self.get_source(name), module.__file__, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  # nosec B102

    def get_source(self, fullname: str) -> str:
        """Return the source of a module (empty for a package that only exists through its members)."""
        return self._modules.get(fullname, "")

    def sources(self, prefix: str) -> Dict[str, str]:
        return {name: source for name, source in self._modules.items() if name.startswith(prefix)}


def install(payload: Payload) -> MemoryImporter:
    """Serve the payload's modules to ``import``, before anything the disk has under the same names."""
    importer = MemoryImporter(payload["modules"])
    sys.meta_path.insert(0, importer)
    # The module that runs this may be a bare namespace made by BOOT; the importable one needs the payload too.
    boot = importlib.import_module("fabtui_node.runtime.bootloader")
    boot.PAYLOAD = payload  # type: ignore[attr-defined]
    boot.IMPORTER = importer  # type: ignore[attr-defined]
    return importer


def add(packed: bytes) -> None:
    """Serve further modules that arrived after the payload, here and in processes booted from it."""
    assert PAYLOAD is not None
    assert IMPORTER is not None
    try:
        modules = json.loads(zlib.decompress(packed).decode())
    except (ValueError, zlib.error) as error:
        os.write(2, ("invalid modules were ignored: %s\n" % error).encode())
        return
    PAYLOAD["modules"].update(modules)
    IMPORTER.add(modules)
    if "fabtui_node.registry" in sys.modules:
        importlib.import_module("fabtui_node.registry").add(modules)


def detach_stdin() -> None:
    """Point fd 0 at /dev/null, so that no child can read the protocol."""
    null = os.open(os.devnull, os.O_RDONLY)
    if null != 0:
        os.dup2(null, 0)
        os.close(null)


def start(payload: Payload) -> None:
    """Install the importer and run ``main(config)`` of the payload's entry module.

    Ends the process with status 1, and the traceback on fd 2, on an error.
    """
    signal.alarm(0)
    install(payload)
    if payload.get("child"):
        detach_stdin()
    try:
        importlib.import_module(payload["entry"]).main(payload["config"])
    except Exception:
        print_traceback()
        sys.exit(1)


def print_traceback() -> None:
    """Print the current exception with its source lines, which the interpreter's own printer does not look up."""
    # Slow to import, and seldom needed.
    import traceback

    traceback.print_exc()
    sys.stderr.flush()
