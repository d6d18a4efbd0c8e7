"""Formats by name, and recognition of a text's format."""

from __future__ import annotations

import functools
import importlib
import re
from typing import NamedTuple

from fabtui.errors import InputError
from fabtui_node.parsers import catalogue as of_nodes
from fabtui_node.parsers.base import Format

#: The modules of `fabtui.importers.formats`, in the order users see.
_OURS = (
    *("nccl_tests", "nvbandwidth", "cuda_p2p_test", "osu", "all_reduce_bench", "ping_csv", "pairwise_launches"),
    *("torch_log", "nccl_ras", "flight_recorder", "job_monitor", "megatron"),
    *("nccl_inspector", "gpustat", "mscclpp", "deepspeed_comm", "qperf", "ibdiagnet", "busbw_table"),
    *("slurm.tables", "slurm.scontrol", "slurm.slurmd_log", "slurm.topology", "ulimit", "fabtui_files"),
)
#: Characters at the beginning and at the end of a text that are used to recognise it.
HEAD = 64 * 1024
#: Minimum likelihood to recognise a format.
LEAST = 0.3
UNKNOWN = "unknown"
#: Other names of formats: tools of a suite, and synonyms.
_ALIASES = (
    (r"\w+_perf(?:_mpi)?", "nccl-tests"),
    (r"ib_(?:write|read|send|atomic)_(?:bw|lat)|raw_ethernet_\w+", "perftest"),
    (r"osu_\w+", "osu"),
    (r"iperf", "iperf3"),
    (r"p2pbandwidthlatencytest|p2p-bandwidth", "p2pBandwidthLatencyTest"),
    (r"nccl-debug-log|nccl", "nccl-log"),
    (r"torch-failure|pytorch|torch", "torch-log"),
    (r"ncclras|ras", "nccl-ras"),
    (r"torchfrtrace|nccl-trace|fr", "flight-recorder"),
    (r"megatron(?:-(?:info|timers))?", "megatron-log"),
    (r"inspector|rccl-inspector", "nccl-inspector"),
    (r"msccl\+\+|mscclpp-(?:test|expt)|all\w+_test_perf", "mscclpp"),
    (r"deepspeed|ds_bench|deepspeed-comm-bench", "deepspeed-comm"),
    (r"ibdiagnet2", "ibdiagnet"),
    (r"topology(?:\.conf)?", "slurm-topology"),
    (r"dmesg-\w+|xid", "dmesg"),
    (r"sstat", "sacct"),
    (r"nvlink-e|nvlink-errors", "nvidia-smi-nvlink-e"),
    (r"(?:nvidia-smi-)?nvlink(?:-s|-status)?", "nvidia-smi-nvlink-s"),
    (r"topo(?:-m)?", "nvidia-smi-topo-m"),
    (r"topo-p2p", "nvidia-smi-topo-p2p"),
)


def chosen(name: str) -> Format:
    """Return the format of a name, in any case, of a tool of its suite, or with ``slurm-`` before it.

    Raises:
        InputError: There is none; the names are in the message.
    """
    low = name.lower()
    by_name = {known.lower(): form for known, form in formats().items()}
    alias = next((kind.lower() for pattern, kind in _ALIASES if re.fullmatch(pattern, low)), "")
    for one in (low, low.removeprefix("slurm-"), alias):
        if one in by_name:
            return by_name[one]
    raise InputError(f"--as: there is no kind {name!r}; there are {', '.join(sorted(formats(), key=str.lower))}")


class Guess(NamedTuple):
    """The format that a text most likely has.

    Attributes:
        format: The format, or None if none fits, or two fit equally.
        sure: Its likelihood, from 0 to 1.
        others: Names of the other formats it may have, the most likely first.
    """

    format: Format | None
    sure: float
    others: list[str]


@functools.cache
def formats() -> dict[str, Format]:
    """Return all formats by name."""
    modules = [importlib.import_module(f"fabtui.importers.formats.{module}") for module in _OURS]
    return {form.name: form for module in modules for form in module.FORMATS} | of_nodes.formats()


def recognise(text: str) -> Guess:
    """Return the format a text is most likely of; a tie is none."""
    # The log of a job may begin with pages of something else and end with what it was run for.
    ends = [text[:HEAD]] if len(text) <= HEAD else [text[:HEAD], text[-HEAD:]]
    # Of a text that lost its capitals, most have headings that were capitals alone.
    ends += [part.upper() for part in ends if part.islower()]
    scores = {name: max(map(form.likely, ends)) for name, form in formats().items()}
    ranked = sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])
    if not ranked or scores[ranked[0]] < LEAST:
        return Guess(None, 0.0, ranked)
    if len(ranked) > 1 and scores[ranked[1]] == scores[ranked[0]]:
        return Guess(None, scores[ranked[0]], ranked)
    return Guess(formats()[ranked[0]], scores[ranked[0]], ranked[1:])
