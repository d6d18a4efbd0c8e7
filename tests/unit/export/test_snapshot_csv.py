import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabtui
from fabtui.atomic_write import write_text
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.export.csv import COLUMNS, rows, write_csv
from fabtui.export.formats import escaped, unescaped, when
from fabtui.export.json import as_json, session_text
from fabtui.model.events import InventoryUpdate

Maker = Callable[[], Any]
NAMES = ["n10:0", "n10:1", "n9:0", "n9:1"]
HEADER = (
    "time,layer,src,dst,src_node,src_index,dst_node,dst_index,class,verdict,value,unit,bytes,transport,"
    "src_addr,dst_addr,attempts,error"
)


def whole(make_model: Maker) -> Any:
    """A session of two nodes with one failed, one timed-out and one slow pair; n10 comes before n9."""
    maker = make_model().start(["n10", "n9"]).endpoints({"n10": 2, "n9": 2}).pairs(list(reversed(NAMES)), 123456789.123)
    maker.measured("p2p", "n10:1", "n9:0", "failed", error="connect: refused", unit="GB/s", attempts=2)
    maker.measured("p2p", "n9:1", "n10:0", "timeout", error="no answer", unit="GB/s")
    maker.measured("latency", "n10:0", "n9:0", value=12.5, unit="us", bytes=8)
    for source, destination in (("10.0.0.1", "10.0.0.2"), ("10.1.0.1", "10.1.0.2")):
        maker.measured("ping", "n10", "n9", value=0.05, unit="ms", src_addr=source, dst_addr=destination)
    maker.measured(
        "ping", "n9", "n10", "failed", src_addr="10.0.0.2", dst_addr="10.0.0.1", error="100 % loss", unit="ms"
    )
    for size, value in ((1 << 16, 1.0), (1 << 20, 2.0)):
        maker.measured("busbw", "all", "all", value=value, unit="GB/s", bytes=size)
        maker.measured("busbw", "n10", "n9", value=value, unit="GB/s", bytes=size)
    return maker


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_columns_are_exactly_those(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    count = write_csv(whole(make_model).model(), path)
    lines = path.read_text().splitlines()
    assert lines[0] == HEADER == ",".join(COLUMNS)
    assert len(lines) == count + 1 == 12 + 1 + 3 + 4 + 1


def test_a_measurement_is_a_row_with_all_it_knows(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    write_csv(whole(make_model).model(), path)
    found = {(row["layer"], row["src"], row["dst"], row["bytes"]): row for row in read(path)}
    good = found["p2p", "n10:0", "n9:0", str(4 << 20)]
    assert good.pop("time").endswith("Z")
    assert good == {
        "layer": "p2p",
        "src": "n10:0",
        "dst": "n9:0",
        "src_node": "n10",
        "src_index": "0",
        "dst_node": "n9",
        "dst_index": "0",
        "class": "same-rail",
        "verdict": "ok",
        "value": "123456789.123",
        "unit": "GB/s",
        "bytes": str(4 << 20),
        "transport": "gloo/tcp",
        "src_addr": "",
        "dst_addr": "",
        "attempts": "1",
        "error": "",
    }
    failed = found["p2p", "n10:1", "n9:0", ""]
    assert (failed["verdict"], failed["value"], failed["error"], failed["attempts"]) == (
        "failed",
        "",
        "connect: refused",
        "2",
    )
    assert found["p2p", "n9:1", "n10:0", ""]["value"] == "", "a timeout is never a number"
    whole_row = found["busbw", "all", "all", str(1 << 20)]
    assert (whole_row["src_node"], whole_row["src_index"], whole_row["class"]) == ("", "", "all")
    ping = [row for row in read(path) if row["layer"] == "ping"]
    assert [(row["src"], row["src_node"], row["src_index"], row["class"]) for row in ping[:2]] == [
        ("n10", "n10", "", "node-pair")
    ] * 2


def test_a_slow_row_names_what_it_was_compared_with(make_model: Maker) -> None:
    names = ["n0:0", "n0:1", "n0:2"]
    maker = make_model().start(["n0"]).endpoints({"n0": 3}).pairs(names)
    maker.measured("p2p", "n0:0", "n0:1", value=0.02, unit="GB/s", made=True)
    maker.measured("ping", "n0", "n0", "slow", value=0.1, unit="ms", extra={"loss": 50.0})
    errors = {(row["layer"], row["src"], row["dst"]): row["error"] for row in rows(maker.model())}
    assert errors["p2p", "n0:0", "n0:1"] == "1.0 % of the usual 2 GB/s (made by the lab)"
    assert errors["ping", "n0", "n0"] == "50 % of packets are lost"
    assert errors["p2p", "n0:1", "n0:2"] is None


def test_times_are_utc(make_model: Maker) -> None:
    model = make_model().start(["a"]).endpoints({"a": 2}).model()
    assert when(0.0) is None
    assert when(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"
    assert rows(model) == []


def test_rows_are_in_the_order_of_the_grid(make_model: Maker) -> None:
    found = [(row["src"], row["dst"]) for row in rows(whole(make_model).model()) if row["layer"] == "p2p"]
    assert found == [(src, dst) for src in NAMES for dst in NAMES if src != dst]


def test_untested_pairs_have_a_row_with_the_reason(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1", "n2"]).endpoints({"n0": 2, "n1": 1, "n2": 0}).pairs(["n0:0", "n0:1"])
    maker.add("plan", layer="p2p", untested=[["n0:0", "n1:0", "n0:0 is in use"]])
    found = {(row["src"], row["dst"]): row for row in rows(maker.model()) if row["verdict"] == "untested"}
    assert found["n0:0", "n1:0"]["error"] == "n0:0 is in use"
    with_n2 = {pair for pair in found if "n2:-" in pair}
    assert with_n2 == {(a, b) for a, b in _pairs("n2:-", ["n0:0", "n0:1", "n1:0"])}
    row = found["n2:-", "n0:0"]
    assert (row["src_node"], row["src_index"], row["value"], row["error"]) == ("n2", None, None, "n2: refused")
    assert ("n1:0", "n0:0") not in found, "the reason is unknown, so there is no row"


def _pairs(one: str, others: list[str]) -> list[tuple[str, str]]:
    return [(one, other) for other in others] + [(other, one) for other in others]


def test_a_pair_that_was_not_wanted_is_not_untested(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1"], options={"probes": ["ping"]}).endpoints({"n0": 1, "n1": 0})
    assert rows(maker.model()) == []


def test_a_lost_node_keeps_what_was_measured_of_it(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 1, "n1": 2}).measured("p2p", "n0:0", "n1:0", value=1.0)
    maker.add("node", node="n1", state="lost", text="the link ended")
    found = {(row["src"], row["dst"]): row["verdict"] for row in rows(maker.model())}
    assert found["n0:0", "n1:0"] == "ok"
    assert found["n0:0", "n1:1"] == found["n1:0", "n0:0"] == "untested"


def test_there_and_back(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    model = whole(make_model).model()
    count = write_csv(model, path)
    frame = fabtui.load_snapshot(path)
    assert isinstance(frame, fabtui.SnapshotFrame)
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == count
    assert str(frame["time"].dtype).endswith("UTC]")
    assert frame["value"].dtype == "float64"
    assert str(frame["bytes"].dtype) == "Int64"
    for row, original in zip(frame.to_dict("records"), rows(model), strict=True):
        for name in COLUMNS:
            if name == "time":
                assert row[name] == pd.Timestamp(original[name])
            elif original[name] is None:
                assert pd.isna(row[name])
            else:
                assert row[name] == original[name]


def test_a_layer_is_a_matrix_in_the_order_of_the_grid(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    write_csv(whole(make_model).model(), path)
    frame = fabtui.load_snapshot(str(path))
    table = frame.pivot_layer("p2p")
    assert list(table.index) == list(table.columns) == NAMES
    assert table.loc["n10:0", "n9:1"] == 123456789.123
    assert table.dtypes.eq("float64").all()
    holes = {(src, dst) for src in NAMES for dst in NAMES if table.isna().loc[src, dst]}
    assert holes == {(name, name) for name in NAMES} | {("n10:1", "n9:0"), ("n9:1", "n10:0")}
    busbw = frame.pivot_layer("busbw")
    assert list(busbw.index) == ["n10", "n9"]
    assert busbw.loc["n10", "n9"] == 2.0, "the largest message counts"
    assert frame.pivot_layer("ping").loc["n10", "n9"] == 0.05
    assert frame.pivot_layer("world").empty
    with pytest.raises(InputError, match="no layer 'nope'"):
        frame.pivot_layer("nope")


ARM = "NCCL_P2P_DISABLE=1"


def swept(make_model: Maker) -> Any:
    """Two sizes of p2p and, in a further arm, a slower one; all_gather over a rail, a node and all."""
    maker = (
        make_model().start(["n10", "n9"]).endpoints({"n10": 1, "n9": 1}).add("plan", arms=["NCCL_P2P_DISABLE=0", ARM])
    )
    for src, dst in (("n10:0", "n9:0"), ("n9:0", "n10:0")):
        maker.measured("p2p", src, dst, value=9.0, unit="GB/s", bytes=256 << 20, extra={"both_ways": 8.5})
        maker.measured("p2p", src, dst, value=4.0, unit="GB/s", bytes=8 << 20)
        maker.measured("p2p", src, dst, value=1.0, unit="GB/s", bytes=8 << 20, transport="SHM/direct", arm=ARM)
        maker.measured("world", src, dst, value=7.0, unit="GB/s", bytes=256 << 20)
    maker.measured("p2p", "n9:0", "n10:0", "failed", error="x", unit="GB/s", bytes=256 << 20, attempts=2)
    for group in ("all", "n9", "rail0"):
        maker.measured("all_gather", group, group, value=3.0, unit="GB/s", bytes=1 << 20, extra={"algbw": 4.0})
    maker.add("plan", suspects=[["n9:0", "n10:0", "both ends pass with others"]])
    return maker


def test_sizes_and_arms_have_rows_of_their_own(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    write_csv(swept(make_model).model(), path)
    found = [(row["layer"], row["src"], row["bytes"], row["value"]) for row in read(path)]
    small, large = str(8 << 20), str(256 << 20)
    assert found == [
        ("p2p", "n10:0", small, "4.0"),
        ("p2p", "n10:0", large, "9.0"),
        ("p2p", "n9:0", small, "4.0"),
        ("p2p", "n9:0", large, ""),
        ("world", "n10:0", large, "7.0"),
        ("world", "n9:0", large, "7.0"),
        ("all_gather", "all", str(1 << 20), "3.0"),
        ("all_gather", "rail0", str(1 << 20), "3.0"),
        ("all_gather", "n9", str(1 << 20), "3.0"),
        (f"p2p@{ARM}", "n10:0", small, "1.0"),
        (f"p2p@{ARM}", "n9:0", small, "1.0"),
    ]


def test_a_matrix_is_of_one_size_and_one_arm(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    write_csv(swept(make_model).model(), path)
    frame = fabtui.load_snapshot(path)
    largest = frame.pivot_layer("p2p")
    assert largest.loc["n10:0", "n9:0"] == 9.0
    assert largest.isna().loc["n9:0", "n10:0"], "it failed at that size; other sizes do not count"
    assert frame.pivot_layer("p2p", bytes=8 << 20).loc["n9:0", "n10:0"] == 4.0
    assert frame.pivot_layer(f"p2p@{ARM}").loc["n9:0", "n10:0"] == 1.0
    assert frame.pivot_layer("world", bytes=256 << 20).loc["n9:0", "n10:0"] == 7.0
    gathered = frame.pivot_layer("all_gather")
    assert list(gathered.index) == ["n9"], "rails and the whole are not cells"
    with pytest.raises(InputError, match=f"no message of 5 bytes in p2p; there are {8 << 20}, {256 << 20}"):
        frame.pivot_layer("p2p", bytes=5)
    with pytest.raises(InputError, match=f"nothing was measured in 'p2p@X=1'; there are p2p@{ARM}"):
        frame.pivot_layer("p2p@X=1")
    with pytest.raises(InputError, match="no layer"):
        frame.pivot_layer(f"nope@{ARM}")


def test_the_json_has_suspects_arms_and_what_else_was_learnt(make_model: Maker) -> None:
    value = json.loads(json.dumps(as_json(diagnose(swept(make_model).model()))))
    assert value["comparison"] == ["NCCL_P2P_DISABLE=0", ARM]
    assert [(m["arm"], m["src"], m["transport"]) for m in value["arms"]] == [
        (ARM, "n10:0", "SHM/direct"),
        (ARM, "n9:0", "SHM/direct"),
    ]
    assert value["suspects"] == [{"src": "n9:0", "dst": "n10:0", "text": "both ends pass with others"}]
    (relayed,) = value["relayed"]
    assert (relayed["src"], relayed["dst"]) == ("n9:0", "n10:0")
    assert "passes in the world communicator" in relayed["text"]
    assert any(m.get("extra") == {"both_ways": 8.5} for m in value["measurements"])
    assert not any("arm" in m for m in value["measurements"])


def test_the_json_has_what_counters_moved_by(make_model: Maker) -> None:
    maker = make_model().start(["a"]).endpoints({"a": 2}).add("running", pairs=[["a:0", "a:1"]])
    began = maker.events[-1].time
    maker.add(
        "measured", measurements=[{"layer": "p2p", "src": "a:0", "dst": "a:1", "verdict": "ok", "time": began + 1}]
    )
    moved = {"hca": {"mlx5_0/1": {"symbol_error": 3}}, "errors": [["hca", "mlx5_0/1", "symbol_error"]]}
    maker.add("counters", node="a", since=began - 1, until=began + 2, deltas=moved)
    (measurement,) = as_json(diagnose(maker.model()))["measurements"]
    assert measurement["counters"] == {"a": moved}


def test_part_of_a_snapshot_pivots_as_well(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    write_csv(whole(make_model).model(), path)
    part = fabtui.load_snapshot(path).query("src_node == 'n9' and layer == 'p2p'")
    assert isinstance(part, fabtui.SnapshotFrame)
    assert list(part.pivot_layer("p2p").index) == ["n9:0", "n9:1", "n10:0", "n10:1"]


def test_an_empty_session_makes_a_file_that_loads(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    assert write_csv(make_model().start(["a"]).model(), path) == 0
    assert path.read_text() == HEADER + "\n"
    frame = fabtui.load_snapshot(path)
    assert len(frame) == 0
    assert frame.pivot_layer("p2p").empty


EVIL = [
    *("=HYPERLINK(0)", "+1", "-1", "@x", "'quoted", '"double", and, commas', "nan", "NA", "null"),
    *("1e5", "\u00fcml\u00e4ut"),
]


@pytest.mark.parametrize("text", EVIL)
def test_hostile_text_survives_and_runs_nowhere(make_model: Maker, tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.csv"
    maker = make_model().start(["a"]).endpoints({"a": 2})
    maker.measured("p2p", "a:0", "a:1", "failed", value=-1.5, error=text, transport=text, src_addr=text)
    write_csv(maker.model(), path)
    (row,) = read(path)
    for name in ("error", "transport", "src_addr"):
        assert row[name][:1] not in tuple("=+-@\t\r")
    assert row["value"] == "-1.5", "a number stays one"
    frame = fabtui.load_snapshot(path)
    assert frame["error"][0] == frame["transport"][0] == text


def test_control_characters_do_not_get_into_the_file(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    maker = make_model().start(["a"]).endpoints({"a": 2})
    hostile = "\x1b]0;x\x07two\nlines\r\n=1\u202e\x9b\x00"
    maker.measured("p2p", "a:0", "a:1", "failed", error=hostile, transport="\x1b[1m")
    write_csv(maker.model(), path)
    data = path.read_text()
    assert len(data.splitlines()) == 2
    assert not set(data) & set("\x1b\x07\r\u202e\x9b\x00")


def test_a_node_named_nan_is_a_node(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    maker = make_model().start(["nan", "NA"]).endpoints({"nan": 1, "NA": 1}).pairs(["nan:0", "NA:0"])
    write_csv(maker.model(), path)
    assert list(fabtui.load_snapshot(path).pivot_layer("p2p").index) == ["nan:0", "NA:0"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a CSV snapshot"),
        (b"a,b\n1,2\n", "column 'time' is missing"),
        (HEADER.encode() + b",more\n", "not those of a snapshot"),
        (b"\xff\xfe\x00\x01", "not a CSV snapshot"),
        (HEADER.encode() + b"\n" + b"x" + b"," * 17 + b"\n", "not a snapshot"),
        (HEADER.encode() + b"\n" + b"," * 10 + b"abc" + b"," * 7 + b"\n", "not a snapshot"),
        (HEADER.encode() + b"\n" + b"," * 40 + b"\n", "not a"),
    ],
)
def test_what_is_no_snapshot_is_reported(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        fabtui.load_snapshot(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        fabtui.load_snapshot(tmp_path / "nowhere.csv")


def test_the_json_holds_everything(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    maker = whole(make_model)
    maker.events.append(InventoryUpdate("n9", {"host": "n9", "load": float("nan")}, time=maker.now))
    maker.add("log", level="info", text="\x1b[2Jcleared")
    write_text(path, session_text(diagnose(maker.model())))
    value = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert value == json.loads(json.dumps(as_json(diagnose(maker.model()))))
    assert [node["name"] for node in value["nodes"]] == ["n10", "n9"]
    assert value["nodes"][1]["inventory"] == {"host": "n9", "load": None}
    assert [end["id"] for end in value["endpoints"]] == NAMES
    assert len(value["measurements"]) == 20
    failed = next(m for m in value["measurements"] if m["verdict"] == "failed" and m["layer"] == "p2p")
    assert (failed["class"], failed["error"], "value" in failed) == ("cross-rail", "connect: refused", False)
    assert value["exit"] == 1
    assert "\x1b" not in path.read_text()
    assert "[2Jcleared" in [entry["text"] for entry in value["log"]]


def test_of_several_addresses_a_matrix_has_the_worst(make_model: Maker, tmp_path: Path) -> None:
    maker = make_model().start(["a", "b"], options={"probes": ["ping"]}).endpoints({"a": 1, "b": 1})
    for rail, mtu, trip, rate in ((0, 9000.0, 0.1, 40.0), (1, 1500.0, 0.4, 3.0), (2, 9000.0, 0.2, 41.0)):
        ends = {"src_addr": f"10.{rail}.0.1", "dst_addr": f"10.{rail}.0.2"}
        maker.measured("mtu", "a", "b", value=mtu, unit="B", **ends)
        maker.measured("ping", "a", "b", value=trip, unit="ms", **ends)
        maker.measured("iperf3", "a", "b", value=rate, unit="GB/s", **ends)
    path = tmp_path / "s.csv"
    write_csv(maker.model(), path)
    frame = fabtui.load_snapshot(path)
    assert [frame.pivot_layer(layer).loc["a", "b"] for layer in ("mtu", "ping", "iperf3")] == [1500.0, 0.4, 3.0]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "'=1", "'x"])
def test_what_a_spreadsheet_would_run_is_marked(text: str) -> None:
    assert escaped(text) == "'" + text


@pytest.mark.parametrize("text", ["", "n060:3", "NET/IB/5", "a=b", "it's", "0.0.0.0"])
def test_plain_text_stays(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.slow
@given(st.text())
def test_any_text_of_a_cell_is_restored(text: str) -> None:
    assert unescaped(escaped(text)) == text
    assert escaped(text)[:1] not in tuple("=+-@\t\r")
