"""Rules about pairs: each cause is reported once, the largest first, with the pairs it explains."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of
from fabtui.diagnosis.knowledge.next_commands import by_fabtui, by_hand, pair_commands
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.export.csv import rows
from fabtui.model.events import (
    CounterDeltas,
    InventoryUpdate,
    Measured,
    NodeGrowth,
    NodeState,
    NodeUpdate,
    PlanUpdate,
    ProbeResult,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.conftest import session_of

RECORDING = Path(__file__).parents[3] / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
OK, SLOW, TIMEOUT = Verdict.OK, Verdict.SLOW, Verdict.TIMEOUT

Judge = Callable[[str, str], Verdict | float]


def fabric(nodes: str, per_node: int, judge: Judge, world: Verdict | None = OK, kind: str = "gpu") -> Model:
    """A fabric in which ``judge`` returns the result of each pair: a verdict, or a share of the usual value."""
    model = session_of(nodes, per_node, rails=True, kind=kind, nic="mlx5_{index}", address="10.{index}.0.{host}")
    model.apply(PlanUpdate(slow_below=0.7, time=1.0))
    for a, b in itertools.permutations(model.endpoints, 2):
        found = judge(str(a), str(b))
        verdict, share = (OK, found) if isinstance(found, float) else (found, 1.0)
        usual = 350.0 if a.node == b.node else 45.0
        value = usual * share if verdict is OK else None
        error = None if verdict is OK else "connect: timed out"
        rows = [Measurement(Layer.P2P, str(a), str(b), verdict, value, "GB/s", 8, 2.0, error=error)]
        if world is not None:
            rows.append(Measurement(Layer.WORLD, str(a), str(b), world, usual, "GB/s", 8, 2.0))
        model.apply(Measured(measurements=rows, time=2.0))
    return model


def dead_if(true: Callable[[str, str], bool]) -> Judge:
    """Pairs of endpoints (``a:0``) that are dead; all others are well."""

    def judge(src: str, dst: str) -> Verdict | float:
        return TIMEOUT if true(src, dst) else 1.0

    return judge


def titles(found: list[Finding]) -> list[tuple[str, int]]:
    return [(title(one), len(one.cells)) for one in found]


def test_a_healthy_fabric_has_none() -> None:
    assert diagnose(fabric("ab", 4, dead_if(lambda s, d: False))).findings == []


def test_rails_without_a_route_are_one_cause_and_jobs_can_run() -> None:
    model = fabric("ab", 4, dead_if(lambda s, d: s[0] != d[0] and s[2] != d[2]))
    (one,) = diagnose(model).findings
    assert (title(one), len(one.cells)) == ("rail-isolated (or PXN-only) fabric", 24)
    assert evidence(one)[0] == "all 24 pairs across rails fail, all 8 pairs within a rail pass"
    assert evidence(one)[1] == "24 of 24 pairs pass in the world communicator: collective jobs can run"
    assert one.next[:2] == (
        "fabtui run --nodes a,b --probes p2p --ab NCCL_PXN_DISABLE=0,1",
        "ssh a ping -c3 -I 10.0.0.1 10.1.0.2",
    )


def test_a_dead_gpu_a_dead_nic_and_a_dead_path_are_distinguished() -> None:
    def dead(src: str, dst: str) -> bool:
        ends = {src, dst}
        off = src[0] != dst[0]
        return "a:1" in ends or ("b:2" in ends and off) or {src[0], dst[0]} == {"b", "c"}

    found = diagnose(fabric("abc", 4, dead_if(dead))).findings
    assert [title for title, _ in titles(found)] == [
        "no traffic between b and c",
        "a:1 fails with all 11 others: check the GPU",
        "b:2 reaches no other node: check its NIC mlx5_2",
    ]
    cells = [pair for one in found for pair in one.cells]
    assert len(cells) == len(set(cells)), "no cell is explained twice"
    model = fabric("abc", 4, dead_if(dead))
    assert set(cells) == set(Survey(model).finish().bad), "and all are explained"


def test_with_one_gpu_and_one_nic_a_node_the_title_is_what_it_can_be() -> None:
    for judge, words in (
        (dead_if(lambda s, d: "b" in (s[0], d[0])), "fails"),
        (lambda s, d: 0.05 if s[0] == "b" else 1.0, "is slow"),
    ):
        found = diagnose(fabric("abcd", 1, judge)).findings
        assert title(found[0]).startswith(f"b:0 {words} with all 3 others")
        assert title(found[0]).endswith("check its NIC mlx5_0, the GPU or the node")
        # The first command tests the path without the GPU as well.
        assert "--probes ping,udp,tcp,p2p --pair" in found[0].next[0]
        assert found[0].next[1].startswith("ssh b ")


def test_where_nothing_passes_at_all_no_endpoint_is_blamed() -> None:
    model = fabric("ab", 4, dead_if(lambda s, d: True))
    (one,) = diagnose(model).findings
    assert (title(one), len(one.cells)) == ("all 56 pairs fail: check what they have in common", 56)
    assert evidence(one)[0].startswith("connect: timed out")
    assert one.next[0] == "ssh a nvidia-smi topo -p2p n"
    assert [title for title, _ in titles(diagnose(fabric("ab", 1, dead_if(lambda s, d: True))).findings)] == [
        "a:0 - b:0 timed out"
    ]


def test_a_node_with_which_nothing_passes_is_one_cause() -> None:
    found = diagnose(fabric("ab", 4, dead_if(lambda s, d: "b" in (s[0], d[0])))).findings
    assert titles(found) == [("all pairs of b fail, including those within the node", 44)]
    found = diagnose(fabric("abc", 4, dead_if(lambda s, d: "b" in (s[0], d[0]) or "a:0" in (s, d)))).findings
    assert titles(found)[0] == ("all pairs of b fail, including those within the node", 76)
    assert titles(found)[1][0] == "a:0 fails with all 11 others: check the GPU", "also those that are explained"


def test_a_node_that_reaches_no_other_is_one_cause() -> None:
    (one,) = diagnose(fabric("abc", 4, dead_if(lambda s, d: s[0] != d[0] and "b" in (s[0], d[0])))).findings
    assert (title(one), len(one.cells)) == ("b reaches no other node", 64)


def test_a_path_that_is_dead_in_one_direction() -> None:
    (one,) = diagnose(fabric("ab", 2, dead_if(lambda s, d: s[0] == "a" and d[0] == "b"))).findings
    assert (title(one), len(one.cells)) == ("no traffic from a to b", 4)


def test_single_pairs_are_reported_one_by_one_and_many_as_one() -> None:
    (one,) = diagnose(fabric("ab", 4, dead_if(lambda s, d: {s, d} == {"a:0", "b:1"}))).findings
    assert (title(one), len(one.cells), evidence(one)[0]) == ("a:0 - b:1 timed out", 2, "connect: timed out")
    some = {("a:0", "b:1"), ("a:1", "b:2"), ("a:2", "b:3"), ("a:3", "b:0"), ("a:0", "b:2")}
    found = diagnose(fabric("ab", 4, dead_if(lambda s, d: (s, d) in some))).findings
    assert titles(found) == [("5 pairs fail with the same error", 5)]


def test_a_slow_nic_and_a_slow_pair_are_distinguished() -> None:
    def judge(src: str, dst: str) -> Verdict | float:
        if "a:3" in (src, dst) and src[0] != dst[0]:
            return 0.3
        return 0.4 if {src, dst} == {"a:0", "a:1"} else 1.0

    found = diagnose(fabric("ab", 4, judge)).findings
    assert titles(found) == [("a:3 is slow with other nodes: check its NIC and PCIe link", 8), ("a:0 - a:1 slow", 2)]
    assert evidence(found[0])[0].endswith("13.5 GB/s, 30 % of the usual 45.0 GB/s")
    assert found[0].next == ("ssh a ibstat mlx5_3",)


def test_a_lost_node_comes_first_with_its_hint_and_explains_its_pairs() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: "b" in (s[0], d[0])))
    model.apply(NodeUpdate(node="b", state=NodeState.LOST, text="no heartbeat", hint="ssh b uptime", time=3.0))
    model.apply(PlanUpdate(untested=[("a:0", "b:1", "b:1: b was lost: no heartbeat")], time=3.0))
    (one,) = diagnose(model).findings
    assert (title(one), evidence(one)[0], one.next) == ("b lost", "no heartbeat", ("ssh b uptime",))
    assert len(one.cells) == 10, "the pairs within it included"


def test_flapping_reasons_and_links_are_reported() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: False))
    for verdict, at in ((TIMEOUT, 3.0), (OK, 4.0)):
        one = Measurement(Layer.P2P, "a:0", "b:0", verdict, 45.0 if verdict is OK else None, "GB/s", 8, at)
        model.apply(Measured(measurements=[one], time=at))
    why = "b:1 is in use by train (pid 7)"
    model.apply(PlanUpdate(untested=[("a:0", "b:1", why), ("b:1", "a:0", why)], time=5.0))
    model.apply(NodeGrowth(node="a", phase="p2p", seconds=9.0, grew={"nvlink3/0:crc": 3, "nvlink2/0:rx_bytes": 9}))
    links = [{"link": 0, "state": "active"}, {"link": 1, "state": "active"}]
    for state in ("active", "inactive"):
        links[1]["state"] = state
        look = {"gpus": [{"index": 3, "links": links}]}
        model.apply(ProbeResult(node="a", probe="nvlink", value=look, time=6.0))
        links = [dict(link) for link in links]
    ports = [{"ca": "mlx5_0", "port": 1, "state": "Down", "phys_state": "Polling"}, {"ca": "mlx5_9", "state": "Down"}]
    model.apply(InventoryUpdate(node="a", value={"ib": ports}, time=7.0))
    found = {title(one): one for one in diagnose(model).findings}
    assert found["a:0 > b:0 flaps in p2p"].severity == "warn"
    assert evidence(found["2 pairs not tested"]) == (why,)
    links_of_gpu = found["a GPU 3: 1 of 2 NVLinks are no longer active"]
    errors = "a: NVLink errors: nvlink3/0:crc 3, 0 on 1 other during p2p"
    assert evidence(links_of_gpu) == (errors, "link 1"), "facts about one GPU are one finding"
    assert found["a mlx5_0 port 1 is not active"].severity == "bad"
    assert not any("mlx5_9" in title for title in found), "no endpoint is beside it"


@pytest.mark.parametrize(
    ("grew", "expected"),
    [
        ({"nvlink0/3:crc": 12000}, "a: NVLink errors: nvlink0/3:crc 12,000, 0 on 3 others during p2p"),
        ({"nvlink0/3:replay": 1}, "a: NVLink errors: nvlink0/3:replay 1, 0 on 3 others during p2p"),
        ({"nvlink0/3:fec_errors_3": 900}, ""),
        ({"nvlink0/3:tx_bytes": 900}, ""),
        ({f"nvlink{gpu}/3:crc": 900 for gpu in range(4)}, ""),
    ],
    ids=["many", "one", "corrected errors of NVLink5", "traffic", "all of them"],
)
def test_growth_of_nvlink_counters(grew: dict[str, int], expected: str) -> None:
    model = fabric("a", 4, dead_if(lambda s, d: False))
    all_links = {f"nvlink{gpu}/3:rx_bytes": 9 for gpu in range(4)}
    model.apply(NodeGrowth(node="a", phase="p2p", seconds=9.0, grew={**all_links, **grew}, time=6.0))
    errors = [one for one in diagnose(model).findings if one.rule.name == "nvlink-errors"]
    assert [title(one) for one in errors] == ([expected] if expected else [])
    for one in errors:
        assert (one.rule.id, one.subject, one.next) == ("FT102", (Kind.GPU, "a:0"), ("ssh a nvidia-smi nvlink -e",))


def test_what_is_bad_inside_alone_is_a_warning() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: False), world=Verdict.FAILED)
    (one,) = diagnose(model).findings
    assert (one.severity, title(one)) == ("warn", "12 pairs bad in the world communicator only, not alone")


def test_faults_made_in_the_lab_on_real_gpus() -> None:
    model = Model()
    for one in read_events(RECORDING):
        model.apply(one)
    found = diagnose(model).findings
    assert titles(found) == [
        ("n001:0 > n000:0 failed", 1),
        ("n000:1 > n001:2 timed out", 1),
        ("n000:0 > n000:3 slow", 1),
    ]
    assert found[2].next == ("ssh n000 nvidia-smi topo -p2p n", "ssh n000 nvidia-smi nvlink -e -i 0,3")


def test_a_refused_connection_has_the_cause_of_the_catalogue_and_a_command_for_the_port() -> None:
    model = Model()
    for one in read_events(RECORDING):
        model.apply(one)
    refused, dropped, _ = diagnose(model).findings
    known = meaning_of("socketStartConnect: Connect to 10.0.0.2<45763> failed : Connection refused")
    assert known is not None
    assert f"means: {known.sentence}" in evidence(refused)
    assert refused.next[:2] == ("ssh n000 ss -ltnp 'sport = :39505'", "ssh n000 sudo nft list ruleset")
    # A rule of the receiver is the firewall; without one, the pair that is dropped is tested with NCCL's messages.
    assert dropped.next[0] == "ssh n001 sudo nft list ruleset"
    assert "--pair 'n000:1>n001:2'" in dropped.next[-1]
    assert dropped.next[-1].endswith(" --env NCCL_DEBUG=INFO")
    assert not any("means:" in line for line in evidence(dropped))


def test_many_slow_pairs_have_a_next_step() -> None:
    odd = {("a:0", "b:1"), ("b:1", "c:0"), ("c:0", "d:1"), ("d:1", "a:0"), ("a:1", "c:1"), ("b:0", "d:0")}
    slow = fabric("abcd", 2, lambda src, dst: 0.4 if (src, dst) in odd else OK)
    (one,) = (one for one in diagnose(slow).findings if one.rule.id == "FT022")
    src, dst = one.facts["slowest"].source, one.facts["slowest"].destination
    assert one.next[0].startswith("fabtui run ")
    assert one.next[0].endswith(f"--pair '{src}>{dst}'")
    assert any(step.startswith("ssh ") for step in one.next)


def test_a_survey_goes_in_steps_and_restarts_when_the_model_changed() -> None:
    model = fabric("abcd", 4, dead_if(lambda s, d: {s, d} == {"a:0", "b:1"}))
    survey = Survey(model)
    steps = 0
    while not survey.step(0.0):
        steps += 1
    assert steps > 2
    assert len(survey.tally.bad) == 2
    assert survey.version == 1
    assert not survey.step(0.0), "nothing changed"
    good = Measurement(Layer.P2P, "a:0", "b:1", OK, 45.0, "GB/s", 8, 9.0)
    model.apply(Measured(measurements=[good], time=9.0))
    assert list(survey.finish().bad) == [("b:1", "a:0")]


def test_hostile_names_stay_words_of_a_shell() -> None:
    model = session_of(["a; rm -rf /", "b"], address="10.0.0.1", nic="$(x)")
    src, dst = (str(end) for end in model.endpoints)
    one = Measurement(Layer.P2P, src, dst, TIMEOUT, None, "GB/s", 8, 2.0, src_addr="0000:00:07.0", dst_addr="-f\n")
    model.apply(Measured(measurements=[one], time=2.0))
    commands = pair_commands(model, src, dst)
    assert commands[0] == "ssh 'a; rm -rf /' ping -c3 -I 10.0.0.1 10.0.0.1", "what is not an address is not used as one"
    assert "'a; rm -rf /" in by_hand(model, src, dst)
    assert by_fabtui(model, src, dst).startswith("fabtui run --nodes 'a; rm -rf /,b' ")


@pytest.mark.slow
def test_a_pair_can_be_tested_by_hand() -> None:
    pytest.importorskip("torch")
    model = fabric("ab", 1, dead_if(lambda s, d: False), kind="cpu")
    model.lab = "2x1"
    pythons = [{"path": sys.executable, "torch": "2"}]
    for node in "ab":
        value = {"pythons": pythons, "data_addresses": [{"address": "10.0.0.1", "nic": "lo"}]}
        model.apply(InventoryUpdate(node=node, value=value, time=3.0))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = by_hand(model, "a:0", "b:0").replace("10.0.0.1", "127.0.0.1").replace("29517", str(port))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert [line.split()[1] for line in lines] == ["0:", "1:"], done.stderr[-2000:]
    assert all(line.endswith("GB/s") for line in lines)


def test_many_pairs_that_flap_are_one_cause() -> None:
    model = fabric("ab", 4, dead_if(lambda s, d: False))
    for index in range(6):
        src, dst = f"a:{index % 4}", f"b:{index % 3}"
        for verdict, at in ((TIMEOUT, 3.0), (OK, 4.0)) * (2 if index == 5 else 1):
            one = Measurement(Layer.P2P, src, dst, verdict, 45.0 if verdict is OK else None, "GB/s", 8, at + index)
            model.apply(Measured(measurements=[one], time=at + index))
    (found,) = diagnose(model).findings
    assert (found.severity, title(found), len(found.cells)) == ("warn", "6 pairs flap", 6)
    assert "a:1 > b:2, whose verdict changed 4 times" in evidence(found)[0]


def test_a_node_that_is_slow_on_all_its_endpoints_is_one_cause() -> None:
    model = fabric("abcdefgh", 2, lambda s, d: 0.4 if "b" in (s[0], d[0]) and s[0] != d[0] else 1.0)
    found = diagnose(model).findings
    assert titles(found) == [("b is slow with other nodes, on all its 2 endpoints", 56)]
    assert found[0].next[0] == "ssh b nvidia-smi topo -m"


def test_no_way_across_rails_from_one_node_is_one_cause_and_a_dead_nic_beside_it_another() -> None:
    def dead(src: str, dst: str) -> bool:
        if src[0] == dst[0]:
            return False
        return "d:1" in (src, dst) or (src[0] == "b" and src[2:] != dst[2:])

    found = diagnose(fabric("abcd", 4, dead_if(dead))).findings
    reported = {title(one): len(one.cells) for one in found}
    assert reported["no traffic across rails from b to a,c,d"] == 36
    assert reported["d:1 reaches no other node: check its NIC mlx5_1"] == 21
    assert len(reported) == 2


def test_two_rails_without_a_way_between_them_are_one_cause() -> None:
    def dead(src: str, dst: str) -> bool:
        return src[0] != dst[0] and {src[2:], dst[2:]} == {"1", "3"}

    found = diagnose(fabric("abc", 4, dead_if(dead))).findings
    assert titles(found) == [("no traffic between rails 1 and 3", 12)]
    assert found[0].next[0].startswith("ssh a ping")


def test_rails_without_a_route_and_a_dead_nic_are_two_causes() -> None:
    def dead(src: str, dst: str) -> bool:
        return src[0] != dst[0] and (src[2:] != dst[2:] or "c:2" in (src, dst))

    found = diagnose(fabric("abc", 4, dead_if(dead))).findings
    assert titles(found) == [
        ("rail-isolated (or PXN-only) fabric", 72),
        ("c:2 reaches no other node: check its NIC mlx5_2", 4),
    ]


def test_what_is_typed_next_takes_the_ssh_configuration_of_the_session() -> None:
    model = fabric("ab", 1, lambda s, d: TIMEOUT)
    model.options = {**model.options, "ssh_config": "/home/me/my config"}
    assert pair_commands(model, "a:0", "b:0")[0] == "ssh -F '/home/me/my config' a ping -c3 -I 10.0.0.1 10.0.0.2"
    model.options["host_key_policy"] = "accept-new"
    again = "fabtui run --nodes a,b --ssh-config '/home/me/my config' --host-key-policy accept-new"
    assert pair_commands(model, "a:0", "b:0")[3] == f"{again} --probes perftest", "NICs of RDMA, without their GPUs"
    model.options["ranks_per_node"] = 4
    assert by_fabtui(model, "a:0", "b:0") == f"{again} --ranks-per-node 4 --probes ping,p2p --pair 'a:0>b:0'"
    model.lab = "2x1"
    assert pair_commands(model, "a:0", "b:0")[0] == "ssh a ping -c3 -I 10.0.0.1 10.0.0.2"


def loaded(slow: int, passed: int) -> Model:
    """Two nodes, some of whose pairs were slow beside others; some of these pass alone."""
    pairs = [(f"a:{i}", f"b:{j}") for i in range(4) for j in range(4)][:slow]
    model = fabric("ab", 4, lambda s, d: 1 / 3 if (s, d) in pairs else 1.0)
    for at, (src, dst) in enumerate(pairs):
        alone = Measurement(Layer.P2P, src, dst, OK, 45.0 if at < passed else 15.0, "GB/s", 8, 4.0)
        model.apply(Measured(measurements=[alone], time=4.0))
    return model


def contention(model: Model) -> tuple[str, int] | None:
    found = [one for one in diagnose(model).findings if one.rule.name == "contention"]
    return (str(found[0].severity), found[0].facts["slow"]) if found else None


@pytest.mark.parametrize(
    ("slow", "passed", "expected"),
    [
        (1, 1, None),
        (2, 2, ("note", 2)),
        (7, 7, ("note", 7)),
        (8, 8, ("warn", 8)),
        (8, 6, ("warn", 8)),
        (8, 5, ("note", 5)),
    ],
)
def test_contention_is_proven_by_eight_pairs_of_which_three_quarters_pass_alone(
    slow: int, passed: int, expected: tuple[str, int] | None
) -> None:
    assert contention(loaded(slow, passed)) == expected


def test_contention_reports_what_was_tested_alone_and_what_was_not() -> None:
    (alone,) = [one for one in diagnose(loaded(8, 6)).findings if one.rule.name == "contention"]
    assert evidence(alone)[0] == "6 of 8 slow pairs passed when retested alone"
    assert not any("slow in the world" in line for line in evidence(alone))


@pytest.mark.parametrize(("slow", "expected"), [(1, None), (7, ("note", 7)), (8, ("warn", 8))])
def test_eight_pairs_that_are_slow_in_world_alone_are_contention(slow: int, expected: tuple[str, int] | None) -> None:
    model = fabric("ab", 4, lambda s, d: 1.0)
    for at in range(slow):
        one = Measurement(Layer.WORLD, f"a:{at % 4}", f"b:{at // 4}", OK, 15.0, "GB/s", 8, 3.0)
        model.apply(Measured(measurements=[one], time=3.0))
    assert contention(model) == expected


def across(src: str, dst: str) -> bool:
    return src[0] != dst[0] and src[2:] != dst[2:]


@pytest.mark.parametrize(("both", "rule"), [(True, "rails-blocked-nodes"), (False, "pair-fails")])
def test_four_pairs_across_rails_are_a_missing_route(both: bool, rule: str) -> None:
    directions = [("a", "b"), ("b", "a")] if both else [("a", "b")]
    found = diagnose(fabric("abc", 2, dead_if(lambda s, d: across(s, d) and (s[0], d[0]) in directions))).findings
    assert {one.rule.name for one in found} == {rule}


def test_what_passes_in_world_is_evidence_of_pairs_that_fail_alone() -> None:
    dead = dead_if(lambda s, d: (s, d) in (("a:0", "b:1"), ("b:1", "a:0")))
    (found,) = diagnose(fabric("abc", 2, dead)).findings
    assert found.facts["in_world"] == (2, 2, True)
    (found,) = diagnose(fabric("abc", 2, dead, kind="cpu")).findings
    assert found.facts["in_world"] == (2, 2, False), "no NCCL relays for CPU ranks"
    (found,) = diagnose(fabric("abc", 2, dead, world=None)).findings
    assert "in_world" not in found.facts
    model = fabric("abc", 2, dead)
    bad = Measurement(Layer.WORLD, "a:0", "b:1", TIMEOUT, None, "GB/s", 8, 3.0, error="x")
    model.apply(Measured(measurements=[bad], time=3.0))
    assert diagnose(model).findings[0].facts["in_world"] == (1, 2, False)


def test_commands_for_all_come_before_those_for_one_pair_and_are_four_at_most() -> None:
    model = fabric("abcd", 2, dead_if(lambda s, d: "b" in (s[0], d[0]) and s[0] != d[0]))
    (found,) = diagnose(model).findings
    assert 0 < len(found.next) <= 4
    assert found.next[0] == "ssh b ping -c3 -I 10.0.0.2 10.0.0.1"


def test_the_slowest_pair_is_the_one_farthest_below_its_class() -> None:
    model = fabric("abcd", 2, lambda s, d: 0.5 if s == "b:0" and d[0] != "b" else 1.0)
    worse = Measurement(Layer.P2P, "b:0", "c:1", OK, 45.0 * 0.45, "GB/s", 8, 3.0)
    model.apply(Measured(measurements=[worse], time=3.0))
    (found,) = diagnose(model).findings
    assert found.facts["slowest"][:4] == ("b:0", "c:1", pytest.approx(20.25), 45.0)
    assert found.facts["factor"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("judge", "rule", "name"),
    [
        (lambda s, d: "b" in (s[0], d[0]), "node-dead", "b"),
        (lambda s, d: s[0] == d[0] == "b", "node-inside-fails", "b"),
        (lambda s, d: s[0] != d[0], "cross-node-fails", "all nodes"),
        (lambda s, d: s[0] != d[0] and "1" in (s[2], d[2]), "rail-fails", "1"),
        (lambda s, d: s[0] == d[0] == "b" and (s[2] in "01") != (d[2] in "01"), "halves-fail", "b"),
        (lambda s, d: s[0] == d[0] and "b:1" in (s, d), "endpoint-fails", "b:1"),
    ],
)
def test_each_component_that_fails_has_its_rule(judge: Callable[[str, str], bool], rule: str, name: str) -> None:
    (found,) = diagnose(fabric("abc", 4, dead_if(judge))).findings
    assert (found.rule.name, found.subject.name) == (rule, name)
    slow = [one for one in diagnose(fabric("abc", 4, lambda s, d: 0.3 if judge(s, d) else 1.0)).findings if one.cells]
    assert rule not in {one.rule.name for one in slow}


@pytest.mark.parametrize(
    ("judge", "command"),
    [
        (lambda s, d: "b:2" in (s, d), "ssh b nvidia-smi -q -i 2 -d ECC,PERFORMANCE,PAGE_RETIREMENT"),
        (lambda s, d: "b:2" in (s, d) and s[0] != d[0], "ssh b ibstat mlx5_2"),
        (lambda s, d: "b" in (s[0], d[0]) and s[0] != d[0], "ssh b nvidia-smi topo -m"),
        (lambda s, d: s[0] == d[0] == "b" and (s[2] in "01") != (d[2] in "01"), "ssh b nvidia-smi topo -m"),
    ],
)
def test_what_is_slow_is_inspected_on_its_node(judge: Callable[[str, str], bool], command: str) -> None:
    (found,) = [
        one for one in diagnose(fabric("abcd", 4, lambda s, d: 0.3 if judge(s, d) else 1.0)).findings if one.cells
    ]
    assert found.next[0] == command


def test_a_slow_nic_is_found_among_values_that_vary_threefold() -> None:
    # Rates (GB/s) of CPU ranks on a busy machine; n1:1 receives little over its NIC.
    rates = """
        n0:0    -   2.70 1.72 1.46   2.19 1.82 2.23 0.78
        n0:1  3.03    -  0.83 0.0497 2.23 1.99 0.68 1.79
        n1:0  1.71 2.69    -  2.12   1.78 1.88 1.62 2.55
        n1:1  3.93 1.80 2.01    -    2.66 1.48 2.50 1.64
        n2:0  2.86 4.35 1.78 1.99      -  4.06 2.09 1.86
        n2:1  4.14 2.31 2.65 0.0499  3.96   -  0.96 2.44
        n3:0  2.17 1.74 1.48 2.01    2.39 1.01   -  3.46
        n3:1  2.26 2.23 2.89 0.0503  2.38 2.92 2.83   -
    """
    rows = [line.split() for line in rates.strip().splitlines()]
    names = [row[0] for row in rows]
    about: dict[str, Any] = {"kind": "cpu", "nic": "eth{index}", "address": "10.{index}.0.{host}"}
    model = session_of(["n0", "n1", "n2", "n3"], 2, rails=True, options={"probes": ["p2p"]}, **about)
    measured = [
        Measurement(Layer.P2P, row[0], name, Verdict.OK, float(rate), "GB/s", 1 << 20, time=2.0, transport="TCP")
        for row in rows
        for name, rate in zip(names, row[1:], strict=True)
        if rate != "-"
    ]
    model.apply(Measured(measurements=measured, time=2.0))
    first = diagnose(model).findings[0]
    assert title(first).startswith("n1:1 is slow with other nodes as receiver (sending works)")
    assert (first.subject.kind, first.subject.name, len(first.cells)) == (Kind.NIC, "n1 eth1", 3)
    assert not any("node n1" in line for line in evidence(first)), "its other pairs are as usual"


def moved(model: Model, node: str, **counts: int) -> None:
    found = {"hca": {"mlx5_0/1": counts}}
    model.apply(CounterDeltas(node=node, since=1.5, until=2.5, deltas=found, time=2.5))


def test_congestion_and_loss_are_evidence_of_a_slow_pair() -> None:
    model = fabric("abcd", 1, lambda src, dst: 0.4 if (src, dst) == ("a:0", "b:0") else 1.0)
    moved(model, "a", rp_cnp_handled=5200, rp_cnp_ignored=2)
    moved(model, "b", np_cnp_sent=5300, out_of_sequence=40, rx_write_requests=10**6)
    (found,) = [one for one in diagnose(model).findings if ("a:0", "b:0") in one.cells]
    lines = evidence(found)
    assert "congested while tested: a mlx5_0/1: rp_cnp_handled 5,200, rp_cnp_ignored 2" in lines
    assert "congested while tested: b mlx5_0/1: np_cnp_sent 5,300" in lines
    assert "lost while tested: b mlx5_0/1: out_of_sequence 40" in lines
    slow = {(row["src"], row["dst"]): row["error"] for row in rows(model) if row["layer"] == "p2p"}
    assert slow["a:0", "b:0"] == "40 % of the usual 45 GB/s; congested"
    assert slow["a:0", "c:0"] is None


def test_a_healthy_pair_with_some_notifications_is_no_finding() -> None:
    model = fabric("abcd", 1, lambda src, dst: 1.0)
    for node in "abcd":
        moved(model, node, rp_cnp_handled=900, np_cnp_sent=900)
    assert diagnose(model).findings == []


def test_a_slow_pair_without_congestion_has_no_such_evidence() -> None:
    model = fabric("abcd", 1, lambda src, dst: 0.4 if (src, dst) == ("a:0", "b:0") else 1.0)
    moved(model, "a", rp_cnp_handled=3, port_xmit_wait=10**6)
    (found,) = [one for one in diagnose(model).findings if ("a:0", "b:0") in one.cells]
    assert not [line for line in evidence(found) if "while tested" in line]
