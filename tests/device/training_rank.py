"""A rank of a small training that follows a control file; not a test.

Usage: RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python training_rank.py CONTROL ENGINE

An iteration is matrix products, an all_reduce, an all_gather, and every second time a send from rank 0 to rank 1.
Before each iteration a rank reads the file CONTROL: a fault, the rank it is for (-1: all), and a number:

``late`` (ms): the rank sleeps in each iteration. ``loader`` (s), ``lock`` (s): it waits once, in a sleep or for a
lock. ``left`` (s): it leaves the loop for that time. ``receive``: it waits for what nobody sends. ``other``: it calls
an all_gather where the others call an all_reduce. ``checkpoint`` (s): it writes to a file for that time. ``memory``
(MiB): it allocates that amount. ``even``: nothing.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

#: Iterations between two lines of the log.
EVERY = 50


def data_loader_waits(seconds: float) -> None:
    time.sleep(seconds)


def waits_for_a_lock(seconds: float) -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(seconds, lock.release).start()
    with lock:
        pass


def leaves_the_loop(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.5)


def writes_a_checkpoint(seconds: float, path: Path) -> None:
    until = time.monotonic() + seconds
    piece = bytes(8 << 20)
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.write(piece)
            file.flush()
            time.sleep(0.05)
            if file.tell() > 2 << 30:
                file.seek(0)
    path.unlink()


class Training:
    def __init__(self, control: Path, engine: str) -> None:
        self.control, self.rank = control, int(os.environ["RANK"])
        self.device = torch.device("cuda", self.rank) if engine == "nccl" else torch.device("cpu")
        if engine == "nccl":
            torch.cuda.set_device(self.rank)
        dist.init_process_group(engine, timeout=timedelta(minutes=20))
        side, large = (4096, 16 << 20) if engine == "nccl" else (256, 1 << 16)
        self.product = torch.ones(side, side, device=self.device, dtype=torch.bfloat16 if engine == "nccl" else None)
        self.gradients = torch.ones(large, device=self.device)
        self.part = torch.ones(large // 4, device=self.device)
        self.parts = [torch.empty_like(self.part) for _ in range(dist.get_world_size())]
        self.last = ""
        self.filled: list[bytes] = []

    def iterate(self, number: int) -> None:
        for _ in range(20 if self.device.type == "cuda" else 2):
            self.product = self.product @ self.product
            self.product = self.product / self.product.abs().max()
        dist.all_reduce(self.gradients)
        self.gradients /= dist.get_world_size()
        dist.all_gather(self.parts, self.part)
        if number % 2 and self.rank < 2:
            dist.send(self.part, dst=1) if self.rank == 0 else dist.recv(self.part, src=0)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def obey(self) -> None:
        try:
            text = self.control.read_text()
        except OSError:
            return
        fault, _, rest = text.partition(" ")
        which, _, value = rest.partition(" ")
        if fault == "even" or not value or int(which) not in (-1, self.rank):
            self.last = text
            return
        if fault == "late":
            time.sleep(float(value) / 1e3)
            return
        if text == self.last:
            return
        # Each of the others happens once.
        self.last = text
        seconds = float(value)
        if fault == "loader":
            data_loader_waits(seconds)
        elif fault == "lock":
            waits_for_a_lock(seconds)
        elif fault == "left":
            leaves_the_loop(seconds)
        elif fault == "checkpoint":
            writes_a_checkpoint(seconds, self.control.with_name(f"checkpoint{self.rank}"))
        elif fault == "receive":
            dist.recv(self.part, src=1 - self.rank)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        elif fault == "memory":
            self.filled = [os.urandom(1 << 20) for _ in range(int(seconds))]
        elif fault == "other":
            dist.all_gather(self.parts, self.part)


def main() -> None:
    training = Training(Path(sys.argv[1]), sys.argv[2])
    number, began = 0, time.monotonic()
    while True:
        training.obey()
        training.iterate(number)
        number += 1
        if number % EVERY == 0:
            took = (time.monotonic() - began) / EVERY * 1e3
            began = time.monotonic()
            print(f"iteration {number} loss 1.0 elapsed time per iteration (ms): {took:.2f}", flush=True)


main()
