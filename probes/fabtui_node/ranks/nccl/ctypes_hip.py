"""Calls of `ctypes_cuda` by their names in AMD's HIP, through ctypes and ``libamdhip64.so``.

HIP has no contexts: a thread selects a device by its number. Not yet run on an AMD GPU.
"""

from __future__ import annotations

from ctypes import c_char_p, c_int, c_void_p
from typing import Any, List

from fabtui_node.ranks.nccl.ctypes_cuda import SIGNATURES, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import installed

#: Names that differ from those of CUDA's calls by more than the prefix.
_NAMES = {
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFree_v2": "hipFree",
    "cuMemHostAlloc": "hipHostMalloc",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuEventCreate": "hipEventCreateWithFlags",
}
#: Calls that HIP does not have.
_OTHERS = ("cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuGetErrorName", "cuGetErrorString")


def named(name: str) -> str:
    """Return HIP's name of a call of CUDA's driver."""
    return _NAMES.get(name) or "hip" + name[2:].replace("_v2", "")


def candidates() -> List[str]:
    """Return the paths of HIP: beside this interpreter's PyTorch, on the loader's paths, in ROCm's folder."""
    found = installed("torch", "lib", "libamdhip64.so*")
    return [*found, "libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"]


class HipDriver(Driver):
    """HIP's runtime, initialised."""

    title = "HIP"
    amd = True

    def _bind(self, library: Any) -> None:
        for name, arguments in SIGNATURES.items():
            if name not in _OTHERS:
                self._take(name, getattr(library, named(name)), arguments)
        self._take("hipSetDevice", library.hipSetDevice, (c_int,))
        self._texts = [library.hipGetErrorName, library.hipGetErrorString]
        for function in self._texts:
            function.argtypes = (c_int,)
            function.restype = c_char_p

    def explain(self, code: int) -> str:
        """Return an error's name and meaning."""
        parts = [text.decode("ascii", "replace") for text in (function(code) for function in self._texts) if text]
        return "%s (%d)" % (": ".join(parts) or "error", code)

    def version(self) -> str:
        """Return the version of HIP: 60443483 is 6.4."""
        number = self.make(c_int, "cuDriverGetVersion").value
        return "%d.%d" % (number // 10000000, number // 100000 % 100)

    def primary(self, ordinal: int) -> c_void_p:
        """Initialise a device, and return the argument of `make_current`."""
        self.call("hipSetDevice", ordinal)
        return c_void_p(ordinal)

    def make_current(self, context: c_void_p) -> None:
        """Set the device of the calling thread."""
        self.call("hipSetDevice", context.value or 0)


def open_driver() -> Driver:
    """Return NVIDIA's driver, or else AMD's.

    Raises:
        OSError: Neither is installed.
        CudaError: The driver does not initialise.
    """
    try:
        return Driver()
    except OSError:
        for path in candidates():
            try:
                return HipDriver(path)
            except (OSError, AttributeError):
                continue
        raise
