"""NVIDIA's management library: one thing that fails is None, and a driver that hangs costs a deadline only.

Also names of GPUs: PCI addresses, and the GPUs that CUDA can see.
"""

from __future__ import annotations

import ctypes
import re
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

#: The driver's library, which pynvml loads. Without it, compiling pynvml would be half of what an inventory costs.
DRIVER = "libnvidia-ml.so.1"

#: The members of NVML's union by its value type; the first, a double, is not a count.
_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class Unavailable(Exception):
    """NVML cannot be used on this node; the text is the reason."""


def open_library() -> Any:
    """Return ``pynvml``, initialised; each call wants one ``nvmlShutdown``.

    Raises Unavailable: there is no pynvml, no NVIDIA driver, or the driver refuses.
    """
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        raise Unavailable("NVML: NVML Shared Library Not Found") from None
    try:
        import pynvml  # type: ignore[import-untyped, unused-ignore]
    except Exception as error:
        raise Unavailable("pynvml cannot be imported: %s" % error) from None
    try:
        pynvml.nvmlInit()
    except Exception as error:
        raise Unavailable("NVML: %s" % error) from None
    return pynvml


def ask(function: Optional[Callable[..., Any]], *args: Any) -> Any:
    """Return what an NVML function answers, None if it fails in any way or does not exist."""
    if function is None:
        return None
    try:
        return function(*args)
    except Exception:  # a field this GPU, driver or pynvml does not know is None
        return None


def words(value: Any) -> Optional[str]:
    """Return text that older releases of pynvml give as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def number(value: Any) -> Optional[int]:
    """Return a count, None for NVML's "not available" (None or all bits set)."""
    if isinstance(value, bool) or not isinstance(value, int) or value in (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF):
        return None
    return value


def field_count(value: Any, member: Optional[str] = None) -> Optional[int]:
    """Return the count in one answered value of ``nvmlDeviceGetFieldValues``, None where it has none.

    ``member`` of the union holds it where the type of the value does not name it.
    """
    try:
        if value.nvmlReturn != 0:
            return None
        count = number(getattr(value.value, member or _MEMBERS[int(value.valueType)]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return count if count is not None and count >= 0 else None


def thousandth(value: Any) -> Optional[float]:
    """Return mW in W."""
    count = number(value)
    return None if count is None else round(count / 1000.0, 1)


def devices(library: Any) -> Tuple[List[Any], List[Optional[str]]]:
    """Return the handle and the UUID of each GPU in NVML's order, None where the driver gives none."""
    count = number(ask(library.nvmlDeviceGetCount)) or 0
    handles = [ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    return handles, [None if one is None else words(ask(library.nvmlDeviceGetUUID, one)) for one in handles]


def versions(library: Any) -> Dict[str, Any]:
    """Return ``{"driver", "cuda"}``; NVML's 12080 is CUDA 12.8."""
    cuda = ask(library.nvmlSystemGetCudaDriverVersion)
    return {
        "driver": words(ask(library.nvmlSystemGetDriverVersion)),
        "cuda": "%d.%d" % (cuda // 1000, cuda % 1000 // 10) if isinstance(cuda, int) else None,
    }


class NvmlTask:
    """A function run on a separate thread, because a broken driver may never answer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: Optional[str] = None
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            library = open_library()
            try:
                self._value = self._function(library)
            finally:
                ask(library.nvmlShutdown)
        except Unavailable as error:
            self._error = str(error)
        except Exception as error:
            self._error = "NVML: %s: %s" % (type(error).__name__, error)

    def result(self, seconds: float) -> Tuple[Any, Optional[str]]:
        """Wait for at most ``seconds``; return (value, None) or (None, reason)."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive():
            return None, "NVML did not answer within %.1f s" % seconds
        return self._value, self._error


def bus_id(text: Optional[str]) -> Optional[str]:
    """Return a PCI address as sysfs writes it: ``00000000:0A:00.0`` is ``0000:0a:00.0``."""
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", (text or "").strip().lower(), re.ASCII)
    if not match:
        return text
    return "%04x:%s" % (int(match.group(1), 16), match.group(2))


def visible_devices(setting: Optional[str], uuids: Sequence[Optional[str]]) -> List[Tuple[int, Optional[str]]]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    As CUDA does: unset means all; the list ends at the first entry that names no GPU (``-1``, an unknown UUID, an index
    out of range); a UUID may be shortened as long as it is not ambiguous; a GPU named twice makes the list invalid, and
    nothing is visible.

    For each visible device, the GPU's index in ``uuids`` (NVML's order) and None; or -1 and the name of a MIG instance,
    which only NVML can turn into its GPU.
    """
    if setting is None:
        return [(index, None) for index in range(len(uuids))]
    chosen: List[Tuple[int, Optional[str]]] = []
    for entry in (word.strip() for word in setting.split(",")):
        if entry.startswith("MIG-"):
            device: Tuple[int, Optional[str]] = (-1, entry)
        else:
            index = _index(entry, uuids)
            if index is None:
                break
            device = (index, None)
        if device in chosen:
            return []
        chosen.append(device)
    return chosen


def visible_handles(library: Any, setting: Optional[str]) -> List[Tuple[int, Any]]:
    """Return index and handle of the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible, without MIG instances."""
    handles, uuids = devices(library)
    visible = enumerate(visible_devices(setting, uuids))
    return [(index, handles[at]) for index, (at, mig) in visible if mig is None and handles[at] is not None]


def _index(entry: str, uuids: Sequence[Optional[str]]) -> Optional[int]:
    if re.fullmatch("[0-9]{1,4}", entry, re.ASCII):
        return int(entry) if int(entry) < len(uuids) else None
    if not entry.lower().startswith("gpu-"):
        return None
    named = [index for index, uuid in enumerate(uuids) if uuid and uuid.lower().startswith(entry.lower())]
    return named[0] if len(named) == 1 else None
