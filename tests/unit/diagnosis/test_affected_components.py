"""Scopes of bad address pairs: what is named needs all of it to be bad, and several peers that show it."""

import itertools
from collections.abc import Callable

import pytest

from fabtui.diagnosis.finding import AddressPair
from fabtui.diagnosis.mesh.affected_components import ComponentKind, Scope, scopes
from fabtui.diagnosis.mesh.mesh import PathMeasurements, is_blocked
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

#: Source node, its rail, destination node, its rail.
Judge = Callable[[str, int, str, int], object]


def pair(a: str, r: int, b: str, s: int) -> AddressPair:
    return AddressPair(a, f"{a}{r}", b, f"{b}{s}")


def found(nodes: str, rails: int, bad: Judge, tested: Judge = lambda *_: True, known: bool = True) -> list[Scope]:
    """Return the scopes of a mesh; without rails known, addresses are all that there is."""
    every = [
        (a, r, b, s)
        for a, b in itertools.permutations(nodes, 2)
        for r, s in itertools.product(range(rails), repeat=2)
        if tested(a, r, b, s)
    ]
    lost = {pair(*one) for one in every if bad(*one)}
    result = scopes(lost, {pair(*one) for one in every}, lambda n, address: int(address[1:]) if known else None, nodes)
    assert set().union(*(one.pairs for one in result)) == lost, "all that is bad is explained, and nothing else"
    return result


def named(*args: object, **more: object) -> list[tuple[str, str, tuple[int, ...], str]]:
    result: list[Scope] = found(*args, **more)  # type: ignore[arg-type]
    return [(str(one.kind), "".join(one.nodes), one.rails, one.direction) for one in result]


def test_nothing_bad_is_no_scope() -> None:
    assert named("abc", 2, lambda *_: False) == []


def test_an_address_needs_two_peers() -> None:
    assert named("abc", 1, lambda a, r, b, s: "a" in (a, b)) == [("address", "a", (0,), "both")]
    assert named("ab", 1, lambda *_: True) == [("pair", "ab", (0,), "both")]
    assert named("abc", 1, lambda a, r, b, s: "a" in (a, b) and "c" not in (a, b)) == [("pair", "ab", (0,), "both")]


def test_a_node_has_all_its_addresses_bad() -> None:
    assert named("abc", 2, lambda a, r, b, s: "b" in (a, b)) == [("node", "b", (0, 1), "both")]
    assert named("abc", 2, lambda a, r, b, s: ("b", 1) in ((a, r), (b, s))) == [("address", "b", (1,), "both")]


def test_a_node_of_which_one_address_was_tested_is_about_that_address() -> None:
    one = named("abcd", 2, lambda a, r, b, s: a == "b", lambda a, r, b, s: ("b", 1) not in ((a, r), (b, s)))
    assert one == [("address", "b", (0,), "out")]


@pytest.mark.parametrize(("sends", "direction"), [(True, "out"), (False, "in")])
def test_a_node_that_is_bad_in_one_direction(sends: bool, direction: str) -> None:
    assert named("abc", 2, lambda a, r, b, s: (a if sends else b) == "b") == [("node", "b", (0, 1), direction)]
    one = named("abcd", 2, lambda a, r, b, s: ((a, r) if sends else (b, s)) == ("b", 1))
    assert one == [("address", "b", (1,), direction)]


def test_with_one_peer_either_end_may_be_at_fault() -> None:
    assert named("ab", 2, lambda a, r, b, s: a == "a") == [("pair", "ab", (0, 1), "out")]


def test_a_rail_is_bad_on_all_its_nodes() -> None:
    assert named("abcd", 3, lambda a, r, b, s: 1 in (r, s)) == [("rail", "abcd", (1,), "both")]
    two = named("abcd", 3, lambda a, r, b, s: {("a", 1), ("b", 1)} & {(a, r), (b, s)})
    assert two == [("address", "a", (1,), "both"), ("address", "b", (1,), "both")]


def test_everything() -> None:
    assert named("abc", 2, lambda *_: True) == [("everything", "abc", (), "both")]


