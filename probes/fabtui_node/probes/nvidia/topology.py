"""Probe ``topology``: distances between GPUs and NICs, and peer-to-peer access between GPUs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Tuple

from fabtui_node.parsers.nvidia import smi_table as listing
from fabtui_node.parsers.nvidia import topo
from fabtui_node.probes.judgement import judgement, part, some, texts
from fabtui_node.probes.nvidia import nvml
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import run_command

_RAW_LIMIT = 16 * 1024
#: NVML's answers in the words of ``nvidia-smi topo -p2p``, and what these mean.
_MEANING = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the way between them does not support it",
    "NS": "not supported",
    "DR": "disabled in the driver",
}
#: Words of a way through PCIe switches alone, on which NCCL uses GPUDirect RDMA.
_SWITCHED = ("PIX", "PXB")
_WORDS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}


def read_p2p_status(library: Any) -> Dict[str, Any]:
    """Return ``{"uuids": [...], "tables": {"read": {"columns", "rows", "cells", "bad", "p2p", "complete"}}}``.

    All GPUs are in it, by the driver's numbers. A capability of which the driver knows nothing is missing.
    """
    handles, uuids = nvml.devices(library)
    names = ["GPU%d" % at for at in range(len(handles))]
    tables = {}
    # NVML's numbers of what can be asked are in the order of `CAPABILITIES`.
    for index, name in enumerate(topo.CAPABILITIES.values()):
        cells = [[_word(library, one, other, index) for other in handles] for one in handles]
        for at in range(len(handles)):
            cells[at][at] = "X"
        if any(word not in (None, "X") for row in cells for word in row):
            tables[name] = table(names, cells)
    return {"uuids": uuids, "tables": tables}


def _word(library: Any, one: Any, other: Any, index: int) -> Optional[str]:
    if one is None or other is None or one is other:
        return None
    status = nvml.number(nvml.ask(getattr(library, "nvmlDeviceGetP2PStatus", None), one, other, index))
    return None if status is None else _WORDS.get(status, "U")


def table(names: List[str], cells: List[List[Optional[str]]]) -> Dict[str, Any]:
    """Return a table in the form in which `nvidia_topo` gives what nvidia-smi prints."""
    whole: Dict[str, Any] = {"columns": names, "rows": list(names), "cells": cells}
    whole["complete"] = bool(names) and all(word is not None for row in cells for word in row)
    whole["bad"], whole["p2p"] = topo.able(names, names, cells, whole["complete"])
    return whole


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Ask ``nvidia-smi topo`` for the distances and NVML for P2P, or nvidia-smi for that too.

    The matrices are of all GPUs of the machine, by the driver's own numbers; with ``CUDA_VISIBLE_DEVICES`` those that
    it leaves are kept.

    ``{"matrix": {"columns", "rows", "cells", "affinity", "nics", "legend", "complete"} or None, "p2p": {"read",
    "write", "nvlink", "atomics", "pcie": {"columns", "rows", "cells", "bad", "p2p", "complete"}}, "raw": {"m": str},
    "error"}``; see `topo`. Capabilities unknown to this driver are missing.
    """
    end = time.monotonic() + deadline * 0.9
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    task = nvml.NvmlTask(read_p2p_status)
    near = _ask(["topo", "-m"], end)
    known, _ = task.result(max(0.5, (end - time.monotonic()) / 2))
    tables = known if known and known["tables"] else _by_text(end, setting)
    kept = visible(setting, tables["uuids"])
    matrix = without(topo.parse_topology(near.stdout).values, kept)
    p2p = {name: without(table, kept) for name, table in tables["tables"].items() if table["columns"]}
    return {
        "matrix": _kept(matrix, "affinity", "nics", "legend") if matrix["columns"] else None,
        "p2p": {name: _kept(table, "bad", "p2p") for name, table in p2p.items()},
        "raw": {} if near.missing else {"m": near.stdout[:_RAW_LIMIT]},
        "error": None if near.missing else near.why(),
    }


