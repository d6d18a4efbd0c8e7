import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.wire import sshd
from tests.wire.rank_controller import Controller, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.end()


@pytest.fixture
def controller(zygote: Zygote) -> Iterator[Controller]:
    with Controller(zygote) as controller:
        yield controller


@pytest.fixture
def field(tmp_path: Path) -> Iterator[sshd.Field]:
    reason = sshd.missing()
    if reason is not None:
        pytest.skip(reason)
    made = sshd.Field(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def plain_folder() -> Iterator[Path]:
    """A folder without a blank in its path, for files whose names OpenSSH itself passes on or prints unquoted."""
    with tempfile.TemporaryDirectory(prefix="fabtui-test-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest_asyncio.fixture
async def reach_for() -> AsyncIterator[Callable[..., Any]]:
    """A maker of `Connector` objects that keeps their notices and closes them in the end."""
    from fabtui.transport.connector import Connector, ConnectorOptions

    made: list[Connector] = []

    def make(config: Path | None, **options: Any) -> Any:
        notices: list[str] = []
        reach = Connector(ConnectorOptions(ssh_config=config, **options), notices.append)
        reach.notices = notices  # type: ignore[attr-defined]
        made.append(reach)
        return reach

    yield make
    for reach in made:
        await reach.close()
