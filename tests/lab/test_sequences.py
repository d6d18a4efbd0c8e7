"""A pair that breaks in mid-transfer spoils no later test: CPU ranks over networks of their own."""

import asyncio
from pathlib import Path

import pytest

from fabtui.lab.network import missing
from tests.lab import kept_session
from tests.lab.field import network_in

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

#: Healed meanwhile or not, of a path or of all of a node, and over a limited link.
SEEDS = (1000, 1001, 1009, 1010)


def test_what_breaks_in_mid_transfer_spoils_no_later_test(tmp_path: Path) -> None:
    """``python bench/sequences.py`` has 200 of them, or as many as are asked for, on GPUs as well."""

    async def sequences() -> list[dict[str, object]]:
        with network_in(tmp_path, 4, 1) as network:
            where = network.names, network.ssh_config, network.plant, network.heal
            async with kept_session.kept(*where, ranks_per_node=1, bytes=4 << 20) as session:
                plans = [kept_session.planned(seed, network.names) for seed in SEEDS]
                return [await kept_session.run(session, plan) for plan in plans]

    results = asyncio.run(sequences())
    assert all(result["good"] for result in results), results
    assert any(result["broken"] for result in results), results
