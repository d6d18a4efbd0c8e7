"""The least that NCCL itself takes on this host: contexts, a communicator of all GPUs, all its connections.

    python bench/ncclfloor.py [--channels N] [--json]

One process, a thread a GPU, none of which waits for another but within NCCL. Prints the seconds from the start of the
program to the end of each step: ``contexts`` (the CUDA contexts stand), ``init`` (the communicator stands), ``connect``
(every GPU has sent a few bytes to every other). What finds out anything about pairs by NCCL cannot be faster.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probes"))

from fabtui_node.ranks import rank_host
from fabtui_node.ranks.nccl.ctypes_cuda import CudaDevice, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import Communicator, Library, Transfer

BEGAN = time.monotonic()
LIMIT = 60.0
HELLO = 64


class Steps:
    """Time (s since the start) at which the last GPU completed each step."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self.failed: str | None = None
        self._lock = threading.Lock()

    def done(self, name: str) -> None:
        with self._lock:
            self.found[name] = time.monotonic() - BEGAN


def rank(driver: Driver, library: Library, unique: bytes, me: int, count: int, channels: int | None, to: Steps) -> None:
    try:
        end = time.monotonic() + LIMIT
        device = CudaDevice(driver, me)
        small, data = device.allocate(HELLO), device.allocate(HELLO * count)
        to.done("contexts")
        comm = Communicator(library, lambda: to.failed is not None)
        comm.join(unique, me, count, end, channels)
        to.done("init")
        others = [peer for peer in range(count) if peer != me]
        transfers = [Transfer(True, small, HELLO, peer) for peer in others]
        transfers += [Transfer(False, data + HELLO * peer, HELLO, peer) for peer in others]
        comm.together(transfers, device.stream, end)
        device.wait(end, comm.look)
        to.done("connect")
    except Exception as error:
        to.failed = f"GPU {me}: {type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="the NCCL to use")
    parser.add_argument("--channels", type=int, help="channels of the communicator at most")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rank_host.set_environment(rank_host.memory_file())
    library, steps = Library(options.library), Steps()
    driver = Driver()
    count, unique = driver.count(), library.unique_id()
    args = [(driver, library, unique, me, count, options.channels, steps) for me in range(count)]
    threads = [threading.Thread(target=rank, args=one) for one in args]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if steps.failed is not None:
        print(steps.failed, file=sys.stderr, flush=True)
        os._exit(1)
    found = {"gpus": count, **steps.found}
    print(
        json.dumps(found) if options.json else "  ".join(f"{k} {v:.2f} s" for k, v in steps.found.items()), flush=True
    )
    # No teardown: what is measured has happened.
    os._exit(0)


if __name__ == "__main__":
    main()
