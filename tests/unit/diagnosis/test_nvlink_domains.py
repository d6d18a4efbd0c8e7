"""NVLink domains of racks: their pairs are a class, and FT124 to FT126 name what falls out of them."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind, Severity
from fabtui.model.endpoints import ClassKey, PairClass
from fabtui.model.events import InventoryUpdate, Measured, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.report.healthy import healthy_text
from tests.conftest import session_of

#: Cluster and clique of each tray; the cluster of one without a domain is "".
Trays = dict[str, tuple[str, int]]
RACKS: Trays = dict.fromkeys("abcd", ("aa", 1)) | dict.fromkeys("efgh", ("bb", 1))
MNNVL, GDR = "P2P/MNNVL", "NET/IB/0/GDRDMA"
GPUS = 2


def fabric_of(tray: tuple[str, int], state: str = "completed") -> dict[str, Any]:
    return {"state": state, "cluster": tray[0] or None, "clique": tray[1]}


def model_of(
    trays: Trays,
    over_network: Callable[[str, str], bool] = lambda a, b: False,
    gpus: dict[str, dict[str, Any]] | None = None,
    imex: dict[str, str] | None = None,
    **options: Any,
) -> Model:
    """Racks whose trays are joined by NVLink within a domain, and by RDMA elsewhere and where it is asked for."""
    model = session_of(trays, GPUS, rails=True, options=options, name="G")
    for node, tray in trays.items():
        model.apply(InventoryUpdate(node=node, value={"gpus": [{"name": "G"}] * GPUS}, time=1.0))
        own = [{"index": at, "fabric": (gpus or {}).get(f"{node}:{at}", fabric_of(tray))} for at in range(GPUS)]
        model.apply(ProbeResult(node=node, probe="gpus", value={"gpus": own}, time=1.0))
        if imex:
            model.apply(ProbeResult(node=node, probe="imex", value={"state": imex.get(node, "READY")}, time=1.0))
    rows = []
    for at, (a, b) in enumerate(itertools.permutations(map(str, model.endpoints), 2)):
        inside = trays[a[0]] == trays[b[0]] and trays[a[0]][0] and not over_network(a[0], b[0])
        over_nvlink = a[0] == b[0] or inside
        value = (740.0 if over_nvlink else 46.0) * (1 + 0.01 * (at % 3))
        transport = MNNVL if over_nvlink else GDR
        rows.append(Measurement(Layer.P2P, a, b, Verdict.OK, value, "GB/s", 1 << 28, 2.0, transport=transport))
    model.apply(Measured(measurements=rows, time=2.0))
    return model


def found(model: Model) -> list[Finding]:
    return diagnose(model).findings


def test_pairs_within_a_domain_are_a_class_and_healthy_racks_are_silent() -> None:
    model = model_of(RACKS)
    assert model.table.key_between("a:0", "b:1") == ClassKey(PairClass.SAME_DOMAIN)
    assert model.table.key_between("a:0", "e:0") == ClassKey(PairClass.SAME_RAIL)
    assert model.table.key_between("a:0", "e:1") == ClassKey(PairClass.CROSS_RAIL)
    assert model.table.key_between("a:0", "a:1") == ClassKey(PairClass.SAME_NODE)
    assert model.table.key_between("a", "b") == ClassKey(PairClass.NODE_PAIR, together=True)
    assert model.table.key_between("a", "e") == ClassKey(PairClass.NODE_PAIR)
    assert found(model) == []
    assert model.counts()[Verdict.OK] == 16 * 15


def test_a_probe_that_no_longer_answers_takes_no_domain_away() -> None:
    model = model_of(RACKS)
    model.apply(ProbeResult(node="a", probe="gpus", error="timed out", time=3.0))
    assert model.table.class_between("a:0", "b:0") is PairClass.SAME_DOMAIN
    lost = {"gpus": [{"index": at, "fabric": fabric_of(("", 1))} for at in range(GPUS)]}
    model.apply(ProbeResult(node="a", probe="gpus", value=lost, time=4.0))
    assert model.table.class_between("a:0", "b:0") is PairClass.SAME_RAIL


@pytest.mark.parametrize(
    ("tray", "severity", "text"),
    [
        (("", 0), Severity.BAD, "c is in no NVLink domain (no cluster UUID), unlike [a-b,d-h]"),
        (("aa", 2), Severity.WARN, "c is outside the NVLink domain of [a-b,d]: clique 2, theirs is 1"),
    ],
)
def test_a_tray_outside_its_domain_is_named_rather_than_its_slow_pairs(
    tray: tuple[str, int], severity: Severity, text: str
) -> None:
    (one,) = found(model_of(RACKS | {"c": tray}))
    assert (one.rule.id, one.subject, one.severity) == ("FT124", (Kind.NODE, "c"), severity)
    assert title(one).replace("a,b,d,e,f,g,h", "[a-b,d-h]").replace("a,b,d", "[a-b,d]") == text
    assert any("within an NVLink domain" in line for line in evidence(one))
    assert one.next[0].startswith("ssh c nvidia-smi -q")


def test_one_gpu_outside_the_domain_of_its_node_is_named() -> None:
    model = model_of(RACKS, gpus={"c:1": fabric_of(("", 0))})
    one = next(one for one in found(model) if one.rule.id == "FT124")
    assert (one.subject, one.severity) == ((Kind.GPU, "c:1"), Severity.BAD)


def test_what_the_gpus_of_a_tray_report_about_their_fabric_is_evidence_of_the_same_finding() -> None:
    lost = fabric_of(("", 0)) | {"summary": "incorrect configuration"}
    model = model_of(RACKS, gpus={"c:0": lost, "c:1": lost})
    (one,) = [one for one in found(model) if one.rule.id in ("FT123", "FT124")]
    assert (one.rule.id, one.subject) == ("FT124", (Kind.NODE, "c"))
    assert any("incorrect configuration" in line for line in evidence(one))


@pytest.mark.parametrize(
    "trays",
    [
        pytest.param(dict.fromkeys("abcd", ("", 0)), id="boards with NVSwitches of their own"),
        pytest.param({name: (f"{name}{name}", 1) for name in "abcd"}, id="one node of each rack"),
        pytest.param(RACKS | {"i": ("cc", 1)}, id="one node of a further rack"),
    ],
)
def test_other_domains_by_design_are_no_finding(trays: Trays) -> None:
    assert found(model_of(trays)) == []


def test_what_is_unknown_about_a_fabric_is_no_finding() -> None:
    """The node reports no clique, or has not joined its fabric, which is another finding (FT123)."""
    for fabric in ({"state": "completed", "cluster": None, "clique": None}, fabric_of(("", 0), "in progress")):
        model = model_of(RACKS, gpus=dict.fromkeys(("c:0", "c:1"), fabric))
        assert "FT124" not in {one.rule.id for one in found(model)}


def test_a_domain_in_two_cliques_is_split() -> None:
    (one,) = found(model_of(RACKS | {"c": ("aa", 2), "d": ("aa", 2)}))
    assert (one.rule.id, one.severity, one.nodes) == ("FT125", Severity.WARN, ("a", "b", "c", "d"))
    assert "in clique 1" in title(one)
    assert "in clique 2" in title(one)


def test_a_tray_that_lost_nvlink_to_the_others_is_one_finding_with_the_state_of_imex() -> None:
    model = model_of(RACKS, lambda a, b: "c" in (a, b), imex={"c": "UNAVAILABLE"})
    (one,) = [one for one in found(model) if one.cells]
    assert (one.rule.id, one.subject, one.severity) == ("FT126", (Kind.NODE, "c"), Severity.BAD)
    assert len(one.cells) == 2 * 3 * GPUS * GPUS
    assert any("IMEX is UNAVAILABLE" in line for line in evidence(one))
    assert diagnose(model).code == 1


def test_racks_that_use_rdma_only_are_named_as_a_whole_although_no_pair_is_slow() -> None:
    model = model_of(RACKS, lambda a, b: True, env=["NCCL_MNNVL_ENABLE=0"])
    (one,) = found(model)
    assert (one.rule.id, one.subject) == ("FT126", (Kind.FABRIC, "all nodes"))
    assert "set: NCCL_MNNVL_ENABLE=0 (--env)" in evidence(one)
    assert (diagnose(model).code, Verdict.SLOW in model.counts()) == (1, False)


def test_one_rack_that_uses_rdma_only_is_one_finding() -> None:
    (one,) = [one for one in found(model_of(RACKS, lambda a, b: a < "e" and b < "e")) if one.cells]
    assert (one.rule.id, one.subject.kind, one.nodes) == ("FT126", Kind.NODES, ("a", "b", "c", "d"))


def test_a_dead_nic_of_a_tray_is_blamed_for_pairs_between_racks_only() -> None:
    model = model_of(RACKS)
    for a, b in itertools.permutations(map(str, model.endpoints), 2):
        if "c:1" in (a, b) and model.table.class_between(a, b) in (PairClass.SAME_RAIL, PairClass.CROSS_RAIL):
            row = Measurement(Layer.P2P, a, b, Verdict.FAILED, None, "GB/s", time=3.0, error="no route")
            model.apply(Measured(measurements=[row], time=3.0))
    (one,) = found(model)
    assert (one.subject.kind, one.subject.name) == (Kind.NIC, "c rail 1")


@pytest.mark.parametrize(("together", "words"), [(True, "of its NVLink domain"), (False, "of other NVLink domains")])
def test_a_tray_that_fails_within_its_domain_or_with_others_is_named_with_that(together: bool, words: str) -> None:
    model = model_of(RACKS)
    for a, b in itertools.permutations(map(str, model.endpoints), 2):
        kind = model.table.class_between(a, b)
        if "c" in (a[0], b[0]) and a[0] != b[0] and (kind is PairClass.SAME_DOMAIN) is together:
            row = Measurement(Layer.P2P, a, b, Verdict.FAILED, None, "GB/s", time=3.0, error="no route")
            model.apply(Measured(measurements=[row], time=3.0))
    (one,) = found(model)
    assert one.subject == (Kind.NODE, "c")
    assert title(one).endswith(words)


def test_a_healthy_set_keeps_the_nodes_of_a_domain_together_and_names_them() -> None:
    mixed = {name: RACKS[name] for name in "aebfcgdh"}
    healthy = diagnose(model := model_of(mixed | {"i": ("", 0)})).healthy
    assert healthy is not None
    assert healthy.nodes == ("a", "b", "c", "d", "e", "f", "g", "h", "i")
    assert healthy.domains == {"NVLink aa/1": ["a", "b", "c", "d"], "NVLink bb/1": ["e", "f", "g", "h"]}
    text = healthy_text(model, healthy)
    assert "NVLink aa/1  a,b,c,d  4 nodes" in text
    assert "together in an NVLink domain" in text


def test_a_healthy_set_of_one_domain_needs_no_word_about_it() -> None:
    model = model_of(dict.fromkeys("abcd", ("aa", 1)))
    healthy = diagnose(model).healthy
    assert healthy is not None
    assert "NVLink" not in healthy_text(model, healthy)
