"""Rank host: the process that owns a node's endpoints.

The driver of its GPUs takes most of a start. So it begins before all else is imported, in the environment that driver
and NCCL find, and this module imports little.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import threading
import time
from typing import Any, Dict, List

SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,NET,P2P,SHM,TUNING"

# A dead path must be reported within a pair's deadline; NCCL's own timeouts are 30 to 60 s.
SHORT_TIMEOUTS = {"NCCL_SOCKET_RETRY_CNT": "5", "NCCL_IB_TIMEOUT": "17"}

_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279, "ppc64le": 360}


def memory_file() -> int:
    """Return the descriptor of an anonymous file in memory; raise OSError if the system does not support it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("nccl-log")
    number = _MEMFD_CREATE.get(os.uname().machine)
    if number is None:
        raise OSError("no file in memory on %s" % os.uname().machine)
    fd = int(ctypes.CDLL(None, use_errno=True).syscall(number, b"nccl-log", 1))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def set_environment(fd: int) -> List[str]:
    """Set NCCL's variables for this process unless the user did; return those that shorten timeouts.

    Communicators are always non-blocking, which deadlines need.

    NCCL prints to ``fd`` with the levels that show transports and reasons. Inherited settings are overridden: with an
    inherited ``NCCL_DEBUG_FILE``, all that would be known of an error is its name.
    """
    environ = os.environ
    if environ.get("NCCL_DEBUG", "").upper() != "TRACE":
        environ["NCCL_DEBUG"] = "INFO"
    wanted = environ.get("NCCL_DEBUG_SUBSYS", "")
    more = wanted.upper() not in ("", SUBSYSTEMS) and not wanted.startswith("^")
    environ["NCCL_DEBUG_SUBSYS"] = "%s,%s" % (SUBSYSTEMS, wanted) if more else SUBSYSTEMS
    environ["NCCL_DEBUG_FILE"] = "/proc/self/fd/%d" % fd
    environ["NCCL_COMM_BLOCKING"] = "0"
    # CUDA_DEVICE_MAX_CONNECTIONS stays at CUDA's own 8. With 2, a context takes 0.07 s instead of 0.15, but a kernel
    # that never ends holds up the next stream, in its queue: on H200, healthy pairs timed out after it.
    # NCCL's RAS service would listen on the port that the user's job needs.
    environ.setdefault("NCCL_RAS_ENABLE", "0")
    environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    shortened = {name: value for name, value in SHORT_TIMEOUTS.items() if name not in environ}
    environ.update(shortened)
    return ["%s=%s" % item for item in shortened.items()]


class DriverStart:
    """The start of the driver, and of NVML beside it: NCCL queries NVML, which takes 0.1 s to start.

    A driver that is missing or broken has the same error for the engine, which reports it.

    Raises:
        OSError: There is no file in memory for NCCL's log.
    """

    def __init__(self) -> None:
        self.log = memory_file()  #: Descriptor of NCCL's log.
        # Before the driver: the order of its devices is one of these variables.
        self.notes = set_environment(self.log)  #: What shortens timeouts.
        self._seconds = 0.0
        self._driver = threading.Thread(target=self._start, name="driver", daemon=True)
        self._driver.start()
        nvml = "libnvidia-ml.so.1", "nvmlInitWithFlags"
        threading.Thread(target=_call, args=nvml, name="nvml", daemon=True).start()

    def _start(self) -> None:
        began = time.monotonic()
        _call("libcuda.so.1", "cuInit")
        self._seconds = time.monotonic() - began

    def wait(self) -> float:
        """Wait until the driver has started, or failed to; return how long (s) that took."""
        self._driver.join()
        return self._seconds


def _call(library: str, function: str) -> None:
    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(library), function)(0)


#: Returns the start of the driver in this process, which the first call begins.
driver_start = functools.lru_cache(maxsize=None)(DriverStart)


def main(config: Dict[str, Any]) -> None:
    """Serve the controller until it hangs up; never returns.

    ``fd`` is an inherited connected stream socket that carries protocol frames. The optional ``engine`` is loaded
    before the ``init`` that will name it.
    """
    if config.get("engine") == "nccl":
        # Its engine meets the same error, and reports it.
        with contextlib.suppress(OSError):
            driver_start()
    # Compiling what it imports takes 0.1 s.
    importlib.import_module("fabtui_node.ranks.rank_dispatcher").main(config)
