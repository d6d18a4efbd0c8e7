"""Error catalogue: each form in which libraries print an error is known, causes go before consequences."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose, search
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import (
    CATALOGUES,
    common_error,
    kind_of_error,
    meaning_of,
    meaning_of_measurement,
    meanings,
    prepared,
)
from fabtui.diagnosis.knowledge.failure_stage import stages
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.events import Measured, NodeState, NodeUpdate
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.findings import evidence, title
from fabtui_node.protocol import ErrorKind
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

#: Errors, with each form in which libraries print them; most are in ``forms.toml``.
FORMS: dict[str, tuple[str, ...]] = {
    **{code: tuple(forms) for code, forms in tomllib.loads(Path(__file__).with_name("forms.toml").read_text()).items()},
    "E163": ("mlx5_cmd_out_err:808:(pid 7): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8)",),
    "E164": ("socketFinalizeAccept: wrong type 4 != 3", "socketFinalizeAccept: wrong type 3 != 4"),
    "E165": ("NCCL WARN ncclSocketInit: Socket creation failed : Address family not supported by protocol",),
}

COMPLETION = "NET/IB : Got completion from peer 10.2.0.5<33092> with "


#: Lines above an error in which a log names the program that prints it.
NAMED = {
    "perftest": "$ ib_write_bw -d mlx5_0 n061\n",
    "torch": '  File "/venv/torch/distributed/distributed_c10d.py", line 83, in wrapper\n',
    "library": "NCCL version 2.27.3+cuda12.9\n",
}


def codes_in(log: str) -> list[str]:
    reader = LogReader()
    reader.add(log)
    found = reader.result()
    return [one.meaning.code for one in (*found.causes, *found.notices)]


@pytest.mark.parametrize("code", FORMS)
def test_every_form_of_the_survey_has_its_number(code: str) -> None:
    within = {one.within for one in meanings() if one.code == code and one.within}
    above = "".join(NAMED.get(name, "") for name in within)
    for form in FORMS[code]:
        assert codes_in(above + (COMPLETION + form if form.startswith("with ") else form)) == [code], form


@pytest.mark.parametrize(
    ("code", "form"),
    [
        ("E153", "Duration mode doesn't work with events."),
        ("E153", "Requested QP size might be too big. Try reducing TX depth and/or inline size."),
        ("E154", "RuntimeError: Tensors must be contiguous"),
        ("E157", "File already exists"),
    ],
)
def test_words_of_many_programs_count_where_the_log_names_the_right_one(code: str, form: str) -> None:
    (within,) = {one.within for one in meanings() if one.code == code}
    named = {**NAMED, "gloo": "third_party/gloo\n"}
    assert codes_in(form) == []
    assert codes_in(named[within] + form) == [code]


def test_every_number_of_the_survey_is_there() -> None:
    assert {f"E{number}" for number in range(1, 37)} <= {one.code for one in meanings()}
    # These two depend on more than one line: see the tests of logs.
    assert {f"E{number}" for number in range(1, 37)} - FORMS.keys() == {"E2", "E3"}


def test_the_example_of_an_error_has_its_meaning() -> None:
    shown = [one for one in meanings() if one.pattern is not None]
    found = {one.id: meaning_of(one.prints, notices=True, general=one.general) for one in shown}
    assert {name: one and one.id for name, one in found.items() if one is None or one.id != name} == {}
    assert len(found) == len(shown)


@pytest.mark.parametrize(
    "printed",
    [
        "  1048576    262144   float     sum     -1    35.20   29.79   52.13      0    35.10   29.88   52.28      0",
        "# Out of bounds values : 0 OK",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "Using network IB",
        "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected",
        "NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2",
    ],
)
def test_healthy_lines_are_no_errors(printed: str) -> None:
    assert meaning_of(printed, notices=True) is None


def test_lines_that_are_no_errors_do_not_explain_a_failure() -> None:
    assert meaning_of("transfer: no first byte came", "Using network Socket") is None


def test_an_error_between_nics_of_one_node_is_another_than_between_nodes() -> None:
    error = COMPLETION + "status=12 opcode=0 len=0 vendor err 129"
    rows = [
        Measurement(Layer.P2P, "a:0", f"{node}:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
        for node in "ab"
    ]
    assert [found and found.code for found in map(meaning_of_measurement, rows)] == ["E3", "E1"]


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
    found = [one for name in CATALOGUES for one in load(name)["error"]]
    assert len({one["id"] for one in found}) == len(found) > 30
    allowed = {
        *("id", "code", "prints", "pattern", "kind", "refines", "when", "text", "next", "src", "dst"),
        *("both", "node"),
    }
    allowed |= {"follows", "role", "cause_if", "stages", "within", "beside"}
    named = {meaning.id: meaning for meaning in meanings()}
    for one in found:
        meaning = named[one["id"]]
        assert one.keys() <= allowed, one["id"]
        assert re.fullmatch(r"[a-z0-9-]+", one["id"])
        assert re.fullmatch(r"E[1-9]\d{0,2}", one["code"]), one["id"]
        assert one["text"][-1] != "." == one["next"][-1], one["id"]
        assert meaning.role in ("cause", "consequence", "notice"), one["id"]
        assert set(meaning.stages) <= {stage.id for stage in stages()}, one["id"]
        assert meaning.cause_if in ("", "several-nodes", "alone"), one["id"]
        assert meaning.within in ("", "library", "torch", "gloo", "perftest"), one["id"]
        assert set(meaning.follows) <= {other["id"] for other in found}, one["id"]
        assert not meaning.kind or meaning.kind in [kind.value for kind in ErrorKind], one["id"]
        # Without unbounded or nested repetition, a search takes linear time.
        assert not re.search(r"(?<!\\)[*+]|\{\d+,\}|\)\{", one.get("pattern", "")), one["id"]
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
    (found,) = diagnose(model).findings
    assert any(line.startswith("means: E9, the GID of the other NIC does not resolve") for line in evidence(found))
    assert found.next[:2] == ("ssh a ip route get 10.1.0.2 from 10.0.0.1", "ssh a ip neigh")


def test_a_node_that_is_gone_is_not_explained_by_an_error_of_another() -> None:
    model = fabric("abc", 2, dead_if(lambda s, d: "c" in (s[0], d[0])))
    error = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0"
    row = Measurement(Layer.P2P, "a:0", "c:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
    model.apply(Measured(measurements=[row], time=3.0))
    model.apply(NodeUpdate(node="c", state=NodeState.LOST, text="the connection was cut", time=4.0))
    assert title(diagnose(model).findings[0]) == "c lost"
    assert evidence(diagnose(model).findings[0])[0] == "the connection was cut"
    assert not any("means" in line for line in evidence(diagnose(model).findings[0]))


def test_errors_that_differ_in_details_are_one_kind() -> None:
    assert kind_of_error("connect to 10.0.0.1:4711: rank 3") == kind_of_error("connect to 10.9.0.7:99: rank 12")
    assert kind_of_error("n060:3 is gone") == kind_of_error("n061:12 is gone")
    assert kind_of_error("fe80::1 no route") == kind_of_error("fe80::aa:2 no route")
    assert kind_of_error("timed out after 1.5 s") == kind_of_error("timed out after 30 s") == "timed out after # s"
    assert kind_of_error("timed out") != kind_of_error("refused")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((), None),
        (("no route to 10.0.0.1",), ("no route to 10.0.0.1", None, 0, "b:0")),
        (("refused", "no route to 10.0.0.1", "no route to 10.0.0.2"), ("no route to 10.0.0.1", 2, 1, "b:1")),
        (("x", "y", "y", "z", "y"), ("y", 3, 2, "b:1")),
        (("y", "x", "x", "y"), ("y", 2, 1, "b:0")),
        (("x", "y", "y", "x"), ("y", 2, 1, "b:1")),
    ],
)
def test_the_error_that_most_pairs_have(errors: tuple[str, ...], expected: tuple[str, int | None, int, str]) -> None:
    rows = [Measurement(Layer.P2P, "a:0", f"b:{at}", Verdict.TIMEOUT, error=text) for at, text in enumerate(errors)]
    kinds = list(map(kind_of_error, errors))
    found = common_error(Counter(kinds), {kind: kinds.index(kind) for kind in kinds}, rows.__getitem__)
    assert (None if found is None else (*found.fact, found.example.dst)) == expected


def test_the_catalogue_is_prepared_one_part_at_a_time() -> None:
    for part in (load, meanings):
        part.cache_clear()
    read = [load.cache_info().misses for _ in prepared()]
    assert read[: len(CATALOGUES)] == list(range(1, len(CATALOGUES) + 1)), "one file in each step"
    assert load.cache_info().misses == len(CATALOGUES)
    assert meanings.cache_info().misses == 1


def test_the_first_search_prepares_the_catalogue_in_steps_of_its_own() -> None:
    model = fabric("ab", 2, dead_if(lambda src, dst: src == "a:0"))
    load.cache_clear()
    meanings.cache_clear()
    tally = Survey(model).finish()
    read = [load.cache_info().misses for _ in search(model, tally)]
    files = len(CATALOGUES)
    assert read[: files + 1] == [*range(1, files + 1), files], "before any rule asks for a meaning"
