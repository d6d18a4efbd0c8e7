"""NCCL's C interface through ctypes: non-blocking communicators, polled with deadlines."""

from __future__ import annotations

import ctypes
import glob
import os
import sys
import threading
import time
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from fabtui_node.protocol import ErrorKind

SUCCESS, REMOTE_ERROR, IN_PROGRESS = 0, 6, 7
INT8, FLOAT32 = 0, 7
SUM, MIN = 0, 3
MAGIC = 0xCAFEBEEF
UNDEFINED = -(2**31)
#: Config of NCCL 2.17: older versions read its beginning, newer ones use defaults for the rest.
CONFIG_VERSION = 21700
#: Non-blocking communicators were added in 2.14.
OLDEST = 21400
RESULTS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error (a peer is gone or a network call failed)",
    7: "in progress",
    8: "timeout",
}


class UniqueId(Structure):
    """``ncclUniqueId``, by which the ranks of a communicator find each other."""

    _fields_ = [("internal", c_char * 128)]


class Config(Structure):
    """``ncclConfig_t`` as of NCCL 2.17; its layout has only ever grown at the end."""

    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("blocking", c_int)]
    _fields_ += [("cgaClusterSize", c_int), ("minCTAs", c_int), ("maxCTAs", c_int), ("netName", c_char_p)]


def non_blocking(channels: Optional[int] = None) -> Config:
    """Return a config of a non-blocking communicator with at most ``channels`` channels, if given."""
    most = UNDEFINED if channels is None else channels
    return Config(ctypes.sizeof(Config), MAGIC, CONFIG_VERSION, 0, UNDEFINED, UNDEFINED, most, None)


class NcclError(Exception):
    """NCCL is missing, refused a call or failed; ``kind`` distinguishes timeouts, cancelled tests and lost peers."""

    def __init__(self, text: str, kind: ErrorKind = ErrorKind.LIBRARY) -> None:
        super().__init__(text)
        self.kind = kind


