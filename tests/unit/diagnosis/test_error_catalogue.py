"""Error catalogue: each form in which libraries print an error is known, causes go before consequences."""

from __future__ import annotations

import re

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import meaning_of, meanings
from fabtui.diagnosis.knowledge.toml_data import load
from fabtui.diagnosis.session import findings
from fabtui.model.events import Measured, NodeState, NodeUpdate
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.findings import evidence, title
from fabtui_node.protocol import ErrorKind
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

COMPLETION = "NET/IB : Got completion from peer 10.2.0.5<33092> with "


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (COMPLETION + "error 12, opcode 1, len 0, vendor err 129", "RETRY_EXC"),
        (COMPLETION + "status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80:: hca mlx5_10", "RETRY_EXC"),
        (COMPLETION + "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129", "RETRY_EXC"),
        (COMPLETION + "status=13 opcode=0", "RNR_RETRY"),
        (COMPLETION + "error 4, opcode 0, len 0, vendor err 81", "LOC_PROT"),
        (COMPLETION + "error 9, opcode 0, len 0, vendor err 138", "MTUs"),
        (COMPLETION + "status=5 opcode=0", "earlier error"),
        ("Call to ibv_modify_qp failed with error Connection timed out errno 110", "does not resolve"),
        (
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3, curr state INIT",
            "does not resolve",
        ),
        ("Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0", "NCCL_IB_GID_INDEX"),
        ("Call to ibv_modify_qp failed with error Network is unreachable", "no IP route"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memlock"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory errno 12", "memlock"),
        ("NET/IB : No device found.", "no RDMA device"),
        ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("socketStartConnect: Connect to 10.0.0.2<4> failed : Software caused connection abort", "not answered"),
        ("connect: n1:0: connect to 10.0.0.1:39505: Connection refused", "nothing listens"),
        ("Cuda failure 802 'system not yet initialized'", "Fabric Manager"),
        ("Cuda failure 2 'out of memory'", "another process"),
        ("verify: 1 of 4194304 bytes are wrong in message 21, the first at offset 2097152", "differs from sent"),
        ("verify: 3 of 64 bytes looked at around offset 0 are wrong, the first at 7", "differs from sent"),
        ("the rank host of n000 ended with signal 9: a last line", "were killed"),
        ("socketProgress: Connection closed by remote peer node1<57557>", "the other process"),
    ],
)
def test_errors_are_known_in_the_words_of_their_libraries(printed: str, words: str) -> None:
    found = meaning_of(printed)
    assert found is not None
    assert words in found.text


@pytest.mark.parametrize(
    "printed",
    ["", "connect: timed out after 5.0 s", COMPLETION + "error 120", "ibv_modify_qp", "transfer: no first byte came"],
)
def test_what_is_not_known_means_nothing(printed: str) -> None:
    assert meaning_of(printed, None) is None


def test_a_cause_goes_before_what_follows_from_it() -> None:
    log = f"{COMPLETION}status=5 opcode=0\nConnection closed by remote peer x\n{COMPLETION}status=12 opcode=0"
    found = meaning_of(log)
    assert found is not None
    assert "RETRY_EXC" in found.text


def test_the_catalogue_is_valid() -> None:
    found = load("errors")["error"]
    assert len({one["id"] for one in found}) == len(found) > 30
    allowed = {"id", "pattern", "kind", "text", "src", "dst", "both"}
    for one, meaning in zip(found, meanings(), strict=True):
        assert one.keys() <= allowed, one["id"]
        assert re.fullmatch(r"[a-z0-9-]+", one["id"])
        assert one["text"][-1] != ".", one["id"]
        assert not meaning.kind or meaning.kind in [kind.value for kind in ErrorKind], one["id"]
        # Without unbounded or nested repetition, a search takes linear time.
        assert not re.search(r"(?<!\\)[*+]|\{\d+,\}|\)\{", one["pattern"]), one["id"]
    for command in load("next_commands")["preflight"].values():
        assert command.startswith("ssh {node} ")


def test_the_kind_on_the_wire_counts_without_a_known_text() -> None:
    found = meaning_of("anything", kind="frozen")
    assert found is not None
    assert found.id == "ranks-frozen"
    assert meaning_of("anything", kind="cancelled") is None


def test_long_and_hostile_text_is_searched_quickly() -> None:
    assert meaning_of("Got completion " * 100_000) is None
    assert meaning_of("ibv_modify_qp failed" + "A" * 1_000_000) is None


def test_a_finding_has_the_meaning_of_its_error_and_commands() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: (s, d) == ("a:0", "b:1")))
    error = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0"
    row = Measurement(Layer.P2P, "a:0", "b:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
    model.apply(Measured(measurements=[row], time=3.0))
    (found,) = findings(model)
    assert any(line.startswith("means: the GID of the other NIC does not resolve") for line in evidence(found))
    assert found.next[:2] == ("ssh a ip route get 10.1.0.2 from 10.0.0.1", "ssh a ip neigh")


def test_a_node_that_is_gone_is_not_explained_by_an_error_of_another() -> None:
    model = fabric("abc", 2, dead_if(lambda s, d: "c" in (s[0], d[0])))
    error = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0"
    row = Measurement(Layer.P2P, "a:0", "c:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
    model.apply(Measured(measurements=[row], time=3.0))
    model.apply(NodeUpdate(node="c", state=NodeState.LOST, text="the connection was cut", time=4.0))
    assert title(findings(model)[0]) == "c lost"
    assert evidence(findings(model)[0])[0] == "the connection was cut"
    assert not any("means" in line for line in evidence(findings(model)[0]))
