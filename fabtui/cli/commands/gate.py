"""``fabtui gate``: may a job start on this node? One line, within seconds."""

from __future__ import annotations

import argparse
import io
import py_compile
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from fabtui.atomic_write import write_bytes
from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge.xids import xids
from fabtui.errors import InputError
from fabtui.paths import user_path
from fabtui.transport.payload import node_modules
from fabtui.version import __version__
from fabtui_node import gate

HELP = """\
Check this node in seconds, before or after a job: GPUs, NVLinks, RDMA ports, file systems, limits, the kernel's log.

examples:
  fabtui gate                                   one line; exit code 1 if no job should start here
  fabtui gate --json > /etc/fabtui-good.json    on a node that is good: the baseline of its kind
  fabtui gate --baseline /etc/fabtui-good.json
  fabtui gate --build fabtui-gate.pyz           one file for nodes with nothing but Python 3.8

It asks no other node, starts no program, touches no GPU memory and drains nothing: recipes for Slurm's Prolog, Epilog
and HealthCheckProgram and for Kubernetes are in docs/gate.md. It ends within 10 s even where a driver or a file system
hangs. What is bad is looked at twice.

exit codes: 0 nothing is wrong; 1 no job should start here, for the reason in the line; 2 bad usage or input;
3 nothing is known to be wrong, but a check had no answer
"""

#: Parts of the node side that no check needs.
_LEFT_OUT = ("fabtui_node.ranks", "fabtui_node.probes.job")
_START = """\
import sys
from fabtui_node.gate import main
if __name__ == "__main__":
    main(sys.argv[1:], {grave!r})
"""


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    if "build" in given:
        if "baseline" in given or "json" in given:
            raise InputError("--build writes a file and checks nothing; it excludes --baseline and --json")
        return _build(user_path(given["build"]))
    return gate.gate(grave(), given.get("baseline"), "json" in given)


def grave() -> dict[str, str]:
    """Return name and action of each Xid that is bad, by its number: the table that the gate judges by."""
    return {str(code): f"{xid.name} ({xid.action})" for code, xid in xids().items() if xid.usual is Severity.BAD}


def _build(path: Path) -> int:
    modules = {name: text for name, text in node_modules().items() if not name.startswith(_LEFT_OUT)}
    try:
        write_bytes(path, b"#!/usr/bin/python3 -IS\n" + archive(modules))
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH | stat.S_IRGRP | stat.S_IROTH)
    except OSError as error:
        raise InputError(f"--build: cannot write {path}: {error.strerror}") from None
    print(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB: fabtui {__version__}, for Python 3.8 and newer")
    return 0


def archive(modules: Mapping[str, str]) -> bytes:
    """Return a zip archive that runs the gate.

    Each module is also in the form that this release of Python loads: compiling pynvml takes a quarter of a second.
    Other releases compile.
    """
    packages = {name.rpartition(".")[0] for name in modules}
    files = {name.replace(".", "/") + ("/__init__" if name in packages else ""): text for name, text in modules.items()}
    files["__main__"] = _START.format(grave=grave())
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        source, compiled = Path(folder, "module.py"), Path(folder, "module.pyc")
        for name, text in sorted(files.items()):
            source.write_text(text, "utf-8")
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(source), str(compiled), f"{name}.py", doraise=True, invalidation_mode=mode)
            # The same input gives the same bytes.
            for end, data in ((".py", source.read_bytes()), (".pyc", compiled.read_bytes())):
                zipped.writestr(zipfile.ZipInfo(name + end, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