def test_between_rails() -> None:
    assert named("abc", 3, lambda a, r, b, s: r != s) == [("across", "", (0, 1, 2), "both")]
    assert named("abc", 3, lambda a, r, b, s: {r, s} == {0, 2}) == [("across", "", (0, 2), "both")]
    assert named("abc", 3, lambda a, r, b, s: (r, s) == (2, 0)) == [("across", "", (2, 0), "out")]
    assert named("abc", 3, lambda a, r, b, s: r != s and 1 in (r, s)) == [("across", "", (1,), "both")]
    assert named("abc", 3, lambda a, r, b, s: r != s == 1) == [("across", "", (1,), "in")]
    assert named("abc", 3, lambda a, r, b, s: s != r == 1) == [("across", "", (1,), "out")]
    # With two rails, the path between them is all there is.
    assert named("abc", 2, lambda a, r, b, s: (r, s) == (0, 1)) == [("across", "", (0, 1), "out")]


def test_what_one_node_alone_shows_between_rails_is_about_that_node() -> None:
    kinds = {kind for kind, *_ in named("abc", 3, lambda a, r, b, s: a == "a" and (r, s) == (0, 2))}
    assert kinds == {"pair"}


def test_groups_of_nodes_between_which_nothing_was_tested_are_no_split() -> None:
    apart = ("ab", "cd")
    result = found("abcd", 1, lambda *_: False, lambda a, r, b, s: any(a in half and b in half for half in apart))
    assert result == []
    # Something else is bad elsewhere.
    lost = {pair("e", 1, "f", 1), pair("f", 1, "e", 1)}
    inside = {pair(a, 0, b, 0) for half in apart for a, b in itertools.permutations(half, 2)}
    scoped = scopes(lost, inside | lost, lambda n, address: int(address[1:]), "abcdef")
    assert [one.kind for one in scoped] == [ComponentKind.PAIR]
    assert all(one.pairs for one in scoped)


def test_a_split_rail() -> None:
    (halves,) = found("abcd", 2, lambda a, r, b, s: r == s == 1 and (a in "ab") != (b in "ab"))
    assert (halves.kind, halves.rails, halves.direction) == (ComponentKind.SPLIT, (1,), "both")
    assert halves.groups == (("a", "b"), ("c", "d"))
    (one_way,) = found("abcd", 2, lambda a, r, b, s: r == s == 1 and a in "cd" and b in "ab")
    assert (one_way.groups, one_way.direction) == ((("c", "d"), ("a", "b")), "out")
    # A half of one node is not a half, and a path that is bad within a half belongs to no split.
    assert all(kind == "pair" for kind, *_ in named("abc", 2, lambda a, r, b, s: r == s == 1 and {a, b} == {"a", "b"}))
    within = named("abcd", 2, lambda a, r, b, s: r == s == 1 and ((a in "ab") != (b in "ab") or (a, b) == ("a", "b")))
    assert all(kind == "pair" for kind, *_ in within)


def test_traffic_between_rails_that_takes_a_split_rail_belongs_to_the_split() -> None:
    apart = {(a, b) for a, b in itertools.permutations("abcd", 2) if (a in "ab") != (b in "ab")}
    # Hosts that do not route by source send over their interface in the network of the destination.
    (sent,) = found("abcd", 2, lambda a, r, b, s: s == 0 and (a, b) in apart)
    assert (sent.kind, sent.rails, len(sent.pairs)) == (ComponentKind.SPLIT, (0,), 16)
    (both,) = found("abcd", 2, lambda a, r, b, s: (a, b) in apart)
    assert (both.kind, both.rails, len(both.pairs)) == (ComponentKind.SPLIT, (0, 1), 32)
    other = named("abcd", 2, lambda a, r, b, s: (a, b) in apart and (r == s == 0 or (a, r, b, s) == ("a", 1, "c", 0)))
    assert [kind for kind, *_ in other] == ["split", "pair"]


def test_pairs_of_nodes_by_direction() -> None:
    paths = {("a", 0, "c", 0), ("c", 0, "a", 0), ("a", 1, "c", 1), ("c", 1, "b", 1)}
    assert named("abcd", 2, lambda *one: one in paths) == [
        ("pair", "ac", (0,), "both"),
        ("pair", "ac", (1,), "out"),
        ("pair", "cb", (1,), "out"),
    ]


