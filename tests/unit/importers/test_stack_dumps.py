"""Stacks of processes as py-spy, pystack, gdb and faulthandler print them."""

from __future__ import annotations

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source

_COLLECTIVE = "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:88)\n"
_LOADER = "    _try_get_data (torch/utils/data/dataloader.py:1133)\n    <module> (train.py:118)\n"
RANKS = "".join(
    f'Process {100 + rank}: python train.py --rank {rank}\nThread {100 + rank} (active): "MainThread"\n'
    + (_LOADER if rank == 2 else _COLLECTIVE)
    for rank in range(4)
)
FAULTHANDLER = """Thread 0x00007f1a2b3c4d5e (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f1a2b3c4d00 (most recent call first):
  File "/opt/torch/cuda/__init__.py", line 890 in synchronize
  File "/app/train.py", line 77 in main
"""
GDB = """Thread 2 (Thread 0x7f00 (LWP 812) "pt_main"):
#0  0x00007ffff7bc in pthread_cond_wait@@GLIBC_2.3.2 () from /lib/libpthread.so.0
#1  0x00007ffff6 in c10d::ProcessGroupNCCL::heartbeatMonitor() () from libtorch_cuda.so
Thread 1 (Thread 0x7f01 (LWP 811) "python3"):
#0  0x00007ffff5 in cuStreamSynchronize () from /usr/lib/libcuda.so.1
"""
PYSTACK = """Traceback for thread 5517 (python3) [] (most recent call last):
    (Python) File "/app/train.py", line 88, in main
        dist.barrier()
    (Python) File "/opt/torch/distributed/distributed_c10d.py", line 4525, in barrier
        work.wait()
"""


def test_the_rank_that_is_elsewhere_is_behind() -> None:
    values = read(Source("ranks.txt", RANKS)).values
    assert (values["hangs"], [place["rank"] for place in values["behind"]]) == (True, [2])
    assert values["answer"][0] == "rank 2 is elsewhere: the others wait for it in a collective"
    assert "data loader" in values["answer"][1]
    assert "py-spy dump --pid 102" in values["next"]


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        (FAULTHANDLER, "for its GPU"),
        (GDB, "for its GPU"),
        (PYSTACK, "in a collective"),
        (RANKS[: len(RANKS) // 4], "in a c"),
    ],
)
def test_a_stack_shows_what_its_process_waits_for(text: str, waits: str) -> None:
    result = read(Source("stack.txt", text))
    assert (result.kind, len(result.values["processes"])) == ("stacks", 1)
    assert result.values["processes"][0]["waits"].startswith(waits)
