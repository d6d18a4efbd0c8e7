"""The counters of NVLinks, from an NVML that stays open, so that a reading costs milliseconds.

What NVML knows differs from one generation of GPUs to the next: the first reading tries everything, later ones ask for
what answered then.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from fabtui_node.probes.nvidia import nvml

# Maximum duration (s) of a later reading; beyond it, only errors are read, not traffic.
ENOUGH = 0.03
# NVML's scope "all links of the GPU together".
ALL_LINKS = 0xFFFFFFFF

# Each with the fields that hold it, the better one first, and what one count stands for. NVML has a counter of CRC
# errors in data packets too, but that one moves on healthy links.
_ERRORS: Tuple[Tuple[str, Tuple[Tuple[str, int], ...]], ...] = (
    ("replay", (("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", 1),)),
    ("recovery", (("NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", 1), ("NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", 1))),
    ("crc", (("NVML_FI_DEV_NVLINK_ERROR_DL_CRC", 1),)),
    ("rcv_errors", (("NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS", 1),)),
    ("xmit_discards", (("NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS", 1),)),
)
_TRAFFIC: Tuple[Tuple[str, Tuple[Tuple[str, int], ...]], ...] = (
    ("tx_bytes", (("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 1024), ("NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES", 1))),
    ("rx_bytes", (("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 1024), ("NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES", 1))),
)
#: GPUs before Hopper have only the older call. It also counts CRC errors in data packets, but those move on healthy
#: links too (seen on H200).
OLDER = (
    ("replay", "NVML_NVLINK_ERROR_DL_REPLAY"),
    ("recovery", "NVML_NVLINK_ERROR_DL_RECOVERY"),
    ("crc", "NVML_NVLINK_ERROR_DL_CRC_FLIT"),
)
Counts = Dict[str, Dict[str, int]]


class _Ask(NamedTuple):
    """One counter that answered: which of a GPU's fields it is, of which link, and what one count stands for."""

    link: str
    name: str
    field: Tuple[int, int]
    unit: int


class _Gpu:
    """One GPU, and how its counters are asked for."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle
        most = getattr(library, "NVML_NVLINK_MAX_LINKS", 18)
        self._links = [n for n in range(most) if nvml.ask(library.nvmlDeviceGetNvLinkState, handle, n) is not None]
        self._errors = [ask for link in self._links for ask in self._found(str(link), link, _ERRORS)]
        self._traffic = self._found("all", ALL_LINKS, _TRAFFIC) if self._links else []
        self._older: List[Tuple[int, str, int]] = []
        if not self._errors:
            kinds = [(name, getattr(library, kind, None)) for name, kind in OLDER]
            self._older = [(n, name, kind) for n in self._links for name, kind in kinds if kind is not None]

    def _found(self, link: str, scope: int, wanted: Any) -> List[_Ask]:
        tried = [
            _Ask(link, name, (getattr(self._library, field), scope), unit)
            for name, fields in wanted
            for field, unit in fields
            if getattr(self._library, field, None) is not None
        ]
        kept: Dict[str, _Ask] = {}
        for ask, count in self._answers(tried):
            if count is not None:
                kept.setdefault(ask.name, ask)
        return list(kept.values())

    def _answers(self, asks: List[_Ask]) -> List[Tuple[_Ask, Optional[int]]]:
        function = getattr(self._library, "nvmlDeviceGetFieldValues", None)
        answer = nvml.ask(function, self._handle, [ask.field for ask in asks]) if asks else None
        return [] if answer is None else [(ask, nvml.field_count(answer[at])) for at, ask in enumerate(asks)]

    def read(self, traffic: bool) -> Counts:
        """Return ``{link: {name: count}}``; traffic is in bytes, of all links together, under ``all``."""
        asks = self._errors + (self._traffic if traffic else [])
        counts: Counts = {}
        for ask, count in self._answers(asks):
            if count is not None:
                counts.setdefault(ask.link, {})[ask.name] = count * ask.unit
        for link, name, kind in self._older:
            count = nvml.number(nvml.ask(self._library.nvmlDeviceGetNvLinkErrorCounter, self._handle, link, kind))
            if count is not None:
                counts.setdefault(str(link), {})[name] = count
        return counts


class NvlinkCounts:
    """Reads the counters of the GPUs that ``CUDA_VISIBLE_DEVICES`` (``setting``) leaves visible; keeps NVML open."""

    def __init__(self, setting: Optional[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._setting = setting
        self._clock = clock
        self._gpus: Optional[Dict[str, _Gpu]] = None
        self._traffic = True

    def read(self) -> Dict[str, Counts]:
        """Return ``{GPU: {link: {name: count}}}``; nothing where there is no NVML or no NVLink. Blocks."""
        if self._gpus is None:
            self._gpus = self._open()
        began = self._clock()
        gpus = {index: gpu.read(self._traffic) for index, gpu in self._gpus.items()}
        if self._clock() - began > ENOUGH:
            self._traffic = False
        return {index: links for index, links in gpus.items() if links}

    def _open(self) -> Dict[str, _Gpu]:
        try:
            library = nvml.open_library()
        except nvml.Unavailable:
            return {}
        return {str(at): _Gpu(library, handle) for at, handle in nvml.visible_handles(library, self._setting)}