def test_without_known_rails_addresses_and_nodes_are_named_alone() -> None:
    assert named("abc", 2, lambda a, r, b, s: r != s, known=False)[0][0] == "pair"
    one = named("abc", 2, lambda a, r, b, s: ("b", 1) in ((a, r), (b, s)), known=False)
    assert one == [("address", "b", (), "both")]


def test_without_routing_by_source_all_to_a_rail_leaves_by_its_interface() -> None:
    """Paths of other addresses of the node to that rail are part of the scope."""
    (one,) = found("abcd", 3, lambda a, r, b, s: a == "b" and s == 1)
    assert (one.kind, one.nodes, one.rails, one.direction) == (ComponentKind.ADDRESS, ("b",), (1,), "out")
    assert len(one.pairs) == 9
    (both,) = found("abcd", 3, lambda a, r, b, s: ("b", 1) in ((a, r), (b, s)) or (a == "b" and s == 1))
    assert (both.kind, both.direction) == (ComponentKind.ADDRESS, "both")


def datagrams(verdict: Verdict, size: int | None = None, **extra: object) -> PathMeasurements:
    return PathMeasurements(udp=Measurement(Layer.UDP, "a", "b", verdict, bytes=size, extra=dict(extra)))


@pytest.mark.parametrize(
    ("path", "small", "large"),
    [
        (PathMeasurements(), None, None),
        (datagrams(Verdict.OK, 8972), True, True),
        (datagrams(Verdict.OK), True, None),
        (datagrams(Verdict.FAILED), None, None),
        (datagrams(Verdict.FAILED, sent={"small": 5, "big": 3}), None, None),
        (datagrams(Verdict.FAILED, arrived={"small": 5, "big": 3}), True, None),
        (datagrams(Verdict.FAILED, sent={"small": 5, "big": 3}, arrived={"small": 5, "big": 0}), True, False),
        (datagrams(Verdict.SLOW, sent={"small": 5, "big": 3}, arrived={"small": 0, "big": 1}), False, True),
        (datagrams(Verdict.FAILED, sent={"small": 5}, arrived={"small": 5}), True, False),
        (datagrams(Verdict.SLOW, sent={"small": 5}, arrived={"small": 5}), True, None),
        (datagrams(Verdict.SLOW, sent=[5], arrived=7), None, None),
    ],
)
def test_datagrams_arrived_only_if_they_were_counted(path: PathMeasurements, small: object, large: object) -> None:
    assert (path.small_arrived, path.large_arrived) == (small, large)


def test_a_path_is_lossy_if_some_packets_are_lost_and_not_all_large_ones() -> None:
    def measured(layer: Layer, verdict: Verdict, loss: float) -> Measurement:
        return Measurement(layer, "a", "b", verdict, extra={"loss": loss})

    assert PathMeasurements(ping=measured(Layer.PING, Verdict.SLOW, 20.0)).lossy
    assert not PathMeasurements(ping=measured(Layer.PING, Verdict.TIMEOUT, 100.0)).lossy
    assert PathMeasurements(mtu=measured(Layer.MTU, Verdict.SLOW, 50.0)).lossy
    assert not PathMeasurements(mtu=measured(Layer.MTU, Verdict.SLOW, 100.0)).lossy
    assert is_blocked(measured(Layer.MTU, Verdict.SLOW, 100.0))
    assert is_blocked(measured(Layer.MTU, Verdict.TIMEOUT, 0.0))
    assert not is_blocked(measured(Layer.MTU, Verdict.OK, 100.0))
    assert not is_blocked(measured(Layer.PING, Verdict.TIMEOUT, 100.0))


def test_a_rail_does_not_hide_an_address_that_is_bad_as_well() -> None:
    both = named("abcd", 3, lambda a, r, b, s: 1 in (r, s) or ("a", 0) in ((a, r), (b, s)))
    assert both == [("rail", "abcd", (1,), "both"), ("address", "a", (0,), "both")]