COMM = STREAM = DATA = c_void_p
#: Arguments of the functions in use, which return an int; only ``ncclGetLastError`` returns a text.
SIGNATURES: Dict[str, Tuple[Any, ...]] = {
    "ncclGetUniqueId": (POINTER(UniqueId),),
    "ncclCommInitRankConfig": (POINTER(c_void_p), c_int, UniqueId, c_int, POINTER(Config)),
    "ncclCommGetAsyncError": (COMM, POINTER(c_int)),
    "ncclCommFinalize": (COMM,),
    "ncclCommDestroy": (COMM,),
    "ncclCommAbort": (COMM,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclSend": (DATA, c_size_t, c_int, c_int, COMM, STREAM),
    "ncclRecv": (DATA, c_size_t, c_int, c_int, COMM, STREAM),
    "ncclAllReduce": (DATA, DATA, c_size_t, c_int, c_int, COMM, STREAM),
    "ncclAllGather": (DATA, DATA, c_size_t, c_int, COMM, STREAM),
    "ncclReduceScatter": (DATA, DATA, c_size_t, c_int, c_int, COMM, STREAM),
    "ncclBroadcast": (DATA, DATA, c_size_t, c_int, c_int, COMM, STREAM),
    "ncclGetLastError": (COMM,),
}


def version_text(code: int) -> str:
    """Return NCCL's version, as in 2.28.9."""
    if code < 10000:
        return "%d.%d.%d" % (code // 1000, code % 1000 // 100, code % 100)
    return "%d.%d.%d" % (code // 10000, code % 10000 // 100, code % 100)


def candidates(library: Optional[str]) -> List[str]:
    """Return the paths of NCCL: the given one, or else the wheels of this interpreter and the system's."""
    if library:
        return [library]
    return [*installed("nvidia", "nccl", "lib", "libnccl.so.2"), "libnccl.so.2"]


def installed(*parts: str) -> List[str]:
    """Return files of this interpreter's packages by the parts of a path, of which the last one is a pattern."""
    return [path for folder in sys.path for path in sorted(glob.glob(os.path.join(glob.escape(folder), *parts)))]


class Library:
    """A loaded libnccl."""

    def __init__(self, library: Optional[str]) -> None:
        problems: List[str] = []
        for path in candidates(library):
            try:
                self._handle: Any = ctypes.CDLL(path)
                break
            except OSError as error:
                problems.append(str(error))
        else:
            text = "no NCCL library could be loaded: %s" % "; ".join(problems)
            raise NcclError(text, ErrorKind.NO_LIBRARY)
        number = c_int()
        self.function("ncclGetVersion")(byref(number))
        self.code = number.value
        if self.code < OLDEST:
            what = "NCCL %s at %s is too old, 2.14 is needed" % (version_text(self.code), path)
            raise NcclError(what, ErrorKind.NO_LIBRARY)
        for name, arguments in SIGNATURES.items():
            self.function(name).argtypes = arguments
        self._handle.ncclGetLastError.restype = c_char_p

    def function(self, name: str) -> Any:
        return getattr(self._handle, name)

    def unique_id(self) -> bytes:
        """Return a new id; its creator must live until the communicator is formed.

        Raises `NcclError`, for example if there is no network interface.
        """
        made = UniqueId()
        code = self._handle.ncclGetUniqueId(byref(made))
        if code != SUCCESS:
            raise NcclError("ncclGetUniqueId: %s" % self.explain(code))
        return bytes(bytearray(made))

    def explain(self, code: int, comm: Optional[c_void_p] = None) -> str:
        """Return the meaning of a result code, and NCCL's last error message."""
        text = "%s (%d)" % (RESULTS.get(code, "unknown result"), code)
        last = self._handle.ncclGetLastError(comm) if comm else None
        return text + ": " + " ".join(last.decode("utf-8", "replace").split()) if last else text


#: A message to or from a rank of a communicator.
Transfer = NamedTuple("Transfer", [("sending", bool), ("pointer", int), ("size", int), ("peer", int)])


class Communicator:
    """One rank of a communicator; used by one thread, released by another."""

    def __init__(self, library: Library, stop: Callable[[], bool]) -> None:
        self._library = library
        self._stop = stop
        self._comm = c_void_p()
        self._error = library.function("ncclCommGetAsyncError")

    def join(self, unique: bytes, rank: int, size: int, end: float, channels: Optional[int] = None) -> None:
        """Join a communicator with at most ``channels`` channels, if given.

        Raises `NcclError`: NCCL failed, or other ranks did not join or could not be reached in time.
        """
        made = UniqueId.from_buffer_copy(unique)
        config = non_blocking(channels)
        init = self._library.function("ncclCommInitRankConfig")
        self._settle("ncclCommInitRankConfig", init(byref(self._comm), size, made, rank, byref(config)), end)

    def state(self) -> int:
        state = c_int()
        code = self._error(self._comm, byref(state))
        return code if code != SUCCESS else state.value

    def look(self) -> None:
        """Raise if the communicator failed or the test was cancelled; cheap enough for a polling loop."""
        code = self.state()
        if code not in (SUCCESS, IN_PROGRESS):
            raise self._error_of(code, self._library.explain(code, self._comm))
        if self._stop():
            raise NcclError("cancelled: a peer is gone", ErrorKind.CANCELLED)

    @staticmethod
    def _error_of(code: int, text: str) -> NcclError:
        return NcclError(text, ErrorKind.PEER_LOST if code == REMOTE_ERROR else ErrorKind.LIBRARY)

    def _settle(self, what: str, code: int, end: float) -> None:
        turn = 0
        while code == IN_PROGRESS or (code == SUCCESS and turn == 0):
            code = self.state()
            turn += 1
            if code != IN_PROGRESS:
                continue
            if turn % 16 == 0 and self._stop():
                raise NcclError("cancelled: a peer is gone", ErrorKind.CANCELLED)
            if time.monotonic() > end:
                raise NcclError("%s was still in progress" % what, ErrorKind.TIMEOUT)
            if turn > 64:
                time.sleep(0.0002)
        if code != SUCCESS:
            raise self._error_of(code, "%s: %s" % (what, self._library.explain(code, self._comm or None)))

    def queue(self, name: str, stream: c_void_p, end: float, *arguments: int) -> None:
        self._settle(name, self._library.function(name)(*arguments, self._comm, stream), end)

    def send(self, pointer: int, size: int, peer: int, stream: c_void_p, end: float) -> None:
        self.queue("ncclSend", stream, end, pointer, size, INT8, peer)

    def receive(self, pointer: int, size: int, peer: int, stream: c_void_p, end: float) -> None:
        self.queue("ncclRecv", stream, end, pointer, size, INT8, peer)

    def minimum(self, pointer: int, stream: c_void_p, end: float) -> None:
        """Queue an in-place minimum of one float32 value over all ranks."""
        self.queue("ncclAllReduce", stream, end, pointer, pointer, 1, FLOAT32, MIN)

    def together(self, transfers: Iterable[Transfer], stream: c_void_p, end: float) -> None:
        """Queue several transfers as one group: their connections are made at once."""
        code = int(self._library.function("ncclGroupStart")())
        if code != SUCCESS:
            raise NcclError("ncclGroupStart: %s" % self._library.explain(code))
        worst = SUCCESS
        for transfer in transfers:
            function = self._library.function("ncclSend" if transfer.sending else "ncclRecv")
            code = int(function(transfer.pointer, transfer.size, INT8, transfer.peer, self._comm, stream))
            if code not in (SUCCESS, IN_PROGRESS):
                worst = code
        code = int(self._library.function("ncclGroupEnd")())
        self._settle("ncclGroupEnd", worst or code, end)

    def abort(self, patience: float) -> Optional[str]:
        """Abort it without waiting for peers; return the error if NCCL does not return within ``patience`` seconds."""
        comm, self._comm = self._comm, c_void_p()
        if not comm:
            return None
        done = threading.Event()

        def body() -> None:
            self._library.function("ncclCommAbort")(comm)
            done.set()

        threading.Thread(target=body, name="nccl-abort", daemon=True).start()
        if not done.wait(patience):
            return "abort stuck: ncclCommAbort has not returned after %.1f s" % patience
        return None

    def retire(self, patience: float) -> None:
        """Destroy a healthy communicator; blocks, so no test may be in progress."""
        comm, self._comm = self._comm, c_void_p()
        if not comm:
            return
        end = time.monotonic() + patience
        code = self._library.function("ncclCommFinalize")(comm)
        state = c_int(code)
        while code in (SUCCESS, IN_PROGRESS) and time.monotonic() < end:
            if self._error(comm, byref(state)) != SUCCESS or state.value != IN_PROGRESS:
                break
            time.sleep(0.001)
        finished = state.value == SUCCESS
        self._library.function("ncclCommDestroy" if finished else "ncclCommAbort")(comm)
