"""Two sessions on the same node at the same time, over real SSH servers and real ranks (gloo)."""

import asyncio
import getpass
from collections import Counter

import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.session import probe_runner
from fabtui.session.feeds.live import LiveFeed
from fabtui_node.probes import host
from tests.conftest import needs_torch
from tests.unit.session.played import until
from tests.wire import sshd
from tests.wire.live import session

pytestmark = [needs_torch, pytest.mark.timeout(240)]


def bad(feed: LiveFeed) -> list[str]:
    verdicts = [feed.model.verdict(m) for m in feed.model.measurements()]
    return [str(verdict) for verdict in verdicts if verdict not in (Verdict.OK, Verdict.SLOW)]


async def test_each_session_reports_that_the_other_is_there_and_neither_disturbs_the_other(field: sshd.Field) -> None:
    field.serve("a")
    # A session over a node alone has no pairs of nodes to ping.
    options: dict[str, object] = {"probes": ("ping", "p2p", "host"), "layers": ("world", "p2p"), "ranks_per_node": 2}
    async with session(field, "a", **options) as first, session(field, "a", **options) as second:
        await asyncio.gather(first.sweep(), second.sweep())
        for feed in (first, second):
            assert bad(feed) == []
            assert not feed.model.untested
            layers = Counter(m.layer for m in feed.model.measurements())
            assert (layers[Layer.P2P], layers[Layer.WORLD], layers[Layer.PING]) == (2, 2, 0)
            # Busy processors slow pairs of CPU ranks.
            assert feed.model.exit_code in (0, 1)
            for record in feed.model.nodes.values():
                value = record.probe_results["host"]
                assert getpass.getuser() in [one["user"] for one in value["sessions"]]
                (note, *_) = (one for one in host.judge(value) if one["subject"] == "sessions")
                assert note["verdict"] == "note"


async def test_a_newcomer_is_reported_while_a_session_runs(field: sshd.Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_runner, "NEWCOMER_INTERVAL", 0.5)
    field.serve("a")

    def others(feed: LiveFeed) -> list[dict[str, object]]:
        found: list[dict[str, object]] = feed.model.nodes["a"].probe_results["host"]["sessions"]
        return found

    async with session(field, "a", probes=("host",)) as first:
        # Other tests may have sessions on this machine.
        before = others(first)
        async with session(field, "a", probes=("host",)):
            await until(lambda: any(one not in before for one in others(first)))
            assert any("another fabtui has connected to this node" in line.text for line in first.model.log)
            newcomers = [one for one in others(first) if one not in before]
        # It has left.
        await until(lambda: not all(one in others(first) for one in newcomers))
