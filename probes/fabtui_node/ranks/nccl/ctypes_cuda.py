"""Driver calls to move and check data, through ctypes: ``libcuda.so.1``.

NCCL carries its own CUDA runtime and works in the device's primary context; so does this: no version to match.
Every wait polls and has a deadline: a kernel that waits for a dead peer must not block the caller.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
import uuid as uuids
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from fabtui_node.protocol import ErrorKind

SUCCESS, NOT_READY = 0, 600
STREAM_NON_BLOCKING = 1

#: Seconds after which a stream that is held back continues by itself.
HELD_MOST = 0.1
Made = TypeVar("Made", c_int, c_float, c_void_p)

SIGNATURES: Dict[str, Tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetUuid": (c_void_p, c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_void_p), c_size_t),
    "cuMemFree_v2": (c_void_p,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemcpyHtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_void_p, c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamQuery": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
OPTIONAL: Dict[str, Tuple[Any, ...]] = {
    "cuStreamWaitValue32_v2": (c_void_p, c_void_p, c_uint, c_uint),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuMemFreeHost": (c_void_p,),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
}


#: Attribute of a device that uses the memory of the host, as the GPU of a DGX Spark (GB10) does.
_INTEGRATED = 18
#: Share of the memory of a host that its system keeps: without any, the machine freezes.
_KEPT = 1.0 / 16


def spare_host_memory(path: str = "/proc/meminfo") -> Optional[int]:
    """Return how many bytes of the host's memory buffers may take, None if that is not known."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(65536)
    except OSError:
        return None
    sizes = {name: 1024 * int(size) for name, size in re.findall(r"^(Mem\w+):\s+([0-9]{1,15}) kB", text, re.MULTILINE)}
    if "MemAvailable" not in sizes or "MemTotal" not in sizes:
        return None
    return max(0, sizes["MemAvailable"] - int(_KEPT * sizes["MemTotal"]))


class CudaError(Exception):
    """The driver refused a call, or did not complete the work in time."""

    def __init__(self, text: str, kind: ErrorKind = ErrorKind.LIBRARY) -> None:
        super().__init__(text)
        self.kind = kind


class Driver:
    """The driver library, initialised; ``can_hold`` is True if it can hold back a stream."""

    def __init__(self, path: str = "libcuda.so.1") -> None:
        self._functions: Dict[str, Any] = {}
        library = ctypes.CDLL(path)
        for name, arguments in {**SIGNATURES, **OPTIONAL}.items():
            if name in SIGNATURES or hasattr(library, name):
                function = self._functions[name] = getattr(library, name)
                function.argtypes, function.restype = arguments, c_int
        self.can_hold = "cuStreamWaitValue32_v2" in self._functions
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; raise `CudaError` with call, error and meaning if it fails."""
        code = self._functions[name](*arguments)
        if code != SUCCESS:
            raise CudaError("%s: %s" % (name, self.explain(code)))

    def make(self, kind: Type[Made], name: str, *arguments: Any) -> Made:
        """Call a function that writes its result to its first argument, and return that result."""
        made = kind()
        self.call(name, byref(made), *arguments)
        return made

    def explain(self, code: int) -> str:
        parts = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            if self._functions[function](code, byref(text)) == SUCCESS and text.value:
                parts.append(text.value.decode("ascii", "replace"))
        return "%s (%d)" % (": ".join(parts) or "error", code)

    def busy(self, stream: c_void_p) -> bool:
        code = self._functions["cuStreamQuery"](stream)
        if code not in (SUCCESS, NOT_READY):
            raise CudaError("on a stream: %s" % self.explain(code))
        return bool(code == NOT_READY)

    def version(self) -> str:
        number = self.make(c_int, "cuDriverGetVersion").value
        return "%d.%d" % (number // 1000, number % 1000 // 10)

    def count(self) -> int:
        return self.make(c_int, "cuDeviceGetCount").value

    def uuid(self, ordinal: int) -> str:
        """Return a device's UUID as ``nvidia-smi`` writes it."""
        raw = (c_ubyte * 16)()
        self.call("cuDeviceGetUuid", raw, self.handle(ordinal))
        return "GPU-%s" % uuids.UUID(bytes=bytes(raw))

    def bus_id(self, ordinal: int) -> str:
        """Return a device's PCI address (``0000:0f:00.0``)."""
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, 32, self.handle(ordinal))
        return text.value.decode("ascii", "replace").lower()

    def shares_host_memory(self, ordinal: int) -> bool:
        """Return True if a device has no memory of its own; False if that is not known."""
        if "cuDeviceGetAttribute" not in self._functions:
            return False
        try:
            return bool(self.make(c_int, "cuDeviceGetAttribute", _INTEGRATED, self.handle(ordinal)).value)
        except CudaError:
            return False

    def find(self, index: int, uuid: Optional[str]) -> int:
        """Return the ordinal of the device with a UUID, or else of that with an index; raise if it is not visible."""
        count = self.count()
        if uuid is not None and uuid.startswith("GPU-"):
            for ordinal in range(count):
                if self.uuid(ordinal).lower() == uuid.lower():
                    return ordinal
            raise CudaError("no %s among the %d devices this process sees" % (uuid, count))
        if not 0 <= index < count:
            raise CudaError("no device %d: this process sees %d" % (index, count))
        return index

    def handle(self, ordinal: int) -> int:
        return self.make(c_int, "cuDeviceGet", ordinal).value


