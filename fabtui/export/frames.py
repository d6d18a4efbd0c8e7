"""Sessions and CSV snapshots as DataFrames."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("this needs pandas: pip install 'fabtui[pandas]'", name=error.name) from None

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.diagnosis.finding import Severity
from fabtui.errors import InputError
from fabtui.export.collectives_table import CollectiveRow, table_rows
from fabtui.export.csv import ARM_MARK, COLUMNS, INTEGERS, NUMBERS, rows
from fabtui.export.formats import unescaped
from fabtui.export.preflight import fact_rows
from fabtui.model.endpoints import PairClass
from fabtui.model.events import NodeState
from fabtui.model.layers import COLLECTIVES, Layer, all_layers
from fabtui.model.measurement import SEVERITY, UNITS, Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json as finding_json
from fabtui.sanitize import clean, one_line

Row = dict[str, Any]
_SEVERITIES = {str(verdict): rank for rank, verdict in enumerate(SEVERITY)}
#: Types of columns that mean the same in every frame; others are text, which is None if it is unknown.
_VERDICT = pd.CategoricalDtype([str(verdict) for verdict in SEVERITY], ordered=True)
_TIME = pd.DatetimeTZDtype("ms", "UTC")
_TYPES: dict[str, Any] = {
    **dict.fromkeys((*INTEGERS, "ranks", "wrong", "pairs", "endpoints"), "Int64"),
    **dict.fromkeys(("time_us", "time_min_us", "algbw", "algbw_max", "busbw"), "float64"),
    **dict.fromkeys(("usual", "number", "share", "confidence"), "float64"),
    **dict.fromkeys(("kind", "fact", "id", "rule", "component"), "category"),
    **{"verdict": _VERDICT, "time": _TIME, "since": _TIME, "differs": "bool"},
}


def _types(names: Iterable[str], **own: Any) -> dict[str, Any]:
    return {name: own.get(name, _TYPES.get(name, "object")) for name in names}


#: The columns of the CSV: arms in one of their own, with usual values and methods, the time and the texts last.
_OWN = [name for name in COLUMNS if name not in ("time", "layer", "error")]
_AFTER = _OWN.index("bytes") + 1
_PAIRS = _types(
    ("layer", "arm", *_OWN[:_AFTER], "usual", *_OWN[_AFTER:], "time", "how", "error"),
    **{"class": pd.CategoricalDtype([str(kind) for kind in PairClass])},
    layer=pd.CategoricalDtype([str(layer) for layer in all_layers() if not layer.spec.derived]),
    unit=pd.CategoricalDtype(sorted(UNITS - {""})),
    value="float64",
)
_COLLECTIVES = _types(CollectiveRow._fields)
_FACTS = _types(("node", "hardware", "fact", "title", "value", "number", "unit", "differs"), unit="category")
_FINDINGS = _types(
    (
        *("id", "rule", "severity", "component", "subject", "title", "nodes", "pairs", "share", "confidence"),
        *("evidence", "next", "note"),
    ),
    severity=pd.CategoricalDtype([str(one) for one in reversed(Severity)], ordered=True),
)
_NODES = _types(
    ("node", "state", "endpoints", "kind", "hardware", "since", "text", "note", "hint"),
    state=pd.CategoricalDtype([str(state) for state in NodeState]),
)
#: Units of columns of numbers; that of ``value`` and ``usual`` is in the column ``unit``.
COLUMN_UNITS = {
    **{"bytes": "B", "time_us": "us", "time_min_us": "us", "algbw": "GB/s", "algbw_max": "GB/s", "busbw": "GB/s"},
    **{"share": "1", "confidence": "1"},
}


class SnapshotFrame(pd.DataFrame):
    """Snapshot as a DataFrame: the columns of the CSV, one row per measurement.

    ``time`` is a UTC timestamp, ``value`` a float, ``src_index``, ``dst_index``, ``bytes`` and ``attempts`` are
    ``Int64``, the rest is text. Unknown values are missing (NaN, <NA> or None), never 0.
    """

    @property
    def _constructor(self) -> type[SnapshotFrame]:
        return SnapshotFrame

    def pivot_layer(
        self,
        layer: str,
        bytes: int | None = None,  # noqa: A002 - as the column
        of: Literal["value", "verdict"] = "value",
    ) -> pd.DataFrame:
        """Return a layer as a matrix of sources (rows) and destinations (columns), both in the order of the grid.

        The largest message counts if a pair has several rows, and the worst value of several addresses; NaN if there
        is no value. Groups (``all``, a rail) are left out.

        Args:
            layer: ``p2p``, ``world``, ``latency``, ``busbw`` or another collective, a layer of addresses (``ping``,
                ``mtu``, ``udp``, ``tcp``) or the name of a tool (``iperf3``); of a further arm of an A/B comparison
                with the arm behind it: ``p2p@NCCL_P2P_DISABLE=1``. InputError if there is none.
            bytes: Only messages of this size (InputError if there are none). A pair so slow that it was tested with
                less has no value then.
            of: What the cells hold: values, or verdicts (None where there is none).
        """
        if layer.partition(ARM_MARK)[0] not in all_layers():
            raise InputError(f"there is no layer {layer!r}; there are {', '.join(all_layers())}")
        mine = self[self["layer"] == layer]
        if ARM_MARK in layer and mine.empty:
            arms = sorted({name for name in self["layer"] if name and ARM_MARK in name})
            raise InputError(f"nothing was measured in {layer!r}; there are {', '.join(arms) or 'no further arms'}")
        between = mine["src_node"].notna() & mine["dst_node"].notna()
        chosen = pd.DataFrame(mine[between])
        wanted = chosen if bytes is None else pd.DataFrame(chosen[(chosen["bytes"] == bytes).fillna(False)])
        if bytes is not None and wanted.empty:
            sizes = ", ".join(str(size) for size in sorted(set(chosen["bytes"].dropna())))
            raise InputError(f"no message of {bytes} bytes in {layer}; there are {sizes or 'none'}")
        order = self._order(chosen)
        spec = Layer(layer.partition(ARM_MARK)[0]).spec
        by = of if spec.by_address else "bytes"
        ascending = not spec.by_address or spec.less_is_better or of == "verdict"
        key = (lambda column: column.map(_SEVERITIES)) if by == "verdict" else None
        worst_last = wanted.sort_values(by, ascending=ascending, na_position="first", kind="stable", key=key)
        latest = worst_last.drop_duplicates(["src", "dst"], keep="last")
        table = latest.pivot(index="src", columns="dst", values=of).reindex(index=order, columns=order)
        return pd.DataFrame(table.astype("float64" if of == "value" else "object"))

    def _order(self, chosen: pd.DataFrame) -> list[str]:
        """Return the names in a layer's rows: by node as the nodes come in the snapshot, then by index."""
        nodes = {name: number for number, name in enumerate(dict.fromkeys([*self["src_node"], *self["dst_node"]]))}
        places: dict[str, tuple[int, int]] = {}
        for side in ("src", "dst"):
            for name, node, index in zip(chosen[side], chosen[f"{side}_node"], chosen[f"{side}_index"], strict=True):
                places[name] = (nodes[node], -1 if pd.isna(index) else int(index))
        return sorted(places, key=places.__getitem__)


