"""All formats by name, and which of them a text is of."""

from __future__ import annotations

import functools
import importlib
from typing import NamedTuple

from fabtui_probes.formats import catalogue as of_nodes
from fabtui_probes.formats.base import Format

#: The modules of `fabtui.reading.formats`, in the order users see.
_OURS = (
    "nccl_tests",
    "nvbandwidth",
    "cuda_p2p",
    "osu",
    "perftest",
    "iperf3",
    "all_reduce_bench",
    "ping",
    "ping_csv",
    "p2p_runs",
    "nccl_log",
    "torch_log",
    "megatron",
    "slurm",
    "scontrol",
    "slurmd_log",
    "limits",
    "recorded",
)
#: How much of a text, at its beginning and at its end, tells what it is.
HEAD = 64 * 1024
#: Less sure than this is not sure at all.
LEAST = 0.3
UNKNOWN = "unknown"


class Guess(NamedTuple):
    """What a text is taken for.

    Attributes:
        format: The format, or None where nothing fits, or two fit as well.
        sure: How sure, from 0 to 1.
        others: The names of what else it may be, the likeliest first.
    """

    format: Format | None
    sure: float
    others: list[str]


@functools.cache
def formats() -> dict[str, Format]:
    """Return all formats by name."""
    found: dict[str, Format] = {}
    for module in _OURS:
        for form in importlib.import_module(f"fabtui.reading.formats.{module}").FORMATS:
            found[form.name] = form
    # Of a tool that both know, ours reads more of what people keep in files.
    for name, form in of_nodes.formats().items():
        found.setdefault(name, form)
    return found


def recognise(text: str) -> Guess:
    """Return the format a text is most likely of; a tie is none."""
    # The log of a job may begin with pages of something else and end with what it was run for.
    ends = [text[:HEAD]] if len(text) <= HEAD else [text[:HEAD], text[-HEAD:]]
    scores = {name: max(map(form.likely, ends)) for name, form in formats().items()}
    ranked = sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])
    if not ranked or scores[ranked[0]] < LEAST:
        return Guess(None, 0.0, ranked)
    if len(ranked) > 1 and scores[ranked[1]] == scores[ranked[0]]:
        return Guess(None, scores[ranked[0]], ranked)
    return Guess(formats()[ranked[0]], scores[ranked[0]], ranked[1:])
