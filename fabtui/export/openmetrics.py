"""Session as metrics for the textfile collector of Prometheus' node_exporter.

The collector (node_exporter, ``collector/textfile.go``) reads files whose names end in ``.prom``, in the text format
0.0.4. It refuses a whole file that has a timestamp, and reports an error at each scrape if two files hold the same
series. Units are base units: bytes, seconds, ratios. The text is valid as OpenMetrics, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fabtui.atomic_write import write_text
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.export.collectives_table import table_rows
from fabtui.export.csv import untested_pairs
from fabtui.export.formats import Exposition
from fabtui.model.layers import Layer, all_layers, pair_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: Mode of the file: node_exporter runs as a user of its own.
MODE = 0o644
#: Maximum number of findings with a series of their own; `fabtui_findings` counts all.
MOST_FINDINGS = 256
#: Maximum length of the value of a label.
_LONGEST = 100
#: Name of a quantity and its base unit, and the factor to that unit, by the unit of the measurement.
_BASE = {
    "GB/s": ("bandwidth_bytes_per_second", 1e9),
    "us": ("latency_seconds", 1e-6),
    "ms": ("latency_seconds", 1e-3),
    "B": ("packet_bytes", 1.0),
    "%": ("loss_ratio", 1e-2),
}
#: Minimum, median, maximum.
_QUANTILES = (0, 0.5, 1)
_WHAT = {
    "bandwidth_bytes_per_second": "Bandwidth in one direction",
    "latency_seconds": "Half a round trip (layer latency), else a round trip or connect time",
    "packet_bytes": "Largest packet that passes unfragmented",
    "loss_ratio": "Share of packets that are lost",
}

#: Maximum size (bytes) of an earlier file whose values are kept.
_LARGEST = 64 << 20
_OURS = "# HELP fabtui_"
#: At the start of a line: a label may hold this text.
_OF_ROUNDS = f"\n{_OURS}watch_"
_END = "# EOF\n"

Labels = dict[str, object]


class MetricSample(NamedTuple):
    """A series and its value; ``part`` is added to the name of the metric, as of a summary."""

    labels: Labels
    value: float
    part: str = ""


class Family(NamedTuple):
    """A metric with its series."""

    name: str
    help: str
    samples: list[MetricSample]
    type: str = "gauge"


def metrics_text(found: Diagnosis, contents: Exposition) -> str:
    return families_text(families(found, contents.pairs), contents)


def families_text(families: Iterable[Family], contents: Exposition) -> str:
    """Return metrics as text, with the labels of the user on every series; metrics without series are left out."""
    lines: list[str] = []
    for name, help_, samples, kind in families:
        if samples:
            lines += [f"# HELP fabtui_{name} {help_}", f"# TYPE fabtui_{name} {kind}"]
        series: dict[str, float] = {}
        for labels, value, part in samples:
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in (*labels.items(), *contents.labels))
            # Cleaned names may be equal, but no two series.
            series.setdefault(f"fabtui_{name}{part}{f'{{{inner}}}' if inner else ''}", value)
        lines += [f"{one} {value if isinstance(value, int) else float(value)!r}" for one, value in series.items()]
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def families(found: Diagnosis, pairs: bool = False) -> Iterator[Family]:
    """Yield the metrics of a session; ``pairs``: whether each pair has series of its own."""
    model, tally, listed = found.model, found.tally, found.all_findings
    library = next((m.how.partition(",")[0] for m in model.measurements() if not m.layer.spec.by_address), "")
    about = MetricSample({"version": model.software, "engine": library}, 1)
    yield Family("info", "Version of fabtui and library of the ranks.", [about])
    for name, what, seconds in (("start_timestamp", "Start", model.started), ("timestamp", "End", model.now)):
        help_ = f"{what} of the run that these values come from."
        yield Family(f"run_{name}_seconds", help_, [MetricSample({}, seconds)])
    code = "Exit code of the run: 0 ok, 1 slow or failed, 3 not tested."
    yield Family("run_exit_code", code, [MetricSample({}, found.code)])
    yield Family("pairs", "Number of pairs of a layer by verdict.", _verdicts(model, tally))
    yield from _classes(model)
    busbw = "Bus bandwidth of a collective by group and message size."
    yield Family("collective_busbw_bytes_per_second", busbw, list(_collectives(model, pairs)))
    states = [MetricSample({"node": record.name, "state": record.state}, 1) for record in model.nodes.values()]
    yield Family("node_state", "State of the connection to a node; 1 for the current one.", states)
    severities = Counter(one.severity for one in listed)
    counts = [MetricSample({"severity": severity}, severities[severity]) for severity in Severity]
    yield Family("findings", "Number of findings by severity.", counts)
    yield Family("finding", f"Findings by rule and subject, at most {MOST_FINDINGS}.", _findings(listed))
    yield Family("endpoint_share_bad", "Share of the tested pairs of an endpoint that are bad.", _shares(tally, model))
    if pairs:
        yield from _pairs(model)


def _verdicts(model: Model, tally: Tally) -> list[MetricSample]:
    """Return the number of pairs of each layer with results, by verdict: zero where none has it."""
    found: list[MetricSample] = []
    for layer in all_layers():
        known = tally.layers.get(layer)
        counts = Counter(model.verdicts_in(layer) if known is None else known)
        if layer is Layer.P2P:
            counts[Verdict.UNTESTED] += sum(1 for _ in untested_pairs(model))
        if any(counts.values()):
            found += [MetricSample({"layer": layer, "verdict": verdict}, counts[verdict]) for verdict in Verdict]
    return found


def _classes(model: Model) -> Iterator[Family]:
    found: dict[str, dict[tuple[Layer, str, int | None], list[float]]] = {}
    largest: dict[Layer, int] = {}
    for m in model.measurements():
        if m.layer.spec.collective is None and m.verdict is Verdict.OK and (base := _base_value(m)) is not None:
            size = m.asked_bytes
            if not m.layer.spec.sizes and size is not None:
                # Slow paths have sizes of their own.
                largest[m.layer], size = max(size, largest.get(m.layer, 0)), None
            found.setdefault(base[0], {}).setdefault((m.layer, str(model.key_of(m).kind), size), []).append(base[1])
    for name in _WHAT:
        samples: list[MetricSample] = []
        for (layer, kind, size), values in found.get(name, {}).items():
            labels: Labels = {"layer": layer, "class": kind, **_size(size or largest.get(layer))}
            amounts = np.quantile(values, _QUANTILES).tolist()
            samples += [MetricSample({**labels, "quantile": q}, v) for q, v in zip(_QUANTILES, amounts, strict=True)]
            samples += [MetricSample(labels, sum(values), "_sum"), MetricSample(labels, len(values), "_count")]
        yield Family(f"class_{name}", f"{_WHAT[name]}, of passed tests of a class.", samples, "summary")


def _base_value(m: Measurement) -> tuple[str, float] | None:
    if m.value is None or (base := _BASE.get(m.unit)) is None:
        return None
    return base[0], m.value * base[1]


def _size(size: int | None) -> Labels:
    return {} if size is None else {"bytes": size}


def _collectives(model: Model, pairs: bool) -> Iterator[MetricSample]:
    for row in table_rows(model):
        between = row.group not in model.nodes and "+" in row.group
        if row.arm is None and row.busbw is not None and (pairs or not between):
            yield MetricSample({"kind": row.kind, "group": row.group, **_size(row.bytes)}, row.busbw * 1e9)


def _findings(found: list[Finding]) -> list[MetricSample]:
    names = ("kind", "severity", "component", "subject")
    shown = ((one.rule.name, one.severity, one.subject.kind, _limited(one.subject.name)) for one in found)
    counts = Counter(islice(shown, MOST_FINDINGS))
    return [MetricSample(dict(zip(names, values, strict=True)), number) for values, number in counts.items()]


def _shares(tally: Tally, model: Model) -> list[MetricSample]:
    if tally.table is None:
        return []
    ends = np.concatenate([tally.table.source, tally.table.target])
    tested = np.bincount(ends, minlength=len(model.endpoints)).tolist()
    bad = Counter(end for pair in tally.bad for end in pair)
    names = [str(end) for end in model.endpoints]
    return [MetricSample({"endpoint": name}, bad[name] / of) for name, of in zip(names, tested, strict=True) if of]


def _pairs(model: Model) -> Iterator[Family]:
    found: dict[str, list[MetricSample]] = {}
    verdicts: dict[tuple[str, str, str], Labels] = {}
    for m in model.measurements():
        if m.layer in pair_layers():
            labels = {"layer": m.layer, "src": m.src, "dst": m.dst}
            verdict, base = model.verdict(m), _base_value(m)
            if verdict is not Verdict.OK and model.latest(m.layer, m.src, m.dst) == m:
                verdicts[m.layer, m.src, m.dst] = {**labels, "verdict": verdict}
            if base is not None and m.verdict is Verdict.OK:
                sized = {**labels, "class": model.key_of(m).kind, **_size(m.bytes)}
                found.setdefault(base[0], []).append(MetricSample(sized, base[1]))
    for name in _WHAT:
        yield Family(f"pair_{name}", f"{_WHAT[name]}, from one endpoint to another.", found.get(name, []))
    bad = [MetricSample(labels, 1) for labels in verdicts.values()]
    yield Family("pair_not_ok", "Pairs whose verdict is not ok.", bad)


def _limited(text: object) -> str:
    return one_line(str(text), _LONGEST)


def _escaped(text: object) -> str:
    """Return the value of a label: one line without control characters, escaped as the text format demands."""
    return _limited(text).replace("\\", "\\\\").replace('"', '\\"')


class RoundState(StrEnum):
    """Outcome of a round."""

    COMPLETE = "complete"
    OVER_BUDGET = "over-budget"
    NOTHING_TESTED = "nothing-tested"
    ERROR = "error"


class WatchRound(NamedTuple):
    """A round that has ended: its outcome, and its start and end in seconds since the epoch."""

    state: RoundState
    began: float
    ended: float


def write_round(found: WatchRound, session: Diagnosis | None, path: Path, contents: Exposition) -> None:
    """Write the metrics of a round, whole or not at all (OSError); without a session the file keeps its values."""
    values = _kept(path) if session is None else families_text(families(session, contents.pairs), contents)
    took = found.ended - found.began
    states = [MetricSample({"state": state}, int(state is found.state)) for state in RoundState]
    own = [
        Family("watch_round_timestamp_seconds", "End of the latest round.", [MetricSample({}, found.ended)]),
        Family("watch_round_duration_seconds", "Duration of the latest round.", [MetricSample({}, took)]),
        Family("watch_round_state", "Outcome of the latest round; 1 for the actual one.", states),
    ]
    write_text(path, values.removesuffix(_END) + families_text(own, contents), MODE)


def _kept(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode()
    except (OSError, UnicodeDecodeError):
        return ""
    # A file that is cut, or somebody else's, holds nothing of use.
    if not text.startswith(_OURS) or not text.endswith(_END):
        return ""
    values = f"\n{text.removesuffix(_END)}".partition(_OF_ROUNDS)[0].strip("\n")
    return f"{values}\n" if values else ""
