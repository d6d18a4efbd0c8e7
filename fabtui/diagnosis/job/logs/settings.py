"""Settings that the ranks of a job print at its start: ``KEY: value`` or ``KEY=value``, a setting a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fabtui.diagnosis.job.logs.error_lines import unlabelled

_PRINTED = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{1,39})(?:: ?| ?= ?)([^=].{0,199})?$", re.ASCII)
_LABELLED = re.compile(r"^\s{0,4}(\d{1,6}): ", re.ASCII)
#: Words in names of settings that apply to the whole job.
_SHARED = frozenset(
    {
        *("ACCUMULATION", "ADDR", "BATCH", "CP", "DP", "DTYPE", "EP", "GBS", "HEADS", "HIDDEN", "ITERS", "LAYERS"),
        *("LENGTH", "LR", "MBS", "MODEL", "MP", "NNODES", "NPROC", "PARALLEL", "PARTITION", "PP", "PRECISION"),
        *("PROFILE", "SCHEDULE", "SEED", "SEQ", "SIZE", "STAGES", "STEPS", "TP", "VOCAB", "WORLD", "ZERO"),
    }
)
#: Names that differ between nodes although they contain such a word.
_OWN = frozenset(("NODE_RANK", "MASTER_PORT", "LOCAL_ADDR", "NODE_ADDR", "HOST_ADDR", "LOCAL_WORLD_SIZE"))
#: How variables of libraries begin that all ranks should share, and how the names of those end that are of one rank.
LIBRARIES = (
    *("NCCL_", "TORCH_NCCL_", "GLOO_", "RCCL_", "UCX_", "FI_", "PYTORCH_", "OMP_NUM_THREADS", "HSA_", "HIP_", "ROCR_"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_", "CUDA_MODULE_LOADING", "CUDA_CACHE_"),
)
_OF_RANK = ("_FILE", "_DIR", "_DIRECTORY", "_PATH", "_ADDR", "_PORT", "_RANK", "_ID", "_HOSTID", "_NET_DEVICES")
#: Variables that may differ between the ranks of a node; the nodes should have the same values.
_DEVICES = frozenset(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))
#: What separates the values of several ranks.
_AND = " and "
#: Maximum number of settings of a source, and of sources of a job.
_MOST, _MOST_SOURCES = 200, 20_000
#: Lines of a file in which settings are looked for.
FIRST_LINES = 20_000

#: Names of the degrees of parallelism and other settings, by their meaning.
NAMES = {
    "tensor": ("TENSOR_MP_SIZE", "TENSOR_MODEL_PARALLEL_SIZE", "TENSOR_PARALLEL_SIZE", "TP_SIZE", "TP"),
    "pipeline": ("PIPELINE_MP_SIZE", "PIPELINE_MODEL_PARALLEL_SIZE", "PIPELINE_PARALLEL_SIZE", "PP_SIZE", "PP"),
    "data": ("DP_SIZE", "DATA_PARALLEL_SIZE", "DP"),
    "context": ("CONTEXT_PARALLEL_SIZE", "CP_SIZE", "CP"),
    "world": ("WORLD_SIZE",),
    "nodes": ("NNODES",),
    "per_node": ("NPROC_PER_NODE", "GPUS_PER_NODE"),
    "layers": ("NUM_LAYERS",),
    "partition": ("PARTITION",),
    "rank": ("NODE_RANK",),
    "master": ("MASTER_ADDR",),
    "global_batch": ("GLOBAL_BATCH_SIZE",),
    "micro_batch": ("MICRO_BATCH_SIZE",),
}
_KNOWN = frozenset(name for names in NAMES.values() for name in names)


class Printed(NamedTuple):
    """A setting in a line: the label of the task that printed it ("" without), its name and its value."""

    label: str
    name: str
    value: str


def printed(line: str) -> Printed | None:
    """Return the setting that a line prints, or None."""
    label = found[1] if (found := _LABELLED.match(line)) else ""
    match = _PRINTED.match(unlabelled(line[:300]).rstrip())
    name = match[1] if match is not None else ""
    # Other words in capitals are words of a log.
    if match is None or not (name in _KNOWN or is_variable(name) or not _SHARED.isdisjoint(name.split("_"))):
        return None
    return Printed(label, name, (match[2] or "").strip().strip("'\""))


def is_variable(name: str) -> bool:
    return name.startswith(LIBRARIES)


def is_shared(name: str) -> bool:
    """Return whether all nodes should have the same value."""
    return name not in _OWN and not (is_variable(name) and name.endswith(_OF_RANK))


def is_of_devices(name: str) -> bool:
    """Return whether a variable names the GPUs of a rank."""
    return name in _DEVICES


def joined(values: Iterable[str]) -> str:
    """Return the values that several ranks have, each once."""
    return _AND.join(sorted(dict.fromkeys(values)))


class Settings:
    """Settings of a job by who printed them: a node, a task of a common log, or a turn of unlabelled lines.

    In a common log without labels the second line of a name is taken for that of another node.
    """

    def __init__(self) -> None:
        self.of: dict[str, dict[str, str]] = {}

    def take(self, source: str, line: str) -> None:
        """Take a line of a log; ``source`` is its node, or "" for a common log."""
        if (found := printed(line)) is None:
            return
        name = source or (f"task {found.label}" if found.label else "")
        turn = 1
        if not name:
            while found.name in self.of.get(f"print {turn}", {}):
                turn += 1
            name = f"print {turn}"
        if name in self.of or len(self.of) < _MOST_SOURCES:
            self.set(name, found.name, found.value)

    def set(self, source: str, name: str, value: str) -> None:
        """Set the value of a source; where its ranks have GPUs of their own, those of all of them."""
        values = self.of.setdefault(source, {})
        if name in values or len(values) < _MOST:
            several = is_of_devices(name) and name in values
            values[name] = joined([*values[name].split(_AND), value])[:400] if several else value

    def values(self, name: str) -> dict[str, list[str]]:
        """Return the values of a setting with those who printed them."""
        found: dict[str, list[str]] = {}
        for source, values in self.of.items():
            if name in values:
                found.setdefault(values[name], []).append(source)
        return found

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for values in self.of.values() for name in values))

    def usual(self) -> dict[str, str]:
        """Return the most frequent value of each setting that is one of the whole job."""
        return {
            name: max(found := self.values(name), key=lambda value: len(found[value]))
            for name in self.names()
            if is_shared(name)
        }
