"""The calls of `cuda_api` under the names that AMD's HIP gives them, through ctypes and ``libamdhip64.so``.

HIP has no contexts worth the name: a thread chooses a device by its number. Nobody has run this on such a GPU yet.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_void_p
from typing import List

from fabtui_node.ranks.nccl.ctypes_cuda import SIGNATURES, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import installed

#: What does not follow from the name of CUDA's call.
_NAMES = {
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFree_v2": "hipFree",
    "cuMemHostAlloc": "hipHostMalloc",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuEventCreate": "hipEventCreateWithFlags",
}
#: What HIP does otherwise.
_OTHERS = ("cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuGetErrorName", "cuGetErrorString")


def named(name: str) -> str:
    """Return HIP's name of a call of CUDA's driver."""
    return _NAMES.get(name) or "hip" + name[2:].replace("_v2", "")


def candidates() -> List[str]:
    """Return where to look for HIP: beside this interpreter's PyTorch, on the loader's paths, in ROCm's own folder."""
    found = installed("torch", "lib", "libamdhip64.so*")
    return [*found, "libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"]


class HipDriver(Driver):
    """HIP's runtime, initialised."""

    title = "HIP"
    amd = True

    def _bind(self, path: str) -> None:
        library = ctypes.CDLL(path)
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
        number = c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return "%d.%d" % (number.value // 10000000, number.value // 100000 % 100)

    def primary(self, ordinal: int) -> c_void_p:
        """Make a device ready, and return what `make_current` takes."""
        self.call("hipSetDevice", ordinal)
        return c_void_p(ordinal)

    def make_current(self, context: c_void_p) -> None:
        """Make a device the calling thread's."""
        self.call("hipSetDevice", context.value or 0)


def open_driver() -> Driver:
    """Return NVIDIA's driver, or AMD's where there is none of NVIDIA's.

    Raises:
        OSError: There is neither.
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