def load_snapshot(path: str | PathLike[str]) -> SnapshotFrame:
    """Return the snapshot of a CSV file that fabtui wrote; InputError if it cannot be read or is not a snapshot."""
    shown = str(path)
    try:
        # Text is text: a node may well be called "nan" or "NA".
        text: Any = pd.read_csv(Path(path), dtype=str, keep_default_na=False, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {shown}: {error.strerror or error}") from None
    except (ValueError, pd.errors.ParserError) as error:
        raise InputError(f"{shown}: not a CSV snapshot ({error})") from None
    if list(text.columns) != list(COLUMNS):
        missing = [name for name in COLUMNS if name not in text.columns]
        why = f"the column {missing[0]!r} is missing" if missing else "its columns are not those of a snapshot"
        raise InputError(f"{shown}: not a snapshot of fabtui: {why}")
    if not isinstance(text.index, pd.RangeIndex):
        raise InputError(f"{shown}: not a snapshot of fabtui: its rows have more cells than it has columns")
    try:
        return SnapshotFrame({name: _column(name, text[name]) for name in COLUMNS})
    except (ValueError, TypeError) as error:
        raise InputError(f"{shown}: not a snapshot of fabtui ({error})") from None


def _column(name: str, text: pd.Series[str]) -> pd.Series[Any]:
    if name == "time":
        return pd.to_datetime(text.where(text != "", None), utc=True, format="ISO8601")
    if name in NUMBERS:
        numbers = pd.to_numeric(text.where(text != "", None))
        return numbers.astype("Int64" if name in INTEGERS else "float64")
    return pd.Series([unescaped(cell) if cell else None for cell in text], index=text.index, dtype=object)


class Frames:
    """Sessions as DataFrames, each made on first use.

    Status and value are apart: a pair that failed has a verdict and the value NaN, never 0. Texts from nodes are on one
    line and free of control characters. ``frame.attrs["units"]`` has the unit of each column of numbers.
    """

    def __init__(self, sessions: dict[str, Model], readings: list[dict[str, Any]]) -> None:
        self._sessions = sessions
        self._measured: dict[str, pd.DataFrame] = {}
        self._diagnosis = functools.cache(diagnose)
        self.readings = readings  #: Outputs that hold no pairs and no collectives, as `fabtui read --json` prints them.

    def __repr__(self) -> str:
        names = ", ".join(self._sessions)
        counts = f"{len(self.nodes)} nodes, {len(self.pairs)} pairs, {len(self.collectives)} collectives"
        return f"<fabtui.load: {names or 'no session'}; {counts}, {len(self.readings)} readings>"

    @property
    def sessions(self) -> list[str]:
        """Names of the sessions: those of their files."""
        return list(self._sessions)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per test of a pair of endpoints or addresses, and per pair that was not tested, with the reason.

        ``usual`` is the usual value of the class, in the same ``unit`` as ``value``.
        """
        parts = [self._measurements(name).assign(session=name) for name in self._sessions]
        frame = pd.concat(parts) if parts else _typed([], {"session": "object", **_PAIRS})
        frame = frame[~frame["layer"].isin(list(COLLECTIVES.values()))].reset_index(drop=True)
        return self._marked(pd.DataFrame(frame[["session", *_PAIRS]]))

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per collective, group, message size and arm; ``algbw`` and ``busbw`` in GB/s."""
        return self._frame(
            _COLLECTIVES, lambda model: ({**row._asdict(), "verdict": str(row.verdict)} for row in table_rows(model))
        )

    @cached_property
    def facts(self) -> pd.DataFrame:
        """One row per node and fact; ``number`` is NaN if ``value`` is not numeric, ``differs`` from other nodes."""
        return self._frame(_FACTS, lambda model: _facts(self._diagnosis(model)))

    @cached_property
    def findings(self) -> pd.DataFrame:
        """One row per finding, the worst first; ``nodes``, ``evidence`` and ``next`` are tuples of texts."""
        return self._frame(_FINDINGS, lambda model: _findings(self._diagnosis(model)))

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per node: the state of its connection, number and hardware of its endpoints."""
        return self._frame(_NODES, _nodes)

    def matrix(
        self,
        layer: str = "p2p",
        bytes: int | None = None,  # noqa: A002 - as the column
        *,
        of: Literal["value", "verdict"] = "value",
        session: str | None = None,
    ) -> pd.DataFrame:
        """Return a layer as a matrix of sources (rows) and destinations (columns), in the order of the grid.

        Args:
            layer: As in `SnapshotFrame.pivot_layer`.
            bytes: Only messages of this size; by default the largest of each pair.
            of: What the cells hold: values (NaN where there is none) or verdicts.
            session: Name of the session, if there are several.

        Raises:
            InputError: There is no such layer, size or session, or there are several sessions and none is named.
        """
        if session is None and len(self._sessions) != 1:
            raise InputError(f"there are {len(self._sessions)} sessions; name one: {', '.join(self._sessions)}")
        name = session or next(iter(self._sessions))
        if name not in self._sessions:
            raise InputError(f"there is no session {name!r}; there are {', '.join(self._sessions)}")
        frame = self._measurements(name).astype({"layer": "object", "verdict": "object"})
        arm = frame["arm"].notna()
        frame.loc[arm, "layer"] += ARM_MARK + frame.loc[arm, "arm"]
        table = SnapshotFrame(frame).pivot_layer(layer, bytes, of)
        if of == "value":
            table.attrs["unit"] = Layer(layer.partition(ARM_MARK)[0]).spec.unit
        return table

    def _measurements(self, session: str) -> pd.DataFrame:
        if session not in self._measured:
            model = self._sessions[session]
            self._measured[session] = _typed(_measurements(model), _PAIRS)
        return self._measured[session]

    def _frame(self, types: dict[str, Any], rows_of: Callable[[Model], Iterable[Row]]) -> pd.DataFrame:
        rows = ({"session": name, **row} for name, model in self._sessions.items() for row in rows_of(model))
        return self._marked(_typed(rows, {"session": "object", **types}))

    def _marked(self, frame: pd.DataFrame) -> pd.DataFrame:
        frame["session"] = frame["session"].astype(pd.CategoricalDtype(self.sessions))
        frame.attrs["units"] = {name: unit for name, unit in COLUMN_UNITS.items() if name in frame}
        return frame


def _typed(rows: Iterable[Row], types: dict[str, Any]) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {name: [] for name in types}
    for row in rows:
        for name, column in columns.items():
            column.append(row.get(name))
    return pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()}).astype(types)


def _measurements(model: Model) -> Iterator[Row]:
    """Yield the rows of the CSV: arms in a column of their own, with usual values and methods."""

    def more(m: Measurement) -> Row:
        texts = {name: one_line(getattr(m, name) or "") or None for name in ("arm", "how", "error")}
        return {**texts, "usual": model.usual(m), "time": _time(m.time)}

    for row in rows(model, more):
        yield {**row, "layer": row["layer"].partition(ARM_MARK)[0]}


def _time(seconds: float) -> pd.Timestamp | None:
    return pd.Timestamp(seconds, unit="s", tz="UTC").floor("ms") if seconds else None


def _facts(found: Diagnosis) -> Iterator[Row]:
    for row in fact_rows(found.preflight):
        value = row["value"]
        cells = {name: one_line(cell) or None if isinstance(cell, str) else cell for name, cell in row.items()}
        number = value if isinstance(value, (int, float)) else None
        yield {**cells, "number": number, "differs": row["verdict"] is not None}


def _findings(diagnosis: Diagnosis) -> Iterator[Row]:
    for finding in diagnosis.all_findings:
        value = finding_json(finding)
        row = {name: value[name] for name in ("id", "rule", "severity", "title", "share", "confidence")}
        row |= {"component": str(finding.subject.kind), "subject": one_line(finding.subject.name)}
        row |= {name: tuple(map(clean, value[name])) for name in ("nodes", "evidence", "next")}
        known = finding.acknowledged
        yield {**row, "pairs": len(finding.cells), "note": None if known is None else one_line(known.note)}


def _nodes(model: Model) -> Iterator[Row]:
    for record in model.nodes.values():
        ends = [end for end in model.table.of_node(record.name) if end.kind != "none"]
        texts = {name: getattr(record, name) for name in ("text", "note", "hint")}
        yield {
            **{"node": one_line(record.name), "state": str(record.state), "endpoints": len(ends)},
            **{"kind": ends[0].kind if ends else None, "hardware": one_line(ends[0].name) or None if ends else None},
            **{name: one_line(text) if text else None for name, text in texts.items()},
            "since": _time(record.since),
        }
