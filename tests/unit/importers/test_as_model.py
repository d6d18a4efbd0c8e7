"""Measurements of a model from read files: the same numbers at the right pairs, nothing invented."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fabtui import load_snapshot
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.export.collectives_table import group_sweep
from fabtui.export.csv import write_csv
from fabtui.export.json import as_json
from fabtui.importers.formats.fabtui_files import add_snapshot
from fabtui.importers.result import read
from fabtui.importers.sources import Source, sources
from fabtui.importers.to_model.dispatch import check_comparable, events, model, stem
from fabtui.importers.to_model.session_draft import SessionDraft
from fabtui.model.endpoints import PairClass
from fabtui.model.events import NodeState, NodeUpdate, PlanUpdate, ProbeResult, SessionStart, event_from_json
from fabtui.model.layers import Layer, all_layers
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model

from .places import of_text, output_of

RECORDING = Path(__file__).resolve().parents[3] / "tests/samples/sessions/h200x8-lab-2x4.jsonl.gz"


def modelled(*texts: str) -> Model:
    return model([read(Source(f"runs/n06{number}.txt", text)) for number, text in enumerate(texts)])


def value(found: Model, layer: Layer, src: str, dst: str) -> float | None:
    measured = found.latest(layer, src, dst)
    return None if measured is None else measured.value


def table(operation: str, hosts: dict[str, int], rows: str) -> str:
    places = [(host, device) for host, count in hosts.items() for device in range(count)]
    ranks = (
        f"# Rank {at} Group 0 Pid 1 on {host} device {device} [0x1] H200\n" for at, (host, device) in enumerate(places)
    )
    return (
        f"# Collective test starting: {operation}_perf\n"
        + "".join(ranks)
        + "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        + rows
    )  # fmt: skip


def test_a_collective_of_one_node_two_nodes_and_many() -> None:
    rows = "1024 256 float sum -1 10 0.10 0.17 0 10 0.11 0.19 0\n2048 512 float sum -1 10 0.20 0.35 0 10 0.2 0.34 0\n"
    one = modelled(table("all_reduce", {"n060": 4}, rows))
    assert value(one, Layer.BUSBW, "n060", "n060") == 0.35
    assert [str(end) for end in one.endpoints] == ["n060:0", "n060:1", "n060:2", "n060:3"]
    assert one.cell(Layer.BUSBW, 0, 1).value == 0.35
    assert {m.bytes: m.value for m in one.measurements()} == {1024: 0.19, 2048: 0.35}
    two = modelled(table("all_gather", {"n060": 2, "n061": 2}, rows))
    assert value(two, Layer("all_gather"), "n060", "n061") == 0.35
    many = modelled(table("alltoall", {"n060": 1, "n061": 1, "n062": 1}, rows))
    assert value(many, Layer("alltoall"), "all", "all") == 0.35
    assert [m.extra["ranks"] for m in many.measurements() if m.extra] == [3, 3]


def test_a_host_that_is_not_listed_is_not_made_up() -> None:
    rows = "1024 256 float sum -1 10 0.10 0.17 0 10 0.11 0.19 0\n"
    cut = table("all_reduce", {"n060": 4}, rows).replace("Rank 0 ", "Rank 70 ")
    found = modelled(cut)
    assert value(found, Layer.BUSBW, "all", "all") == 0.19
    unknown = table("all_reduce", {"n060": 2}, rows).replace("# Collective test starting: all_reduce_perf\n", "")
    assert list(modelled(unknown).measurements()) == []


def test_wrong_results_are_wrong_data() -> None:
    found = modelled(table("all_reduce", {"n060": 2}, "8 2 float sum -1 10 0.10 0.17 5 10 0.11 0.19 0\n"))
    (measured,) = found.measurements()
    assert measured.verdict is Verdict.WRONG
    assert measured.error == "5 elements of the result are wrong"


def test_who_sends_is_the_arrow() -> None:
    found = modelled(output_of("nvbandwidth-of-several-nodes"))
    # memcpy GPU(row) <- GPU(column): row 0, column 1 is what 1 sends to 0.
    assert value(found, Layer.P2P, "n061:0", "n060:0") == 820.10
    assert value(found, Layer.P2P, "n060:0", "n061:0") == 819.50


CUDA = """\
P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 1508.20  21.51
     1  21.40 1509.66
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1502.40 275.07
     1 275.51 1521.42
Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)
   D\\D     0      1
     0 1502.40 111.00
     1 222.00 1521.42
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.62   2.25
     1   2.22   2.71

   CPU     0      1
     0   2.34   1.92
     1   1.96   2.32
