"""What the mesh of addresses tells: cut rails, broken ways, MTU black holes, firewalls, loss; each named once.

An echo that does not come back tells nothing of the way it was lost on. Where datagrams were counted at their
destination, these decide which way is broken; where they were not, that is said.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable

from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh.paths import DEAD, Found, MeshFinding, Subject, does_not_pass, key_of
from fabtui.diagnosis.mesh.scope_text import ScopeWords, names
from fabtui.diagnosis.mesh.scopes import Kind, Scope, Way, scopes
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: A round trip this many times the median of its class, and by so many ms above it, is worth a word.
LATE_RATIO, LATE_MS = 10.0, 1.0
#: What is often behind a scope.
USUAL = (
    (
        Kind.MANY,
        "a neighbour table that is full loses ways like that (net.ipv4.neigh.default.gc_thresh3, the kernel's log)",
    ),
    (Kind.ACROSS, "no router, or hosts that drop what comes in by another interface than they answer by (rp_filter)"),
)
#: Of so many ways of an address half must lose some, before the address is said to.
FEWEST_OF_LOSS = 4
#: More findings of one subject than this are counted, not told.
MOST = 24


def mesh_findings(model: Model) -> list[MeshFinding]:
    """Return what is wrong between addresses, the gravest first; nothing where nothing was tested."""
    mesh = _Mesh(model)
    found = [*mesh.cuts(), *mesh.echoes(), *mesh.holes(), *mesh.firewalls(), *mesh.losses(), *mesh.late()]
    kept: list[MeshFinding] = []
    told: Counter[Subject] = Counter()
    for finding in found:
        told[finding.subject] += 1
        if told[finding.subject] <= MOST:
            kept.append(finding)
    return kept


class _Mesh:
    """The ways of a model, what is known of each, and what it comes to."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.order = list(model.nodes)
        self.ways: dict[Way, Found] = {}
        for layer in MESH:
            for measurement in model.addresses.pairs(layer):
                setattr(self.ways.setdefault(key_of(measurement)[1], Found()), str(layer), measurement)
        self.explained: set[tuple[Layer, Way]] = set()
        self.words = ScopeWords(model, self.ways)
        self.dead = {way for way in self.ways if self._is_dead(way)}

    def _is_dead(self, way: Way) -> bool:
        """Whether nothing passes this way: echoes are lost, and so are datagrams, where they were counted."""
        found = self.ways[way]
        if found.arrived is None:
            back = self.ways.get(way.back)
            # An echo is lost with either way; the other one may be known to be the broken one.
            return found.no_echo and not (back is not None and back.arrived is False and back.no_echo)
        return not found.arrived and not found.echo

    def _scopes(self, bad: Iterable[Way], tested: Iterable[Way] | None = None) -> list[Scope]:
        """Return what explains bad ways; ways that let nothing pass say nothing of what else is wrong with them."""
        seat = self.model.addresses.seat
        bad = set(bad)
        known = set(self.ways if tested is None else tested)
        return scopes(bad, (known - self.dead) | bad, lambda n, a: seat(n, a).rail, self.order)

    def _make(
        self,
        subject: Subject,
        text: str,
        scope: Scope,
        layers: Iterable[Layer],
        evidence: Iterable[str],
        following: str,
    ) -> MeshFinding:
        cells = set()
        for way in scope.ways:
            for one in (way, way.back):
                found = self.ways.get(one)
                for layer in layers:
                    m = found.of(layer) if found is not None else None
                    if m is not None and m.verdict not in (Verdict.OK, Verdict.SKIPPED):
                        cells.add((layer, one))
        fresh = cells - self.explained
        self.explained |= cells
        nodes = scope.nodes or tuple(dict.fromkeys(node for way in scope.ways for node in (way.src, way.dst)))
        return MeshFinding(
            subject,
            text,
            tuple(sorted(nodes, key=lambda node: self.order.index(node) if node in self.order else len(self.order))),
            tuple(line for line in evidence if line),
            following,
            frozenset(fresh),
        )

    # -- nothing passes -----------------------------------------------------------------------------------------------

    def cuts(self) -> list[MeshFinding]:
        """Return what lets nothing pass."""
        found = []
        for scope in self._scopes(self.dead):
            known = all(self.ways[way].arrived is not None for way in scope.ways)
            evidence = [text for kind, text in USUAL if kind is scope.kind]
            evidence += [self.words.count(scope, "address pairs let nothing pass"), self.words.port(scope)]
            if not known:
                evidence.append(self._not_counted(scope))
            found.append(
                self._make(Subject.CUT, self._cut_text(scope, known), scope, MESH, evidence, self.words.look(scope))
            )
        return found

    def _not_counted(self, scope: Scope) -> str:
        """Say why the way on which echoes are lost is not known: no datagrams were sent, or they were not counted."""
        rows = [found.udp for way in scope.ways if (found := self.ways[way]).arrived is None and found.udp is not None]
        errors = Counter(one_line(row.error, 120) for row in rows if row.error)
        if errors:
            return f"no datagrams could be counted, which would tell the way: {errors.most_common(1)[0][0]}"
        return "only echoes were sent, which do not tell the way; --probes udp tells it"

    def _cut_text(self, scope: Scope, known: bool) -> str:
        where = self.words.where(scope)
        if scope.kind is Kind.EVERYTHING:
            return "nothing passes between any two nodes"
        if scope.kind is Kind.NODE:
            what = {"both": "is cut off on every rail", "out": "sends nothing on any rail; what is sent to it arrives"}
            return f"{where} {what.get(scope.way, 'receives nothing on any rail; what it sends arrives')}"
        if scope.kind is Kind.ADDRESS:
            what = {"both": "is cut", "out": "sends nothing; what is sent to it arrives"}
            return f"{where} {what.get(scope.way, 'receives nothing; what it sends arrives')}"
        if scope.kind is Kind.RAIL:
            return f"{where} is cut on all {len(scope.nodes)} nodes"
        if scope.kind is Kind.ACROSS:
            return f"nothing passes {where}"
        if scope.kind is Kind.MANY:
            return f"nothing passes between addresses of {where}"
        if scope.kind is Kind.SPLIT:
            return f"{where} is split: {names(scope.nodes)} and the other nodes do not reach each other on it"
        a, b = scope.nodes
        if scope.way == "both":
            return f"nothing passes between {a} and {b}{where}" + (", either way" if known else "")
        return f"one-way: {a} > {b} lost{where}, the other way passes"

    # -- echoes alone -------------------------------------------------------------------------------------------------

    def echoes(self) -> list[MeshFinding]:
        """Return what answers no pings while datagrams pass both ways."""
        bad = [
            way
            for way, found in self.ways.items()
            if found.no_echo and found.arrived and (b := self.ways.get(way.back)) is not None and b.arrived
        ]
        return [
            self._make(
                Subject.ECHO,
                f"{self.words.subject(scope)}: pings are lost, datagrams pass: something drops ICMP",
                scope,
                (Layer.PING,),
                [self.words.count(scope, "address pairs answer no ping")],
                "",
            )
            for scope in self._scopes(bad)
        ]

    # -- MTU ----------------------------------------------------------------------------------------------------------

    def holes(self) -> list[MeshFinding]:
        """Return where packets that fill the MTU are lost while small ones pass."""
        by_datagram = {way for way, found in self.ways.items() if found.arrived and found.big_arrived is False}
        bad = set(by_datagram)
        vague: set[Way] = set()
        for way, found in self.ways.items():
            # A large echo is lost with either way.
            back = self.ways.get(way.back, Found())
            if found.mtu is None or not does_not_pass(found.mtu) or {way, way.back} & by_datagram:
                continue
            # Chance may lose all large echoes where some of everything is lost.
            lossy = found.lossy or back.lossy
            (vague if lossy and found.big_arrived and back.big_arrived else bad).add(way)
        tested = {way for way, found in self.ways.items() if found.mtu is not None or found.big_arrived is not None}
        found_ = []
        for scope in self._scopes(bad, tested - vague):
            rows = [m for way in scope.ways for one in (way, way.back) if (m := self._mtu_of(one)) is not None]
            told = self._sizes(scope, rows)
            said = [(m.extra or {}).get("path_mtu") for m in rows]
            narrow = Counter(value for value in said if isinstance(value, (int, float)) and value > 0)
            if narrow:
                mtu = narrow.most_common(1)[0][0]
                text = f"narrow path {self.words.between(scope)}: its MTU is {mtu:.0f}, the interfaces' is larger{told}"
            else:
                text = f"MTU black hole {self.words.between(scope)}{told}"
            evidence = [self.words.count(scope, "address pairs lose what fills the MTU, and pass what is small")]
            following = _ping_command(scope, rows, self.model)
            found_.append(self._make(Subject.MTU, text, scope, (Layer.MTU, Layer.UDP), evidence, following))
        return found_

    def _mtu_of(self, way: Way) -> Measurement | None:
        found = self.ways.get(way)
        return found.mtu if found is not None else None

    def _sizes(self, scope: Scope, rows: list[Measurement]) -> str:
        sizes = [size for m in rows if isinstance(size := (m.extra or {}).get("payload"), int)]
        sizes += [
            size
            for way in scope.ways
            if (udp := self.ways[way].udp) is not None and isinstance(size := (udp.extra or {}).get("payload"), int)
        ]
        passes = [size for m in rows if isinstance(size := (m.extra or {}).get("passes"), int)]
        told = f": {min(sizes)} bytes do not pass" if sizes else ""
        return told + (f", {min(passes)} do" if told and passes else "")

    # -- firewalls ----------------------------------------------------------------------------------------------------

    def firewalls(self) -> list[MeshFinding]:
        """Return where pings pass and ports are not let in."""
        tcp = {
            way
            for way, found in self.ways.items()
            if found.tcp is not None and found.tcp.verdict in DEAD and self._passes(way)
        }
        udp = {
            way for way, found in self.ways.items() if found.arrived is False and found.echo and way not in self.dead
        }
        both = tcp & udp
        found_: list[MeshFinding] = []
        for bad, what, layers in (
            (both, "neither TCP nor UDP", (Layer.TCP, Layer.UDP)),
            (tcp - both, "no TCP", (Layer.TCP,)),
            (udp - both, "no UDP", (Layer.UDP,)),
        ):
            tested = {way for way in self.ways if self._passes(way)}
            found_ += [self._firewall(scope, what, layers) for scope in self._by_destination(bad, tested)]
        return found_

    def _passes(self, way: Way) -> bool:
        """Whether small packets pass both ways."""
        found, back = self.ways[way], self.ways.get(way.back)
        if found.ping is not None:
            return found.echo
        return bool(found.arrived) and (back is None or back.arrived is not False)

    def _by_destination(self, bad: set[Way], tested: set[Way]) -> list[Scope]:
        """Return scopes of what comes in to a node from all others, then from single ones: a firewall is a node's."""
        found = []
        left = set(bad)
        for node in self.order:
            mine = {way for way in tested if way.dst == node}
            if mine and mine <= left and len({way.src for way in mine}) > 1:
                found.append(Scope(Kind.NODE, (node,), (), "", "in", frozenset(mine)))
                left -= mine
        for a in self.order:
            for b in self.order:
                mine = {way for way in left if (way.src, way.dst) == (a, b)}
                if mine:
                    rails = {rail for way in mine for rail in self.words.rails(way) if rail is not None}
                    found.append(Scope(Kind.PAIR, (a, b), tuple(sorted(rails)), "", "out", frozenset(mine)))
        return found

    def _firewall(self, scope: Scope, what: str, layers: tuple[Layer, ...]) -> MeshFinding:
        denied = all((m := self.ways[way].tcp) is not None and "refused" in (m.error or "") for way in scope.ways)
        how = "refuses" if denied and what == "no TCP" else "does not let"
        if scope.kind is Kind.NODE:
            (node,) = scope.nodes
            source = "from anyone"
        else:
            sender, node = scope.nodes
            source = f"from {sender}{self.words.where(scope)}"
        what = what if how == "refuses" else {"no TCP": "TCP", "no UDP": "UDP"}.get(what, "TCP and UDP")
        what = "TCP" if how == "refuses" else what
        verb = f"{how} {what}" if how == "refuses" else f"{how} {what} in"
        text = f"{node} {verb} {source} on ephemeral ports (ping passes)"
        errors = Counter(m.error for way in scope.ways if (m := self.ways[way].tcp) is not None and m.error)
        evidence = [self.words.count(scope, "address pairs"), *(f"TCP: {text}" for text, _ in errors.most_common(2))]
        return self._make(
            Subject.FIREWALL, text, scope, layers, evidence, on_node(node, "sudo nft list ruleset", self.model)
        )

    # -- loss and late answers ----------------------------------------------------------------------------------------

    def losses(self) -> list[MeshFinding]:
        """Return where some packets are lost."""
        some = {way for way, found in self.ways.items() if found.udp is not None and found.udp.verdict is Verdict.SLOW}
        bad = set(some)
        for way, found in self.ways.items():
            if found.lossy and not {way, way.back} & some and way not in self.dead:
                bad.add(way)
        found_ = []
        for scope in self._scopes(self._widened(bad)):
            mine = scope.ways & bad
            shares = [share for way in scope.ways if (share := self._loss(way)) is not None]
            few, many = min(shares, default=0.0), max(shares, default=0.0)
            lost = f"{few:.0f} to {many:.0f}" if many - few >= 1 else f"{many:.0f}"
            text = f"{self.words.subject(scope)}: {lost} % of packets are lost"
            evidence = [f"{len(mine)} of {len(scope.ways)} address pairs lose some"]
            found_.append(self._make(Subject.LOSS, text, scope, MESH, evidence, self.words.look(scope)))
        return found_

    def _widened(self, bad: set[Way]) -> set[Way]:
        """Return ways that lose some, and with them those of the same addresses that by chance lost none."""
        found = set(bad)
        out: dict[tuple[str, str], set[Way]] = {}
        into: dict[tuple[str, str], set[Way]] = {}
        for way in self.ways:
            out.setdefault((way.src, way.src_addr), set()).add(way)
            into.setdefault((way.dst, way.dst_addr), set()).add(way)
        for ways in (*out.values(), *into.values()):
            if len(ways) >= FEWEST_OF_LOSS and 2 * len(ways & bad) >= len(ways):
                found |= ways - self.dead
        return found

    def _loss(self, way: Way) -> float | None:
        found = self.ways[way]
        if found.udp is not None and found.udp.verdict is Verdict.SLOW:
            return found.udp.value
        shares = [(m.extra or {}).get("loss") for m in (found.ping, found.mtu) if m is not None]
        known = [share for share in shares if isinstance(share, (int, float)) and share > 0]
        return float(max(known)) if known else None

    def late(self) -> list[MeshFinding]:
        """Return where pings take far longer than those of their class."""
        slow: dict[Way, tuple[float, float]] = {}
        for way, found in self.ways.items():
            m = found.ping
            if m is None or m.value is None or m.verdict is not Verdict.OK:
                continue
            median = self.model.median(Layer.PING, self.model.class_of(m))
            # The quickest of its echoes: a busy node answers one or the other late.
            least = (m.extra or {}).get("rtt_min")
            took = float(least) if isinstance(least, (int, float)) else m.value
            if median is not None and took > max(LATE_RATIO * median, median + LATE_MS):
                slow[way] = (took, median)
        found_ = []
        for scope in self._scopes(slow, [way for way, found in self.ways.items() if found.echo]):
            worst, median = max(slow[way] for way in scope.ways)
            text = f"{self.words.subject(scope)}: a round trip takes up to {worst:.3g} ms, others {median:.2g} ms"
            found_.append(self._make(Subject.LATE, text, scope, (), [self.words.count(scope, "address pairs")], ""))
        return found_


def _ping_command(scope: Scope, rows: list[Measurement], model: Model) -> str:
    way = min(scope.ways)
    payload = next((value for m in rows if (value := (m.extra or {}).get("payload"))), None)
    if payload is None:
        return ""
    ends = f"{shlex.quote(way.src_addr)} {shlex.quote(way.dst_addr)}"
    return on_node(way.src, f"ping -M do -s {payload} -c 3 -I {ends}", model)
