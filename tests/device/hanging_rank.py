"""A rank of a job of all_reduce that hangs in one of several ways; not a test.

Usage: RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python hanging_rank.py HANG

``run``: no hang. ``skip``: rank 1 leaves the loop after some rounds and sleeps. ``p2p``: rank 0 waits in recv for what
rank 1 never sends. Each rank prints ``round N`` now and then.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

ROUNDS = 200


def main() -> None:
    hang, rank = sys.argv[1], int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", timeout=timedelta(minutes=20))
    numbers = torch.ones(1 << 20, device="cuda")
    at = 0
    while True:
        if at in (10, 20):
            # The communicator of the two ranks is made here.
            dist.send(numbers, dst=0) if rank == 1 else dist.recv(numbers, src=1)
        if at == ROUNDS and rank == 1 and hang == "skip":
            time.sleep(3600)
        if at == ROUNDS and hang == "p2p":
            if rank == 1:
                time.sleep(3600)
            dist.recv(numbers, src=1)
            # A receive returns when it is launched; the program needs what it brings.
            torch.cuda.synchronize()
        dist.all_reduce(numbers)
        numbers /= dist.get_world_size()
        # The ranks stay within a few rounds of each other, as those of a training do.
        torch.cuda.synchronize()
        at += 1
        if at % 50 == 0:
            print(f"round {at}", flush=True)
        time.sleep(0.02)


main()
