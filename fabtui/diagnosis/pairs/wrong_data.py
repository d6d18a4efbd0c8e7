"""Rule about data that arrives different from what was sent, the worst that a test can find."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.experiment import PAIR_TRIALS
from fabtui.diagnosis.finding import Direction, Finding, Kind, Pair, Route, Rule, Steps, Subject, in_steps, register
from fabtui.diagnosis.knowledge.error_catalogue import ErrorFact, meaning_of_measurement
from fabtui.diagnosis.knowledge.next_commands import group_command
from fabtui.diagnosis.pairs.blame import Blame, blamed
from fabtui.diagnosis.pairs.pair_context import GroupResult, PairContext
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.wrong_data import wrong_amount
from fabtui.sanitize import one_line

#: Weight that puts it before everything else, lost nodes included.
_FIRST = 1 << 31
#: Maximum number of single pairs that are reported one by one.
_MOST_SINGLE = 4
_DIRECTIONS = {Direction.SENDS: " as sender", Direction.RECEIVES: " as receiver"}


@register
class WrongData(Rule[PairContext]):
    """Data arrives different from what was sent: a job would compute wrong results without an error."""

    id = "FT007"
    name = "wrong-data"
    title = "Data arrives different from what was sent"
    message = (
        "[{pair:arrow} wrong data][{component}: wrong data in {bad} of {tested} pairs][{group}: wrong data]"
        "[{many:count_pair} with wrong data][, {wrong}]"
    )
    next_step = "Keep these GPUs out of jobs: a job would go on with wrong numbers. Then test their memory and links."
    trials = PAIR_TRIALS

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        if any(counts[Verdict.WRONG] for counts in (context.tally.counts, *context.tally.layers.values())):
            yield from self._pairs(context)
        groups = [one for one in context.bad_groups if one.verdict is Verdict.WRONG]
        context.bad_groups = [one for one in context.bad_groups if one.verdict is not Verdict.WRONG]
        for one in groups[:_MOST_SINGLE]:
            yield self._of_group(context, one)

    def _pairs(self, context: PairContext) -> Iterator[Finding | None]:
        mine: set[Pair] = set()
        for rows in in_steps(list(context.unexplained.items())):
            mine.update(pair for pair, verdict in rows if verdict is Verdict.WRONG)
            yield None
        for blame in (yield from _blames(context, mine)):
            cells = context.pairs_at(blame.bad)
            mine.difference_update(cells)
            component = blame.subject.name + _DIRECTIONS.get(blame.direction, "")
            facts = {"component": component, "bad": len(cells), "tested": blame.tested}
            error = yield from context.error(cells)
            commands = context.first_commands(cells)
            found = yield from context.explain(
                self, blame.subject.name, cells, facts=facts, error=error, commands=commands
            )
            yield found.replace(
                blames=blame.subject,
                tested=blame.tested,
                confidence=blame.confidence,
                rivals=blame.rivals,
                weight=_FIRST,
            )
        inside = [pair for pair in context.only_inside if _in_world(context, pair)]
        context.only_inside = [pair for pair in context.only_inside if pair not in set(inside)]
        left = sorted({*mine, *inside})
        routes = sorted({tuple(sorted(pair)) for pair in left})
        if len(routes) > _MOST_SINGLE:
            yield (yield from self._found(context, left, None))
            return
        for first, second in routes:
            pairs = [pair for pair in ((first, second), (second, first)) if pair in left]
            yield (yield from self._found(context, pairs, Route(*pairs[0], len(pairs) == 2)))

    def _found(self, context: PairContext, pairs: list[Pair], route: Route | None) -> Steps[Finding]:
        first = context.model.latest(Layer.P2P, *pairs[0])
        if first is None or first.verdict is not Verdict.WRONG:
            first = context.model.latest(Layer.WORLD, *pairs[0])
        amount = "" if first is None else wrong_amount(first.error, first.bytes)
        facts = {"pair": route, "many": None if route else len(pairs), "wrong": amount or None}
        facts["verdict"] = Verdict.WRONG
        facts |= context.retest(pairs)
        error = yield from context.error(pairs)
        topic = "" if route is None else f"{route.source} > {route.destination}"
        found = yield from context.explain(
            self, topic, pairs, facts=facts, error=error, commands=context.first_commands(pairs)
        )
        if route is None:
            return found.replace(weight=_FIRST)
        name = f"{route.source} - {route.destination}" if route.both else topic
        return found.replace(weight=_FIRST, blames=Subject(Kind.PAIR, name))

    def _of_group(self, context: PairContext, one: GroupResult) -> Finding:
        measured = one.measured
        meaning = meaning_of_measurement(measured)
        facts = {
            "group": str(one),
            "wrong": wrong_amount(measured.error, None) or None,
            "error": ErrorFact(one_line(measured.error or "wrong data", 200)),
            **({} if meaning is None else meaning.facts),
        }
        commands = (group_command(context.model, one.nodes, one.kind),) if measured.src in context.model.nodes else ()
        nodes = one.nodes if measured.src in context.model.nodes else ()
        return self.finding(str(one), nodes=nodes, facts=facts, commands=commands, weight=_FIRST)


def _in_world(context: PairContext, pair: Pair) -> bool:
    inside = context.model.latest(Layer.WORLD, *pair)
    return inside is not None and inside.verdict is Verdict.WRONG


def _blames(context: PairContext, mine: set[Pair]) -> Steps[list[Blame]]:
    """Return the components that all have their data wrong; pairs that are bad otherwise are no evidence."""
    table, places = context.tally.table, context.tally.places
    if table is None or places is None or len(mine) < 2:
        return []
    found: list[Blame] = []
    others = [place for pair, place in context.tally.place.items() if pair not in mine]
    yield
    for blame in blamed(table, places, context.model.endpoints, others):
        found += [blame] if blame is not None else []
        yield
    return found
