"""Findings and preflight of the session, updated in the background in short steps so that no key waits."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fabtui.diagnosis.diagnosis import Findings, search
from fabtui.diagnosis.finding import Finding, Pair, Steps
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.diagnosis.merge_findings import in_order
from fabtui.diagnosis.node_faults import NodeFaults, node_faults
from fabtui.diagnosis.pairs.tally import LayerCounts, Survey, Tally, layer_counts
from fabtui.diagnosis.preflight.checks import Preflight, latest_preflight, latest_preflight_in_steps
from fabtui.exit_status import BAD, NOT_TESTED
from fabtui.model.endpoints import PairClass
from fabtui.model.measurement import DEAD, SEVERITY, Verdict
from fabtui.model.session_model import Model
from fabtui.model.verdict_changes import INCIDENT
from fabtui.nodeset import count
from fabtui.presentation.job_board import JobBoard
from fabtui.presentation.verdict_line import Standing, address_counts, other_measurements, sentence_text, standing
from fabtui.presentation.wording import clock_text, common_domain

#: Minimum time (s) between two counts of the pairs, and between two evaluations of the rules.
_COUNT_INTERVAL, _MIN_INTERVAL = 0.5, 1.0
#: Maximum number of changes of verdicts that are searched for what no count has yet.
_MOST_FRESH = 64
#: Time (s) after which a step over the pairs ends, and the pause (s) after it while tests run. No key waits longer than
#: 2 ms.
STEP, _PAUSE = 0.0005, 0.002
#: Maximum share of the time that goes into counting the pairs, and into the rules, which take ten times as long.
_MAX_SHARE = 0.05
#: Phases after which no further test is planned.
_FINISHED = ("done", "watch")
#: Width of texts that are wrapped where they are shown: unlimited.
_UNLIMITED = 10_000
#: The preflight is evaluated again after this multiple of the time it took, and not before `PREFLIGHT_INTERVAL`.
_PREFLIGHT_REST = 10.0
#: The running job is judged again after this multiple of the time it took, and not before `JOB_INTERVAL`.
_JOB_REST = 20.0


class SessionDiagnosis:
    """Findings and preflight as of the latest complete pass; ``changed`` is called when they have changed."""

    #: Minimum time (s) between two evaluations of the preflight.
    PREFLIGHT_INTERVAL = 0.2
    #: Minimum time (s) between two judgements of the running job.
    JOB_INTERVAL = 0.3

    def __init__(self, model: Model, changed: Callable[[], None] = lambda: None) -> None:
        self._model = model
        self._changed = changed
        self._timer: asyncio.TimerHandle | None = None
        self._survey: Survey | None = None
        self._search: Iterator[Findings | None] | None = None
        self._counted = self._spent = 0.0  #: Time (s) that the count and the evaluation in progress took so far.
        self._counts_rest_until = self._resting_until = 0.0
        self._ended: tuple[float, int | None] | None = None  #: Start and exit code of the phase after a sweep, in it.
        self.found: list[Finding] = []  #: Findings, most severe first.
        self._noted = 0  #: Version of the notes that `found` has.
        self.domain = ""  #: DNS domain that all nodes share, which is not shown.
        self.bad: Counter[PairClass] = Counter()  #: Number of bad pairs of each class.
        self.layers: LayerCounts = {}  #: Number of pairs of each layer with each bad verdict.
        self.known = False
        #: Verdicts of pairs of addresses, where no pairs of endpoints are tested.
        self._addresses: dict[Verdict, int] = {}
        self._of = -1  #: Version of the model that the findings are about.
        self._faults: tuple[tuple[list[Finding], Tally], NodeFaults] | None = None
        self._preflight: tuple[int, Preflight] | None = None
        self._preflight_timer: asyncio.TimerHandle | None = None
        #: The evaluation in progress: version of the nodes that it is about, its steps, and time (s) it took so far.
        self._preflight_next: tuple[int, Steps[Preflight]] | None = None
        self._preflight_spent = self._preflight_resting_until = 0.0
        self._job: tuple[int, JobBoard | None] = 0, None
        self._job_resting_until = 0.0

    @property
    def tally(self) -> Tally:
        """Verdicts of all pairs as of the latest complete pass."""
        return Tally() if self._survey is None else self._survey.tally

    @property
    def faults(self) -> NodeFaults:
        """Nodes at fault, and the bad pairs that each answers for, as of the latest findings."""
        made_of = self.found, self.tally
        if self._faults is None or any(a is not b for a, b in zip(self._faults[0], made_of, strict=True)):
            self._faults = made_of, node_faults(self.tally, self.found)
        return self._faults[1]

    @property
    def none_text(self) -> str:
        """Text for an empty list of findings. "No problems" is claimed only after every pair has been checked."""
        if not self.known or self._survey is None:
            return "searching"
        model = self._model
        if model.phase.name in _FINISHED:
            return "no problems found" if self.current else "checking the results"
        # Pairs that are tested again count once, as in the verdict line.
        text = sentence_text(replace(self.standing(), findings=()), _UNLIMITED)
        return text[0].lower() + text[1:]

    @property
    def current(self) -> bool:
        return self._of == self._model.version

    @property
    def final(self) -> bool:
        """True once no further test is planned, every pair has been checked, and the findings are about all of them."""
        return self.known and self.current and self._model.phase.name in _FINISHED

    @property
    def so_far(self) -> str:
        """Text after the word "findings" while more may follow: pairs are unchecked or the sweep continues; else ""."""
        # While watching, each result would make them incomplete for a moment.
        complete = self.known and (self.final or self._model.phase.name == "watch")
        return "" if complete else " so far"

    def standing(self) -> Standing:
        model, tally = self._model, self.tally
        whole = not any(record.state.gone for record in model.nodes.values())
        # While watching, each result would make the findings incomplete for a moment, and each test of addresses.
        later = not (self.known and (model.phase.name == "watch" or model.watching))
        # Bad measurements of other things than pairs, where no pair is bad.
        alone = not any(verdict.bad for verdict in tally.counts)
        others = self.layers if alone else {}
        more = self._uncounted()
        if not tally.counts and self._addresses:
            more = {"counts": self._addresses, "noun": "address pair", **more}
        return standing(
            model,
            tally,
            self.found,
            **more,
            running=later and not self.final and model.exit_code is None,
            judging=later and not self.current,
            complete=whole and model.exit_code != NOT_TESTED,
            # Slow ones may be due to the load of the cores; the end of the session decides.
            failing=model.exit_code == BAD or any(counts[verdict] for counts in others.values() for verdict in DEAD),
            others=other_measurements(others),
            healed=self._healed(),
            domain=self.domain,
        )

    def _uncounted(self) -> dict[str, Any]:
        """Return what failed since the latest count: wrong data, which counts at once, and suspects."""
        tally, latest = self.tally, dict[Pair, Verdict]()
        counted = -1.0 if self._survey is None else self._survey.at
        for turn in itertools.islice(reversed(self._model.turns.latest), _MOST_FRESH):
            if turn.time <= counted:
                break
            latest.setdefault((turn.src, turn.dst), turn.after)
        bad = {pair: verdict for pair, verdict in latest.items() if verdict.bad and pair not in tally.bad}
        wrong = [(pair, verdict) for pair, verdict in bad.items() if verdict is Verdict.WRONG]
        more: dict[str, Any] = {}
        if wrong:
            more = {"worst": wrong[0], "counts": Counter({Verdict.WRONG: len(wrong)}) + tally.counts}
        if others := [one for one in bad.items() if one not in wrong]:
            known = [] if tally.suspect is None else [tally.suspect]
            suspect = max([*known, *others], key=lambda one: SEVERITY.index(one[1]))
            more |= {"suspect": suspect, "rechecked": max(tally.rechecked, len(others))}
        return more

    def _healed(self) -> str:
        """Return how long ago the last bad pair became good, for some time while the session watches; else ""."""
        model = self._model
        since = math.inf if model.turns.healed is None else max(0.0, model.now - model.turns.healed)
        if not model.watching or since > INCIDENT:
            return ""
        are = "is" if len(model.turns.hurt) == 1 else "are"
        return f"healed {clock_text(since)} ago; {count(len(model.turns.hurt), 'pair')} {are} being watched"

    def follow(self) -> None:
        """Apply new notes about findings, and continue in the background until every pair has been checked."""
        if self._noted != (version := self._model.acknowledgements.version):
            self._noted, self.found = version, in_order(self._model, self.found)
        phase, code = self._model.phase, self._model.exit_code
        ended = (phase.since, code) if phase.name == "done" else None
        if ended not in (None, self._ended):
            # The user waits for the findings of a sweep that has ended, not for those of an earlier state.
            self.stop()
            self._search, self._resting_until = None, 0.0
            if self._survey is not None:
                self._survey.restart()
        self._ended = ended
        if self._timer is None and not self.current:
            surveyed = self._survey is not None and self._survey.current
            due = self._resting_until if surveyed else min(self._resting_until, self._counts_rest_until)
            wait = max(0.0 if ended else _PAUSE, due - time.monotonic() if self._search is None else 0.0)
            self._timer = asyncio.get_running_loop().call_later(wait, self._continue)

    def _continue(self) -> None:
        self._timer = None
        before = self.found, self.none_text
        more = self.step(STEP)
        if self.found is not before[0] or self.none_text != before[1]:
            self._changed()
        if more:
            self.follow()

    def stop(self) -> None:
        for timer in (self._timer, self._preflight_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._preflight_timer = None

    def step(self, budget: float) -> bool:
        """Work for about ``budget`` seconds; return True if there is more to do."""
        survey = self._survey = self._survey or Survey(self._model, interim=True)
        if self._search is None:
            began, now = time.perf_counter(), time.monotonic()
            due = now >= self._resting_until and not self.current
            if not due and (survey.current or now < self._counts_rest_until):
                return not self.current
            if not survey.current:
                complete = survey.step(budget)
                self._counted += time.perf_counter() - began
                if not complete:
                    return True
                self._counts_rest_until = now + max(_COUNT_INTERVAL, self._counted / _MAX_SHARE)
                self._counted = 0.0
            self._search, self._spent = self._all(survey.tally, rules=due), 0.0
            return True
        began = time.perf_counter()
        try:
            for found in self._search:
                took = time.perf_counter() - began
                if found is not None:
                    self._take(found.listed, survey, self._spent + took)
                    return not self.current
                if took > budget:
                    self._spent += took
                    return True
        except KeyError:
            # An attempt that the search was about is no longer kept: the next one knows the newer ones.
            pass
        self._search = None
        return not self.current

    def _all(self, tally: Tally, *, rules: bool) -> Iterator[Findings | None]:
        """Count the bad pairs of each layer, then search if the rules are due; yield None after each small step."""
        for counts in layer_counts(self._model, tally.layers):
            if counts is not None:
                self.layers = counts
            yield None
        if rules:
            yield from search(self._model, tally, settled=True)

    def _take(self, found: list[Finding], survey: Survey, took: float) -> None:
        self._search, self._of = None, survey.of
        # In order already; the model has not changed since the step of the search that did it.
        self.found, self._noted = found, self._model.acknowledgements.version
        self.domain = common_domain(self._model.nodes)
        self.bad = Counter(survey.tally.kinds.values())
        mesh_only = not self._model.results.tested and "p2p" not in self._model.options.get("probes", ("p2p",))
        self._addresses = address_counts(self._model) if mesh_only else {}
        self.known = True
        self._resting_until = time.monotonic() + max(_MIN_INTERVAL, took / _MAX_SHARE)

    def preflight(self) -> tuple[Preflight, bool]:
        """Return the latest complete preflight, the first one at once, and True if it has the latest probe results."""
        wanted = self._model.nodes_version
        if self._preflight is None:
            self._preflight = wanted, latest_preflight(self._model)
        elif self._preflight[0] != wanted and self._preflight_timer is None:
            wait = max(0.0, self._preflight_resting_until - time.monotonic())
            self._preflight_timer = asyncio.get_running_loop().call_later(wait, self._continue_preflight)
        return self._preflight[1], self._preflight[0] == wanted

    def _continue_preflight(self) -> None:
        self._preflight_timer = None
        if self._preflight_next is None:
            self._preflight_next = self._model.nodes_version, latest_preflight_in_steps(self._model)
            self._preflight_spent = 0.0
        version, steps = self._preflight_next
        began = time.perf_counter()
        try:
            next(steps)
            while time.perf_counter() - began < STEP:
                next(steps)
        except StopIteration as end:
            self._preflight, self._preflight_next = (version, end.value), None
            spent = self._preflight_spent + time.perf_counter() - began
            self._preflight_resting_until = time.monotonic() + max(self.PREFLIGHT_INTERVAL, _PREFLIGHT_REST * spent)
            return
        self._preflight_spent += time.perf_counter() - began
        self._preflight_timer = asyncio.get_running_loop().call_later(_PAUSE, self._continue_preflight)

    def job(self) -> tuple[JobBoard | None, bool]:
        """Return the running job, None without evidence about one, and True if that includes the latest evidence."""
        began, wanted = time.monotonic(), self._model.job.revision
        if self._job[0] == wanted or began < self._job_resting_until:
            return self._job[1], self._job[0] == wanted
        verdict = job_verdict(self._model)
        self._job = wanted, None if verdict is None else JobBoard(verdict, self._model.job)
        took = time.monotonic() - began
        self._job_resting_until = began + took + max(self.JOB_INTERVAL, _JOB_REST * took)
        return self._job[1], True
