"""The training log of Megatron-LM and its forks: a line an iteration, how long it took and how the loss goes."""

from __future__ import annotations

import re
import statistics
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines

_LINE = re.compile(r"\biteration\s+(\d{1,12})/\s*(\d{1,12})(?= |$)\s*\|(.*)$")
_FIELD = re.compile(r"\s*([^:|]{1,60}?)\s*:\s*([^|]{0,60}?)\s*(?=\||$)")
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)\]")
_ELAPSED = re.compile(r"^elapsed time per iteration \((ms|s)\)$")
_NAMES = {
    "consumed samples": "consumed_samples", "consumed tokens": "consumed_tokens", "learning rate": "learning_rate",
    "global batch size": "global_batch_size", "lm loss": "loss", "loss": "loss", "lm loss value": "loss",
    "loss scale": "loss_scale", "grad norm": "grad_norm", "num zeros": "num_zeros", "params norm": "params_norm",
    "number of skipped iterations": "skipped", "number of nan iterations": "nan",
    "samples per second": "samples_per_second", "tokens per gpu per second (tgs)": "tokens_per_gpu_per_second",
    "TFLOPs": "tflops", "throughput per GPU (TFLOP/s/GPU)": "tflops",
    "throughput (token/sec/GPU)": "tokens_per_gpu_per_second",
}  # fmt: skip
_WHOLE = frozenset({"consumed_samples", "consumed_tokens", "global_batch_size", "skipped", "nan"})
#: An iteration that takes this many times the median stands out.
_SLOW = 1.5


def _iteration(found: re.Match[str], notes: Notes, line: str) -> dict[str, Any]:
    names = ("elapsed", "loss", "grad_norm", "skipped")
    row: dict[str, Any] = {"iteration": int(found[1]), **dict.fromkeys(names)}
    fields = _FIELD.findall(found[3])
    if not found[3].rstrip().endswith("|"):
        # A field that is not closed by a bar may have lost its end: its number is not to be trusted.
        notes.warn(f"iteration {found[1]}: the line is cut off")
        notes.puzzled(line)
        fields = fields[:-1]
    for name, text in fields:
        value = number(text)
        if elapsed := _ELAPSED.match(name):
            row["elapsed"] = None if value is None else round(value / (1 if elapsed[1] == "s" else 1000), 6)
            row["elapsed_unit"] = elapsed[1]
        elif name in _NAMES:
            key = _NAMES[name]
            row[key] = int(value) if value is not None and key in _WHOLE else value
            if value is None and text.lower() in ("nan", "inf", "-inf"):
                notes.warn(f"iteration {found[1]}: {name} is {text}")
    return row


def parse(text: str) -> Reading:
    """Return ``total`` iterations, ``iterations`` and ``elapsed_median``.

    An iteration has ``elapsed`` in seconds (``elapsed_printed_in`` is the unit in the text), ``grad_norm``, ``skipped``
    and the other values of its line. ``loss`` is None if the step was skipped or the line has none.
    """
    notes = Notes()
    rows: list[dict[str, Any]] = []
    total = None
    for line in plain_lines(text):
        found = _LINE.search(line)
        if found is None:
            continue
        total = int(found[2])
        row = _iteration(found, notes, line)
        if stamp := _STAMP.search(line[: found.start()]):
            row["time"] = stamp[1]
        rows.append(row)
    units = {unit for row in rows if (unit := row.pop("elapsed_unit", None))}
    times = [row["elapsed"] for row in rows if row["elapsed"] is not None]
    middle = round(statistics.median(times), 6) if times else None
    for row in rows:
        if middle and len(times) >= 5 and (row["elapsed"] or 0) > _SLOW * middle:
            notes.warn(f"iteration {row['iteration']} took {row['elapsed']:g} s, the median is {middle:g} s")
    if not rows:
        notes.warn("no iteration")
    nans = sum(row.get("nan") or 0 for row in rows)
    if nans:
        notes.warn(f"{nans} iterations with NaN")
    printed_in = " and ".join(sorted(units)) or None
    values = {"total": total, "elapsed_median": middle, "elapsed_printed_in": printed_in, "iterations": rows}
    return notes.reading(values)


_LIKELY = first_of(
    (0.97, r"\biteration\s+\d+/\s*\d+ \| consumed samples"),
    (0.8, r"\biteration\s+\d+/\s*\d+ \|.*elapsed time per iteration"),
)
_TITLE = "training log of Megatron-LM and its forks: time and loss of each iteration"
_UNITS = {
    **{"elapsed": "s", "elapsed_median": "s", "tflops": "TFLOP/s"},
    **{"samples_per_second": "1/s", "tokens_per_gpu_per_second": "1/s"},
}
FORMATS = [Format("megatron-log", _TITLE, _LIKELY, parse, units=_UNITS)]
