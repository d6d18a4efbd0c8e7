"""The heap of a session: checked in fresh interpreters, as a thread that has a heap keeps it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from fabtui.session.feeds.live import share_heap, trim_heap

_SCRIPT = """
import ctypes, threading
from fabtui.session.feeds.live import share_heap
libc = ctypes.CDLL(None)
if {shared}:
    assert share_heap()
there = threading.Barrier(4)
def work():
    kept = [bytearray(4000) for _ in range(200)]
    there.wait(30)
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


#: Prints how many bytes of a second large array are outside the heap, after a larger one was freed.
_LARGE = """
import ctypes
from fabtui.session.feeds.live import share_heap
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
libc.mallinfo2.restype = Info
if {shared}:
    assert share_heap()
first = bytearray(8 << 20)
del first
before = libc.mallinfo2().hblkhd
second = bytearray(4 << 20)
print(libc.mallinfo2().hblkhd - before)
"""


def _run(script: str, *, shared: bool) -> str:
    argv = [sys.executable, "-c", script.format(shared=shared)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def _heaps(*, shared: bool) -> int:
    return _run(_SCRIPT, shared=shared).count("<heap nr=")


@pytest.mark.slow
def test_threads_share_one_heap() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("this C library is not glibc")
    assert _heaps(shared=False) > 1
    assert _heaps(shared=True) == 1


@pytest.mark.slow
def test_large_arrays_stay_out_of_it() -> None:
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("this C library is not glibc 2.33 or newer")
    assert int(_run(_LARGE, shared=False)) < 4 << 20
    assert int(_run(_LARGE, shared=True)) >= 4 << 20


def test_a_c_library_that_knows_nothing_of_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert share_heap() is False
    trim_heap()
