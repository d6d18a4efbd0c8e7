"""A process that acts like a rank with a flight recorder: a byte in its FIFO makes it write a recorded dump.

Usage: RANK=0 TORCH_NCCL_DEBUG_INFO_PIPE_FILE=STEM TORCH_FR_DUMP_TEMP_FILE=PREFIX python flight_rank.py DUMP
"""

import os
import sys
import time
from pathlib import Path


def main() -> None:
    rank = os.environ["RANK"]
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    print("ready", flush=True)
    dump = Path(sys.argv[1]).read_bytes()
    while not os.read(end, 128):
        time.sleep(0.02)
    with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}", "wb") as file:
        # In pieces, as a large dump on a slow disk arrives.
        for start in range(0, len(dump), 8192):
            file.write(dump[start : start + 8192])
            file.flush()
            time.sleep(0.01)
    time.sleep(60)


main()