def _by_text(end: float, setting: Optional[str]) -> Dict[str, Any]:
    """Return what `read_p2p_status` would, from nvidia-smi."""
    # Two at a time: each of them restarts the driver's library, and more of them wait for each other.
    with ThreadPoolExecutor(2) as pool:
        asked = {name: pool.submit(_ask, ["topo", "-p2p", letter], end) for letter, name in topo.CAPABILITIES.items()}
        listed = pool.submit(_ask, ["-L"], end) if setting is not None else None
        results = {name: future.result() for name, future in asked.items()}
        gpus = listing.parse_list(listed.result().stdout).values["gpus"] if listed else []
    uuids: List[Optional[str]] = [None] * (1 + max([gpu["index"] for gpu in gpus], default=-1))
    for gpu in gpus:
        uuids[gpu["index"]] = gpu["uuid"]
    tables = {name: topo.parse_p2p(result.stdout).values for name, result in results.items() if result.ok}
    return {"uuids": uuids, "tables": tables}


def _ask(argv: List[str], end: float) -> run_command.CommandResult:
    return run_command.run(["nvidia-smi", *argv], end - time.monotonic())


def visible(setting: Optional[str], uuids: List[Optional[str]]) -> Optional[List[str]]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, by the driver's names (``GPU3``); None if not known."""
    if setting is None or not uuids:
        return None
    # An instance belongs to a GPU, but none of it alone is in these matrices.
    return ["GPU%d" % index for index, instance in nvml.visible_devices(setting, uuids) if instance is None]


def without(values: Dict[str, Any], kept: Optional[List[str]]) -> Dict[str, Any]:
    """Return a matrix without the rows and columns of GPUs that are not among the kept ones; None keeps all."""
    if kept is None:
        return values
    hidden = {name for name in [*values["columns"], *values["rows"]] if name.startswith("GPU") and name not in kept}
    columns = [at for at, name in enumerate(values["columns"]) if name not in hidden]
    rows = [at for at, name in enumerate(values["rows"]) if name not in hidden]
    rest = dict(values)
    rest["cells"] = [[values["cells"][row][column] for column in columns] for row in rows]
    rest["columns"] = [values["columns"][at] for at in columns]
    rest["rows"] = [values["rows"][at] for at in rows]
    if "affinity" in values:
        rest["affinity"] = {name: place for name, place in values["affinity"].items() if name not in hidden}
    if "bad" in values:
        rest["bad"] = [line for line in values["bad"] if not hidden & set(line[:2])]
        rest["p2p"] = True if values["p2p"] is False and not rest["bad"] and values["complete"] else values["p2p"]
    return rest


def _kept(values: Dict[str, Any], *more: str) -> Dict[str, Any]:
    return {name: values[name] for name in ("columns", "rows", "cells", "complete", *more)}


