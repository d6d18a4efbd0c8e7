import subprocess
import sys

import pytest

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
