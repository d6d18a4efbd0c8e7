"""The film of the pulled cable, made on a lab of its own."""

import asyncio

import pytest

from fabtui.lab.network import missing
from fabtui.session.feeds import cable_film
from fabtui.session.feeds.cable_film import CableFilm

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")


async def test_the_cable_is_pulled_found_and_plugged_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cable_film, "_HEALTHY", 0.5)
    monkeypatch.setattr(cable_film, "_STANDS", 0.5)
    film = CableFilm()
    try:
        async with asyncio.timeout(120):
            await film.run()
            assert film._story is not None
            await film._story
    finally:
        await film.close()
    lines = [line.text for line in film.model.log if line.text.startswith("demo: ")]
    assert [text.split()[1] for text in lines] == ["the", "found", "the", "all"]
    assert film.model.turns.healed is not None
    config = film._options.ssh_config
    assert config is not None
    assert not config.parent.exists(), "the lab ends with the film"
