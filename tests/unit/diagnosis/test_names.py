"""Names that resolve to wrong addresses, slow logins and name services, and the address of rank 0."""

from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.model.events import InventoryUpdate, ProbeResult, SessionStart
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, placed_title

NODES = ("h0", "h1", "h2", "h3")
RIGHT = {name: [f"10.71.0.{at}"] for at, name in enumerate(NODES, 1)}


def found(changed: dict[str, dict[str, Any]], every: dict[str, Any] | None = None, **options: Any) -> list[Finding]:
    """Return the findings of rules about names, of four nodes with results of probes."""
    model = Model()
    model.apply(SessionStart(nodes=list(NODES), options=options, time=0.0))
    for at, name in enumerate(NODES, 1):
        addresses = [{"name": "lo", "addresses": [{"address": "127.0.0.1"}]}]
        addresses += [{"name": "eth0", "addresses": [{"address": f"10.71.0.{at}"}, {"address": "172.17.0.1"}]}]
        inventory = {"host": name, "nics": addresses, "env": {}, **changed.get(name, {}).get("inventory", {})}
        model.apply(InventoryUpdate(node=name, value=inventory))
        results: dict[str, Any] = {"names": {"host": name, "names": RIGHT, "reverse": {"10.71.0.9": 0.002}}}
        for probe, value in {**results, **(every or {}), **changed.get(name, {})}.items():
            if probe != "inventory" and value is not None:
                model.apply(ProbeResult(node=name, probe=probe, value=value))
    diagnose(model)
    return [one for one in preflight(model).findings if one.rule.id in ("FT146", "FT147", "FT148", "FT149")]


def names(**wrong: list[str]) -> dict[str, Any]:
    return {"names": {"host": "x", "names": {**RIGHT, **wrong}, "reverse": {}}}


def texts(*args: Any, **more: Any) -> list[tuple[str, str]]:
    return [(str(one.severity), placed_title(one)) for one in found(*args, **more)]


def test_right_names_are_no_finding() -> None:
    assert found({}) == []
    assert found({"h1": names(h2=["172.17.0.1"])}) == [], "an address that all nodes have"
    assert found({}, names(h0=[], h1=[], h2=[], h3=[])) == [], "the names are those of an ssh configuration"
    assert found({"h1": {"names": {"names": {}, "reverse": {}}}}) == [], "no answer in time"
    assert found({"h1": {"names": {"names": [], "reverse": 3}}, "h2": {"names": {"names": {"h1": {}}}}}) == []


def test_a_peer_that_resolves_to_another_one() -> None:
    one, own = found({"h1": names(h2=["10.71.0.4"], h1=["127.0.1.1"])})
    assert placed_title(one) == "h1: h2 resolves to 10.71.0.4, an address of h3"
    assert evidence(one) == ("its address is 10.71.0.3", "a job whose MASTER_ADDR is h2 connects elsewhere")
    assert (str(one.severity), one.next) == ("bad", ("ssh h1 getent ahosts h2",))
    assert placed_title(own) == "h1: its own name resolves to 127.0.1.1"
    assert str(own.severity) == "warn"


def test_wrong_addresses_of_other_kinds() -> None:
    assert texts({"h1": names(h2=["127.0.1.1"])}) == [("bad", "h1: h2 resolves to 127.0.1.1, the node itself")]
    stale = [("warn", "h[0-1]: h2 resolves to 10.9.9.9, which h2 does not have")]
    assert texts({"h0": names(h2=["10.9.9.9"]), "h1": names(h2=["10.9.9.9"])}) == stale
    assert texts({}, names(h2=["10.9.9.9"])) == [], "translated on the way, for all that is known"
    two = names(h2=["10.9.9.9", "10.71.0.3"])
    assert texts({"h1": two}) == [], "one of its addresses is right"


def test_own_names_on_the_loopback_as_debian_has_them_are_notes() -> None:
    every = {name: names(**{name: ["127.0.1.1"]}) for name in NODES}
    assert texts(every) == [("note", "h[0-3]: its own name resolves to 127.0.1.1")]
    gloo = {**names(h1=["127.0.1.1"]), "inventory": {"env": {"GLOO_SOCKET_IFNAME": "eth0"}}}
    assert texts({"h1": gloo}) == [("note", "h1: its own name resolves to 127.0.1.1")]


def test_a_slow_login_is_named_with_what_it_waits_for() -> None:
    usual = {"login": {"seconds": 0.41}}
    (one,) = found({"h1": {"login": {"seconds": 9.02}, "names": {"names": {}, "reverse": {"10.70.0.9": None}}}}, usual)
    assert placed_title(one) == "h1: the login takes 9 s until Python runs, 400 ms on the others"
    assert evidence(one) == ("looking up the name of 10.70.0.9 takes more than 2 s: sshd waits for it (UseDNS)",)
    assert one.next[0] == "ssh -v h1 true"
    assert texts({"h1": {"login": {"seconds": 2.9}}}, usual) == []
    assert (
        texts({"h1": {"login": {"seconds": 9.0}}, "h2": {"login": {"seconds": 9.0}}}, {"login": {"seconds": 8}}) == []
    )
    assert texts({name: {"login": None} for name in NODES if name != "h1"}, {"login": {"seconds": 9}}) == []


def test_a_slow_interpreter_is_found_where_all_logins_are_slow_by_load() -> None:
    busy = {"h0": {"login": {"seconds": 3.2}}, "h2": {"login": {"seconds": 3.4}}, "h3": {"login": {"seconds": 4.8}}}
    (one,) = found({**busy, "h1": {"login": {"seconds": 10.5}}}, remote_python="/opt/py/bin/python3")
    assert placed_title(one) == "h1: the login takes 10.5 s until Python runs, 3.4 s on the others"
    assert one.next[0] == "ssh h1 'time /opt/py/bin/python3 -c pass'"
    assert found({**busy, "h1": {"login": {"seconds": 8.9}}}) == []


def test_slow_reverse_look_ups_are_no_fault_where_all_have_them() -> None:
    slow = {"names": {"names": {}, "reverse": {"10.71.0.3": 1.4}}}
    assert texts({"h1": slow}) == [("warn", "h1: looking up the name of 10.71.0.3 takes 1.4 s, 2 ms on the others")]
    assert texts({}, slow) == []


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (dict.fromkeys(NODES, "connected"), []),
        (dict.fromkeys(NODES, "refused"), [("warn", "h[0-3]", "connection refused: nothing listens there")]),
        ({**dict.fromkeys(NODES, "connected"), "h1": "timeout"}, [("bad", "h1", "no answer to a connection")]),
        ({**dict.fromkeys(NODES, "connected"), "h1": "refused"}, [("bad", "h1", "connection refused")]),
        (dict.fromkeys(NODES, "unresolved"), [("bad", "h[0-3]", "the name does not resolve")]),
    ],
)
def test_the_address_of_rank_0(states: dict[str, str], expected: list[tuple[str, str, str]]) -> None:
    values = {node: {"host": "h2", "port": 29500, "addresses": ["10.71.0.3"], "state": s} for node, s in states.items()}
    one = texts({node: {"master": value} for node, value in values.items()})
    assert [severity for severity, _ in one] == [severity for severity, _, _ in expected]
    for (_, line), (_, nodes, problem) in zip(one, expected, strict=True):
        assert line.startswith(f"{nodes}: h2:29500: {problem}"), line
        assert line.endswith(", 3 nodes connect") == (nodes == "h1")
