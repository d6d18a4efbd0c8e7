"""Slow is not dead: a NIC with a limited rate is slow with that value, and a dropped path is timed out."""

import asyncio
from pathlib import Path

import pytest

from fabtui.lab.faults import parse_rate
from fabtui.lab.network import missing
from fabtui.model.measurement import Verdict
from tests.lab import kept_session
from tests.lab.field import network_in
from tests.lab.kept_session import KeptSession

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")


def test_limited_rates_have_their_value_and_a_dropped_path_none(tmp_path: Path) -> None:
    async def limited(session: KeptSession, side: str, rate: str) -> None:
        await session.plant(f"n1.eth0={side}:{rate}")
        await session.test(("n0:0", "n1:0"))
        await session.heal()
        into, out = session.latest("n0:0", "n1:0"), session.latest("n1:0", "n0:0")
        slow, reverse = (into, out) if side == "slow-in" else (out, into)
        assert session.feed.model.verdict(slow) is Verdict.SLOW, slow
        assert slow.value == pytest.approx(parse_rate(rate) / 1e9, rel=0.3)
        # It only carries acknowledgements over the limit.
        assert session.feed.model.verdict(reverse) in (Verdict.OK, Verdict.SLOW), reverse

    async def session() -> None:
        with network_in(tmp_path, 3, 1) as network:
            where = network.names, network.ssh_config, network.plant, network.heal
            async with kept_session.kept(*where, ranks_per_node=1, timeout=10.0) as session:
                await limited(session, "slow-in", "40kB")
                await limited(session, "slow-out", "6MB")
                await session.plant("n0>n1=drop")
                await session.test(("n0:0", "n1:0"))
                assert session.latest("n0:0", "n1:0").verdict is Verdict.TIMEOUT

    asyncio.run(session())