class CudaDevice:
    """One GPU with its own stream; used by one thread, whose current context it becomes."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.bus_id = driver.bus_id(ordinal)
        self._of_host = driver.shares_host_memory(ordinal)
        # The primary context, which takes seconds to create.
        driver.call("cuCtxSetCurrent", driver.make(c_void_p, "cuDevicePrimaryCtxRetain", driver.handle(ordinal)))
        self.renew_stream()
        self._gate = c_uint.from_buffer(self.pinned(4))
        self._gate.value = 0

    def renew_stream(self) -> None:
        """Abandon a stream with stuck work, and its events; create a new one."""
        self._events: List[c_void_p] = []
        self.stream = self.driver.make(c_void_p, "cuStreamCreate", STREAM_NON_BLOCKING)

    def held(self, work: Callable[[], None]) -> None:
        """Queue work on the stream while it is held back, if the driver can do that.

        A call that waits for the device, in any thread of the process, waits for the stream. It might prevent the
        caller from releasing it: a timer releases it after ``HELD_MOST``.
        """
        turn = self._gate.value + 1
        if self.driver.can_hold:
            try:
                self.driver.call("cuStreamWaitValue32_v2", self.stream, ctypes.addressof(self._gate), turn, 0)
            except CudaError:
                self.driver.can_hold = False
        if not self.driver.can_hold:
            work()
            return

        def release() -> None:
            self._gate.value = turn

        # It only writes host memory, so no lock of the driver can block it.
        clock = threading.Timer(HELD_MOST, release)
        clock.daemon = True
        clock.start()
        try:
            work()
        finally:
            clock.cancel()
            release()

    def allocate(self, size: int) -> int:
        """Return new device memory; raise `CudaError` with the requested and the free memory if there is not enough."""
        free, total = self.memory()
        spare = spare_host_memory() if self._of_host else None
        free = free if spare is None else min(free, spare)
        wanted = "%s of GPU memory are needed, %s of %s are free" % (_gib(size), _gib(free), _gib(total))
        if self._of_host:
            wanted += ", which are the host's, too"
        if size > free:
            raise CudaError(wanted, ErrorKind.OUT_OF_MEMORY)
        try:
            return int(self.driver.make(c_void_p, "cuMemAlloc_v2", size).value or 0)
        except CudaError as error:
            raise CudaError("%s (%s)" % (error, wanted), ErrorKind.OUT_OF_MEMORY) from None

    def memory(self) -> Tuple[int, int]:
        """Return the bytes of free and of total device memory."""
        free, total = c_size_t(), c_size_t()
        self.driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def free(self, pointer: int) -> None:
        """Free device memory; waits for the device, so only when it is idle."""
        self.driver.call("cuMemFree_v2", pointer)

    def pinned(self, size: int) -> Any:
        pointer = self.driver.make(c_void_p, "cuMemHostAlloc", size, 0)
        return (c_char * size).from_address(int(pointer.value or 0))

    def upload(self, pointer: int, data: Any, size: int) -> None:
        """Queue a copy from host memory (bytes or a ctypes array), which must stay alive until it is done."""
        source = ctypes.cast(c_char_p(data), c_void_p) if isinstance(data, bytes) else ctypes.addressof(data)
        self.driver.call("cuMemcpyHtoDAsync_v2", pointer, source, size, self.stream)

    def download(self, data: Any, pointer: int, size: int, at: int = 0) -> None:
        """Queue a copy into host memory (a ctypes array)."""
        self.driver.call("cuMemcpyDtoHAsync_v2", ctypes.addressof(data) + at, pointer, size, self.stream)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self.driver.call("cuMemsetD8Async", pointer, byte, size, self.stream)

    def spread(self, pointer: int, period: int, size: int) -> None:
        """Repeat the first ``period`` bytes until ``size`` bytes are filled."""
        have = period
        while have < size:
            step = min(have, size - have)
            self.driver.call("cuMemcpyDtoDAsync_v2", pointer + have, pointer, step, self.stream)
            have += step

    def wait(self, end: float, look: Optional[Callable[[], None]] = None) -> None:
        """Wait until the stream is idle, with calls of ``look``, which raises to end the wait.

        Raises `CudaError`: the stream is still busy at ``end`` (monotonic seconds), or the device reports an error.
        """
        turn = 0
        while self.driver.busy(self.stream):
            turn += 1
            if turn % 64 == 0:
                if look is not None:
                    look()
                if time.monotonic() > end:
                    raise CudaError("the stream is still busy", ErrorKind.TIMEOUT)
            # A few hundred polls without a pause keep short waits exact; then other threads get the interpreter.
            if turn > 256:
                time.sleep(0.0001)

    def events(self, count: int) -> List[c_void_p]:
        """Return ``count`` events, the same ones at each call: those of the last call must no longer be in use."""
        while len(self._events) < count:
            self._events.append(self.driver.make(c_void_p, "cuEventCreate", 0))
        return self._events[:count]

    def record(self, event: c_void_p) -> None:
        self.driver.call("cuEventRecord", event, self.stream)

    def laps(self, events: List[c_void_p]) -> List[float]:
        """Return the seconds from each completed event to the next."""
        elapsed = partial(self.driver.make, c_float, "cuEventElapsedTime")
        return [elapsed(events[turn], events[turn + 1]).value / 1000.0 for turn in range(len(events) - 1)]


def _gib(size: int) -> str:
    """Return bytes in GiB, or in MiB below 1 GiB."""
    return "%.1f GiB" % (size / 2**30) if size >= 2**30 else "%.1f MiB" % (size / 2**20)
