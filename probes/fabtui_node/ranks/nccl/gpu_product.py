"""A product of matrices on the tensor cores, whose result is known: a kernel in PTX, which the driver compiles.

Each warp adds products of small numbers to accumulators; all of them are whole and exact in float32. A GPU that is held
down is slow at it, and one whose arithmetic is broken has other sums.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_int, c_uint, c_void_p
from typing import Any, Tuple

from fabtui_node.ranks.nccl.ctypes_cuda import CudaDevice

#: Independent products of a warp, which keep the tensor cores busy.
SETS = 8
#: Threads of a block, and blocks for each multiprocessor.
THREADS, BLOCKS = 256, 4
#: Products of a set in one launch: their sums, 16 x `SETS` x `TURNS`, are exact below 2^24.
TURNS = 16384
#: Operations of one product of 16 x 16 by 16 x 8.
OPERATIONS = 2 * 16 * 8 * 16
_MULTIPROCESSORS = 16


def ptx() -> str:
    """Return the source of the kernel ``product(out, turns)``, which adds the number of wrong sums to ``out``."""
    lines = [
        *(".version 7.0", ".target sm_80", ".address_size 64"),
        ".visible .entry product(.param .u64 out, .param .u32 turns)",
        *("{", ".reg .f32 %%f<%d>;" % (4 * SETS + 2), ".reg .b32 %%b<%d>;" % SETS, ".reg .b32 %one;"),
        *(".reg .u32 %turn, %turns, %wrong;", ".reg .u64 %out;", ".reg .pred %more, %bad;"),
        *("ld.param.u64 %out, [out];", "cvta.to.global.u64 %out, %out;", "ld.param.u32 %turns, [turns];"),
        *("mov.u32 %turn, 0;", "mov.u32 %wrong, 0;", "mov.b32 %%one, 0x%s;" % _halves(1)),
    ]
    lines += ["mov.f32 %%f%d, 0f00000000;" % at for at in range(4 * SETS)]
    lines += ["mov.b32 %%b%d, 0x%s;" % (at, _halves(at + 1)) for at in range(SETS)]
    lines.append("again:")
    for at in range(SETS):
        sums = ", ".join("%%f%d" % (4 * at + part) for part in range(4))
        factors = "{%%one, %%one, %%one, %%one}, {%%b%d, %%b%d}" % (at, at)
        lines.append("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%s}, %s, {%s};" % (sums, factors, sums))
    lines += ["add.u32 %turn, %turn, 1;", "setp.lt.u32 %more, %turn, %turns;", "@%more bra again;"]
    base, right = "%%f%d" % (4 * SETS), "%%f%d" % (4 * SETS + 1)
    lines.append("cvt.rn.f32.u32 %s, %%turns;" % base)
    for at in range(SETS):
        lines.append("mul.f32 %s, %s, 0f%s;" % (right, base, struct.pack(">f", 16.0 * (at + 1)).hex()))
        for part in range(4):
            lines.append("setp.neu.f32 %%bad, %%f%d, %s;" % (4 * at + part, right))
            lines.append("@%bad add.u32 %wrong, %wrong, 1;")
    lines += ["setp.ne.u32 %bad, %wrong, 0;", "@%bad red.global.add.u32 [%out], %wrong;", "ret;", "}"]
    return "\n".join(lines) + "\n"


def _halves(number: int) -> str:
    return struct.pack(">e", float(number)).hex() * 2


class GpuProduct:
    """The kernel on one GPU."""

    def __init__(self, device: CudaDevice, out: int) -> None:
        """Load it; ``out``: 4 bytes of device memory. Raises `CudaError`: the driver does not take it."""
        self._device, self._out = device, out
        driver = device.driver
        # The module stays loaded with the context: some KiB.
        module = driver.make(c_void_p, "cuModuleLoadData", ptx().encode())
        self._kernel = driver.make(c_void_p, "cuModuleGetFunction", module, b"product")
        handle = driver.handle(device.ordinal)
        self._blocks = BLOCKS * driver.make(c_int, "cuDeviceGetAttribute", _MULTIPROCESSORS, handle).value
        device.fill(out, 0, 4)

    @property
    def operations(self) -> float:
        """Operations of one launch."""
        return float(OPERATIONS) * SETS * TURNS * self._blocks * (THREADS // 32)

    def launch(self) -> None:
        out, turns = ctypes.c_uint64(self._out), c_uint(TURNS)
        arguments: Any = (c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(turns))
        grid: Tuple[int, ...] = (self._blocks, 1, 1, THREADS, 1, 1, 0)
        self._device.driver.call("cuLaunchKernel", self._kernel, *grid, self._device.stream, arguments, None)

    def wrong(self, note: Any, end: float) -> int:
        """Return the number of wrong sums so far; ``note``: pinned memory of at least 4 bytes."""
        self._device.download(note, self._out, 4)
        self._device.wait(end)
        return int(struct.unpack("<I", bytes(note[:4]))[0])
