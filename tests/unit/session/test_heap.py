"""Threads take memory from one heap: checked in fresh interpreters, as a thread that has a heap keeps it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from fabtui.session.feeds.live import share_heap

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


def _heaps(*, shared: bool) -> int:
    argv = [sys.executable, "-c", _SCRIPT.format(shared=shared)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.count("<heap nr=")


def test_threads_share_one_heap() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("this C library is not glibc")
    assert _heaps(shared=False) > 1
    assert _heaps(shared=True) == 1


def test_a_c_library_that_knows_nothing_of_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert share_heap() is False
