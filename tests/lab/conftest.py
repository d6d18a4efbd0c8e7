from collections.abc import Iterator

import pytest

from fabtui.lab.network import Network
from tests.lab.field import network_in


@pytest.fixture(scope="module")
def wired(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Yield a network for all tests of a file, which names its nodes and rails: ``NETWORK``."""
    with network_in(tmp_path_factory.mktemp("network"), *request.module.NETWORK) as network:
        yield network


@pytest.fixture
def network(wired: Network) -> Iterator[Network]:
    """Yield that network, which is healed after the test."""
    yield wired
    wired.heal()