def _rows(matrix: Dict[str, Any]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Yield the rows of a matrix: the name of each, and its words by column."""
    columns, cells = texts(matrix.get("columns")), matrix.get("cells")
    for row, words in zip(texts(matrix.get("rows")), cells if isinstance(cells, list) else []):  # noqa: B905 - 3.8
        yield row, dict(zip(columns, words if isinstance(words, list) else []))  # noqa: B905


def gpu_pairs(matrix: Dict[str, Any]) -> List[List[Any]]:
    """Return ``[GPU, GPU, word]`` for each unordered pair of GPUs in a matrix."""
    pairs: Dict[FrozenSet[str], List[Any]] = {}
    for row, words in _rows(matrix):
        for column, word in words.items():
            if row != column and row.startswith("GPU") and column.startswith("GPU"):
                pairs.setdefault(frozenset((row, column)), [row, column, word])
    return list(pairs.values())


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone: NVLinks that some GPUs have and others lack, GPUs that cannot do P2P."""
    judgements: List[Judgement] = []
    matrix = part(value, "matrix")
    links = [(one, other, topo.nvlinks(word)) for one, other, word in gpu_pairs(matrix)]
    counts = sorted(count for _, _, count in links if count)
    if counts and len(counts) * 2 >= len(links):
        usual = counts[len(counts) // 2]
        none = sorted({name for one, other, count in links if count is None for name in (one, other)})
        apart = [name for name in none if all(count is None for one, other, count in links if name in (one, other))]
        if apart:
            others = len({name for one, other, _ in links for name in (one, other)}) - len(apart)
            text = "%s without NVLink, which the %d other GPUs have with each other (NV%d)" % (
                some(apart),
                others,
                usual,
            )
            text += ": links down, or fabric not joined"
            judgements.append(judgement("nvlink", "bad", text, check="nvlink-active"))
        less = ["%s-%s NV%d" % (one, other, count) for one, other, count in links if count and count < usual]
        if less and len(less) < len(links) / 2:
            text = "fewer NVLinks than the usual %d: %s" % (usual, some(less, 6))
            judgements.append(judgement("nvlink", "warn", text))
    # Reads and writes decide whether NCCL copies directly; the others are worth knowing.
    for name in ("read", "write"):
        judgements += _cannot(name, part(part(value, "p2p"), name), bool(counts))
    return judgements + _near_nics(matrix)


def _near_nics(matrix: Dict[str, Any]) -> List[Judgement]:
    """Return notes about GPUs without a NIC below a common PCIe switch where others have one, and about shared NICs."""
    near: Dict[str, Dict[str, str]] = {}
    for row, words in _rows(matrix):
        to_nics = {name: word for name, word in words.items() if not name.startswith("GPU")}
        if row.startswith("GPU") and to_nics and all(word in topo.NEAR for word in to_nics.values()):
            near[row] = to_nics
    switched = {gpu: [nic for nic, word in nearby.items() if word in _SWITCHED] for gpu, nearby in near.items()}
    served = [gpu for gpu, nics in switched.items() if nics]
    if not served:
        # On a virtual machine, or on a machine with a NIC for its administration alone, no GPU has any.
        return []
    judgements: List[Judgement] = []
    if apart := [gpu for gpu, nics in switched.items() if not nics]:
        nearest = min((word for gpu in apart for word in near[gpu].values()), key=topo.NEAR.index)
        text = (
            "%s: no NIC below their PCIe switch (nearest: %s), as %s: over another GPU (PXN) or without GPUDirect RDMA"
        )
        parts = (some(apart), nearest, some(served) + (" have" if len(served) > 1 else " has"))
        judgements.append(judgement("near_nic", "note", text % parts, check="near-nic"))
    nics = {nic for nics in switched.values() for nic in nics}
    if len(served) > len(nics):
        text = "%d GPUs share %d near NICs: they share the bandwidth when all send at once"
        judgements.append(judgement("near_nic", "note", text % (len(served), len(nics)), check="near-nic"))
    return judgements


def _cannot(name: str, table: Dict[str, Any], nvlink: bool) -> List[Judgement]:
    bad = [line for line in table.get("bad") or [] if isinstance(line, list) and len(line) == 3]
    if not bad:
        return []
    columns = texts(table.get("columns"))
    words: Dict[str, int] = {}
    for _, _, word in bad:
        words[str(word)] = words.get(str(word), 0) + 1
    whole = len(bad) == len(columns) * (len(columns) - 1)
    reasons = ", ".join("%s %s" % (word, _MEANING.get(word, "")) for word in sorted(words)).strip()
    which = "no GPU" if whole else some(["%s>%s" % (one, other) for one, other, _ in bad], 6)
    text = "P2P %s: %s can (%s)" % (name, which, reasons) if whole else "no P2P %s: %s (%s)" % (name, which, reasons)
    # Machines without NVLink are often made like that; with it, something is off.
    return [judgement("p2p", "bad" if nvlink else ("note" if whole else "warn"), text)]


PROBE = ProbeSpec(
    name="topology",
    title="distances between GPUs and NICs, and peer-to-peer access between GPUs",
    phase="finish",
    passive=True,
    needs="nvidia-smi; for P2P the NVIDIA driver's NVML, or nvidia-smi",
    gives="matrices: NVLinks or PCIe distance per pair of devices; P2P read, write, NVLink, atomics per pair",
    run=run,
    judge=judge,
    requires="gpus",
    next="ssh {node} nvidia-smi topo -m",
)
