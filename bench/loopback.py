"""Real OpenSSH servers on loopback addresses of this machine, for the benchmarks that reach nodes by SSH."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.wire.sshd import Field, free_port, missing

#: Loopback addresses of servers, as `Field` hands them out.
_FIRST, _LAST = 10, 254


class Loopback(NamedTuple):
    """Nodes that run, and how they are reached.

    Attributes:
        names: The nodes.
        config: The ssh_config that names them.
        folder: A private folder for further files.
    """

    names: list[str]
    config: Path
    folder: Path


def clush() -> str | None:
    """Return the path of ClusterShell's ``clush``, None if it is not here."""
    return shutil.which("clush", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def lacking() -> str | None:
    """Return what this machine lacks for a comparison with clush over real servers, None if nothing."""
    return missing() or (None if clush() else "no clush here")


@contextlib.contextmanager
def nodes(count: int) -> Iterator[Loopback]:
    """Run servers whose sessions have an empty home folder, so that no shell start file is measured.

    The nodes have their addresses as names and listen on one port. One block of the ssh_config covers all, as in
    clusters.
    """
    if count > _LAST - _FIRST + 1:
        raise SystemExit(f"at most {_LAST - _FIRST + 1} nodes can be made here")
    os.environ["LC_ALL"] = "C"
    with tempfile.TemporaryDirectory(prefix="fabtui-") as folder:
        field = Field(Path(folder))
        home = Path(folder) / "home"
        home.mkdir()
        names = [f"127.0.1.{number + _FIRST}" for number in range(count)]
        port = free_port(names[0])
        try:
            for name in names:
                field.serve(name, sshd=[f"SetEnv HOME={home}", "MaxSessions 50"], port=port)
            yield Loopback(names, field.config("Host 127.0.1.*", f"  Port {port}"), Path(folder))
        finally:
            field.stop()
