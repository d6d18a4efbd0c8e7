"""CSV snapshot as a DataFrame."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("this needs pandas: pip install 'fabtui[pandas]'", name=error.name) from None

from fabtui.errors import InputError
from fabtui.export.csv import ARM_MARK, COLUMNS, INTEGERS, NUMBERS, unescaped
from fabtui.model.layers import Layer, all_layers
from fabtui.model.measurement import SEVERITY

_SEVERITIES = {str(verdict): rank for rank, verdict in enumerate(SEVERITY)}


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

        Of several rows of a pair the largest message is used, and of several addresses the worst value; NaN where there
        is none. Groups (``all``, a rail) are left out.

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
    """Return the snapshot of a CSV file that fabtui wrote; InputError if it cannot be read or is none."""
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
