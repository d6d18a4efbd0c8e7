import asyncio
import contextlib
import socket
import subprocess
import sys
import threading

import pytest

from fabtui.transport import connector
from fabtui.transport.connector import Connector, ConnectorOptions
from fabtui.transport.ssh_config import SshSettings

SCRIPT = """
import ctypes.util, gc, os, sys
started = []
def note(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn"):
        started.append(os.path.basename(os.fsdecode(args[0])))
sys.addaudithook(note)
from fabtui.transport.connector import load_asyncssh
find = ctypes.util.find_library
for collecting in (True, False):
    gc.enable() if collecting else gc.disable()
    load_asyncssh()
    sys.modules.pop("asyncssh")
    assert gc.isenabled() is collecting
import asyncssh
assert ctypes.util.find_library is find
print(*sorted(set(started)))
"""


@pytest.mark.slow
def test_asyncssh_is_loaded_without_a_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.split()) <= {"ldconfig"}


async def test_the_first_connection_does_not_wait_for_asyncssh(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = threading.Event()
    monkeypatch.setattr(connector, "load_logins", lambda: imported.wait(10))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)

        async def resolve(self: Connector, host: str) -> SshSettings:
            return SshSettings(host, "127.0.0.1", "me", server.getsockname()[1])

        monkeypatch.setattr(Connector, "resolve", resolve)
        async with Connector(ConnectorOptions(), notice=lambda text: None) as reach:
            opening = asyncio.create_task(reach.open("n1"))
            (await asyncio.to_thread(server.accept))[0].close()
            assert not imported.is_set()
            opening.cancel()
            imported.set()
            with contextlib.suppress(asyncio.CancelledError):
                await opening