"""


def test_with_and_without_peer_access_are_two_arms() -> None:
    found = modelled(CUDA)
    assert value(found, Layer.P2P, "n060:0", "n060:1") == 275.07
    assert value(found, Layer.LATENCY, "n060:0", "n060:1") == 2.25
    assert found.comparison == ["P2P=Enabled Writes", "P2P=Enabled Reads", "P2P=Disabled"]
    arms = {(m.arm, m.src, m.dst): m.value for m in found.results.arms()}
    assert arms["P2P=Disabled", "n060:0", "n060:1"] == 21.51
    # Rows read: what is in row 0, column 1 is what 1 sends to 0.
    assert arms["P2P=Enabled Reads", "n060:1", "n060:0"] == 111.00


def test_files_of_several_nodes_are_one_grid() -> None:
    found = modelled(CUDA, CUDA)
    assert list(found.nodes) == ["n060", "n061"]
    assert len(found.endpoints) == 4
    assert found.cell(Layer.P2P, 2, 3).value == 275.07
    assert found.cell(Layer.P2P, 0, 2).verdict is Verdict.UNTESTED


def test_the_ends_of_a_stream() -> None:
    found = modelled(output_of("iperf3-text"))
    (measured,) = found.measurements()
    assert (measured.layer, measured.src, measured.dst) == (Layer.IPERF3, "192.0.2.60", "192.0.2.61")
    assert measured.value == 1.175
    assert (measured.src_addr, measured.dst_addr, measured.transport) == ("192.0.2.60", "192.0.2.61", "TCP")


def test_a_read_sends_to_who_asks() -> None:
    text = (
        "                    RDMA_Read BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n"
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        " 65536 5000 0.00 392.00 0.7\n"
    )
    (measured,) = modelled(text).measurements()
    assert (measured.src, measured.dst, measured.value, measured.bytes) == ("n060:1", "n060:0", 49.0, 65536)


def test_a_tool_that_could_not_begin_measured_no_pair() -> None:
    for error in ("Couldn't connect to n061:18515", "Couldn't allocate MR", "Completion with error at client"):
        found = modelled(f"$ ib_write_bw n061\n{error}\n Unable to run\n")
        assert (list(found.measurements()), list(found.endpoints), list(found.nodes)) == ([], [], []), error


def test_a_ping_mesh() -> None:
    found = modelled(output_of("older-ping-csv"))
    assert [str(end) for end in found.endpoints] == ["a001-gw:-", "a002-gw:-"]
    verdicts = {(m.src_addr, m.dst_addr): m.verdict for m in found.addresses.latest(Layer.PING, "a002-gw", "a001-gw")}
    assert verdicts == {
        ("10.1.0.2", "10.1.0.1"): Verdict.OK,
        ("10.1.0.2", "10.2.0.1"): Verdict.FAILED,
        ("10.2.0.2", "10.2.0.1"): Verdict.INCONCLUSIVE,
    }
    assert found.cell(Layer.PING, 0, 1).verdict is Verdict.FAILED
    assert all(m.value is None for m in found.measurements())
    # The segments are the rails.
    assert [found.key_of(m).kind for m in found.addresses.latest(Layer.PING, "a002-gw", "a001-gw")] == [
        PairClass.SAME_RAIL,
        PairClass.CROSS_RAIL,
        PairClass.SAME_RAIL,
    ]


def test_jobs_whose_ranks_printed_nothing() -> None:
    text = "==> p2p-test-0-9-1.out <==\nn060 [0] : OK 0 -> 9\n==> p2p-test-9-0-2.out <==\nsrun: error: failed\n"
    found = model([read(Source("/data/runs", text))])
    # Rank 9 never printed its host.
    assert [str(end) for end in found.endpoints] == ["n060:0", "runs:9"]
    assert [m.verdict for m in found.measurements()] == [Verdict.OK, Verdict.FAILED]


def recorded() -> Model:
    found = Model()
    for line in gzip.decompress(RECORDING.read_bytes()).decode().splitlines():
        found.apply(event_from_json(json.loads(line)))
    return found


def exported(found: Model, path: Path) -> list[list[Any]]:
    write_csv(found, path)
    frame = load_snapshot(path)
    # The rails of addresses are in the inventories of nodes, which a CSV does not hold.
    frame.loc[frame["layer"].isin([str(layer) for layer in all_layers() if layer.spec.by_address]), "class"] = "address"
    known = frame.drop(columns=["time"])
    rows: list[list[Any]] = known.astype(object).where(known.notna(), None).to_numpy().tolist()
    return rows


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl.gz"])
def test_what_we_wrote_comes_back(tmp_path: Path, ending: str) -> None:
    original = recorded()
    before = exported(original, tmp_path / "a.csv")
    if ending == "json":
        (tmp_path / "a.json").write_text(json.dumps(as_json(diagnose(original))))
    if ending == "jsonl.gz":
        (tmp_path / "a.jsonl.gz").write_bytes(RECORDING.read_bytes())
    results = [read(found) for found in sources([str(tmp_path / f"a.{ending}")])]
    assert results[0].kind == {"csv": "fabtui-csv", "json": "fabtui-json", "jsonl.gz": "fabtui-recording"}[ending]
    assert not results[0].warnings
    after = model(results)
    assert [str(end) for end in after.endpoints] == [str(end) for end in original.endpoints]
    kept = exported(after, tmp_path / "b.csv")
    assert kept == before


def test_a_recording_beside_another_file(tmp_path: Path) -> None:
    write_csv(modelled(CUDA), tmp_path / "a.csv")
    results = [read(found) for found in sources([str(RECORDING), str(tmp_path / "a.csv")])]
    found = model(results)
    assert list(found.nodes) == ["n000", "n001", "n060"]
    assert len(found.endpoints) == 10
    check_comparable(results)


def test_a_json_session_brings_its_nodes(tmp_path: Path) -> None:
    original = recorded()
    original.apply(NodeUpdate(node="n001", state=NodeState.LOST, text="no answer", hint="ssh n001 true"))
    original.apply(ProbeResult(node="n000", probe="clock", error="too late"))
    original.apply(PlanUpdate(untested=[("n000:8", "n001:0", "no answer")]))
    (tmp_path / "a.json").write_text(json.dumps(as_json(diagnose(original))))
    found = model([read(one) for one in sources([str(tmp_path / "a.json")])])
    assert found.lab == original.lab == "2x4"
    assert found.untested == {("n000:8", "n001:0"): "no answer"}
    for name, record in original.nodes.items():
        assert found.nodes[name].state is record.state
        assert (found.nodes[name].text, found.nodes[name].hint) == (record.text, record.hint)
        assert found.nodes[name].probe_results == record.probe_results


def test_what_cannot_be_compared_is_reported() -> None:
    results = [of_text(CUDA), of_text(output_of("nvbandwidth-of-several-nodes"))]
    with pytest.raises(InputError, match="of p2pBandwidthLatencyTest and nvbandwidth are not comparable"):
        check_comparable(results)
    with pytest.raises(InputError, match="of fabtui and nvbandwidth are not comparable"):
        check_comparable(results[1:], ours=True)
    check_comparable([results[0], of_text(table("all_reduce", {"n060": 2}, ""))])


def test_a_kind_without_pairs_gives_no_measurement() -> None:
    found = modelled("PING a (192.0.2.1) 56(84) bytes of data.\n")
    assert list(found.measurements()) == []
    assert found.endpoints == []


def test_events_are_in_order() -> None:
    happened = events([of_text(CUDA)])
    assert [event.seq for event in happened] == list(range(len(happened)))
    assert happened[0].kind == "start"
    json.dumps([event.to_json() for event in happened], allow_nan=False)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("-", "stdin"),
        ("a/n060.txt", "n060"),
        ("a/n060.log.gz", "n060"),
        ("n060.txt.zst", "n060"),
        ("n060", "n060"),
        (".x", ".x"),
    ],
)
def test_the_name_of_a_file(name: str, wanted: str) -> None:
    assert stem(name) == wanted


def test_hostile_names_of_hosts() -> None:
    text = table("all_reduce", {"n0\x1b[2J60$(x)": 2}, "8 2 float sum -1 10 0.10 0.17 0 10 0.11 0.19 0\n")
    found = modelled(text)
    assert list(found.nodes) == ["n0-2J60-x"] or list(found.nodes) == ["n060-x"]


def test_collectives_of_other_benchmarks() -> None:
    """Collectives that a table names are measurements, and nothing else in it."""
    deepspeed = modelled(output_of("deepspeed"))
    assert {(m.layer, m.bytes, m.value) for m in deepspeed.measurements()} == {
        (Layer.BUSBW, 2, 0.000125),
        (Layer.BUSBW, 32 << 20, 41.61325),
    }
    experiment = modelled(output_of("experiment"))
    (gather, reduced) = sorted(experiment.measurements(), key=lambda m: m.layer is Layer.BUSBW)
    assert (gather.layer.spec.collective, gather.value) == ("all_gather", 183.99), "245.32 x 3 / 4"
    assert (reduced.value, reduced.how) == (183.015, "experiment, calculated from algbw"), "122.01 x 2 x 3 / 4"
    for unnamed in (output_of("mscclpp-test"), output_of("mscclpp-benchmark"), output_of("busbw-bars")):
        assert not list(modelled(unnamed).measurements())


def test_a_table_by_gpus() -> None:
    text = (
        "all_reduce between nodes, Gbps\n\n| GPUs | RDMA busbw | RDMA algbw | TCP busbw | TCP algbw |\n"
        "|---|---|---|---|---|\n| 8 | 362.0 | 181.0 | 40.0 | 20.0 |\n| 16 | 356.0 | - | - | - |\n"
    )
    found = modelled(text)
    rows = [(row.ranks, [arm and (arm.busbw, arm.algbw) for arm in row.arms]) for row in group_sweep(found)]
    assert rows == [(8, [(45.25, 22.625), (5.0, 2.5)]), (16, [(44.5, None), None])]
    assert found.comparison == ["RDMA", "TCP"]
    assert not list(modelled(text.replace("all_reduce", "all_reduce and all_gather")).measurements())


@pytest.mark.parametrize(
    ("layer", "probe"),
    [
        *(("mtu", "ping"), ("udp", "udp"), ("tcp", "udp"), ("iperf3", "iperf3"), ("ib_write_bw", "perftest")),
        *(("p2p", "p2p"), ("world", "p2p"), ("alltoall", "alltoall")),
    ],
)
def test_a_snapshot_names_the_probe_of_each_layer(layer: str, probe: str) -> None:
    row = {"layer": layer, "src": "a:0", "dst": "b:0", "verdict": "ok", "value": 1.0, "unit": "GB/s"}
    draft = SessionDraft()
    add_snapshot(draft, {"measurements": [row]}, "")
    start = draft.events()[0]
    assert isinstance(start, SessionStart)
    assert start.options["probes"] == [probe]
