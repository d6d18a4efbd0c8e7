"""The app in a headless Chromium: what is drawn, keys, mouse, sizes, cuts, and what is shown before and after."""

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.serve.browser import Page, browser, find_browser
from tests.serve.cuttable import Tunnel
from tests.serve.served import RECORDING, Served, children_of, replayed, served

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]
#: The app waits before it imports anything until there is a file.
HELD = """
import os, time
while os.environ.get("TEXTUAL_DRIVER") and not os.path.exists(os.environ["FABTUI_TEST_GO"]):
    time.sleep(0.05)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def new_page() -> AsyncIterator[Callable[[], Any]]:
    async with browser() as new_page:
        yield new_page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Served]:
    async with replayed() as server:
        yield server


@asynccontextmanager
async def opened(server: Served, new_page: Callable[[], Any]) -> AsyncIterator[Page]:
    """Show the end of the recording in a page; its session is ended at the end."""
    page: Page = await new_page()
    await page.open(server.url)
    await page.until(lambda text: "3 of 56 GPU pairs are bad" in text and "WHAT IS WRONG" in text)
    yield page
    await page.press("q")
    await page.until_seen("ended", "The session has ended")
    assert page.failed == []


async def test_a_browser_shows_the_grid_and_keys_change_it(server: Served, new_page: Callable[[], Any]) -> None:
    page = await new_page()
    await page.open(server.url)
    first = await page.until(lambda text: "3 of 56 GPU pairs are bad" in text and "THIS PAIR  n001:0 > n000:0" in text)
    assert "2 p2p" in first
    pictures = [await page.picture()]
    await page.press("]")
    second = await page.until(lambda text: "THIS PAIR  n001:0 > n000:0" not in text)
    pictures.append(await page.picture(*pictures))
    await page.press("4")
    third = await page.until(lambda text: "half a round trip" in text or re.search(r"\bus at ", text) is not None)
    pictures.append(await page.picture(*pictures))
    await page.press("Enter")
    await page.until(lambda text: "esc back" in text)
    pictures.append(await page.picture(*pictures))
    # A key that comes on the heels of Escape would be taken for one with Alt.
    await page.press("Escape")
    await page.until(lambda text: "2 p2p" in text)
    await page.press("?")
    await page.until(lambda text: "help: grid" in text)
    assert len({first, second, third}) == 3
    assert page.failed == []
    if folder := os.environ.get("FABTUI_PICTURES"):
        for number, picture in enumerate(pictures):
            (Path(folder) / f"browser-{number}.png").write_bytes(picture)
    # Nothing is fetched from elsewhere: clusters have no way out.
    assert {url.split("/")[2] for url in page.asked if "//" in url} == {f"127.0.0.1:{server.port}"}
    await page.press("q")
    await page.until(lambda text: "help: grid" not in text and "WHAT IS WRONG" not in text)
    assert "Reload the page" in await page.until_seen("ended", "The session has ended")


async def test_until_the_first_frame_the_page_shows_what_it_waits_for(
    tmp_path: Path, new_page: Callable[[], Any]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HELD)
    go = tmp_path / "go"
    environment = {"PYTHONPATH": str(tmp_path), "FABTUI_TEST_GO": str(go)}
    async with served("--replay", str(RECORDING), "--speed", "max", **environment) as server:
        page = await new_page()
        await page.open(server.url)
        text = await page.until_seen("waiting", "which takes some seconds on a busy machine")
        assert text.startswith("fabtui")
        await page.until_seen("waiting", "1 s")
        go.touch()
        await page.until_seen("waiting", "")
        await page.until(lambda text: "2 p2p" in text)
        await page.until_seen("ended", "")


async def test_prompts_work_and_clicks_reach_a_cell_a_finding_and_a_worst_pair(
    server: Served, new_page: Callable[[], Any]
) -> None:
    async with opened(server, new_page) as page:
        await page.press("F")
        await page.until(lambda text: "findings" in text and "WHAT IS WRONG" not in text)
        await page.press("Enter")
        await page.until(lambda text: "2 p2p" in text)
        await page.press(*":layer world")
        await page.until(lambda text: ":layer world" in text)
        await page.press("Enter")
        await page.until(lambda text: "world communicator" in text or "same node    23.9" in text)
        await page.press(*"gn001:2")
        await page.until(lambda text: ":go n001:2" in text)
        await page.press("Enter")
        # The line is gone once it was taken: a key before that would still be part of it.
        await page.until(lambda text: ":go n001:2" not in text and "n001:2" in text)
        await page.press("2")
        await page.click("T out", beside="n000 1")
        await page.until(lambda text: "THIS PAIR  n000:1 > n001:2" in text)
        await page.click("n000:0 > n000:3 0.5 %")
        await page.until(lambda text: "THIS PAIR  n000:0 > n000:3" in text)
        await page.press("v")
        await page.until(lambda text: "row>col" not in text)
        await page.click("n001:0 > n000:0", beside="connect:")
        await page.until(lambda text: re.search(r"n001:0 > n000:0 +p2p x failed", text) is not None)


async def test_the_screen_fits_the_window_after_a_change_of_its_size(
    server: Served, new_page: Callable[[], Any]
) -> None:
    async with opened(server, new_page) as page:
        columns, rows = page.size

        def fits(text: str) -> bool:
            lines = text.splitlines()
            return page.size[0] < columns and len(lines) == page.size[1] < rows and lines[-1].startswith("F findings")

        await page.resize(800, 480)
        await page.until(fits)
        # A phone: the sentence, the grid and the findings are on one screen.
        await page.resize(390, 844)
        await page.until(lambda text: text.startswith(" 3 of 56 bad") and "⟦ x⟧" in text and "ssh n000" in text)
        assert re.search(r"(?m)^.1 n001:0 > n000:0 failed", page.terminal.text)
        # Turned there and back at once: the app still draws for the phone's height when the window has another.
        await page.resize(800, 480)
        await page.until(fits)
        await page.resize(390, 844)
        await page.resize(800, 480)
        await page.until(fits)
        # Frames that were drawn before may still come. A key is handled after all sizes: what follows is of the last.
        await page.press("?")
        await page.until(lambda text: "help: grid" in text)
        page.terminal.beyond = 0
        await page.press("Escape")
        await page.until(fits)
        await page.click("T out")
        await page.until(lambda text: re.search(r"⟦ ?T out", text) is not None)
        assert page.terminal.beyond == 0


async def test_after_a_cut_the_page_connects_again_and_the_session_goes_on_until_the_server_is_stopped(
    new_page: Callable[[], Any],
) -> None:
    async with replayed() as server, Tunnel(server.port) as tunnel:
        page = await new_page()
        await page.open(server.url.replace(str(server.port), str(tunnel.port)))
        await page.until(lambda text: "3 of 56 GPU pairs are bad" in text)
        await page.press("?")
        await page.until(lambda text: "help: grid" in text)
        apps = children_of(server.child.pid)
        tunnel.cut()
        await page.until_seen("cut", "was cut; connecting again")
        page.clear()
        tunnel.open()
        await page.until_seen("cut", "")
        await page.until(lambda text: "help: grid" in text)
        assert children_of(server.child.pid) == apps
        # A page that is loaded again after a cut shows the same session, too, and takes clicks.
        tunnel.cut()
        await page.until_seen("cut", "was cut; connecting again")
        # The page before must not come back meanwhile: it would be closed, and the session with it.
        await page.open("about:blank")
        tunnel.open()
        await page.open(server.url.replace(str(server.port), str(tunnel.port)))
        await page.until(lambda text: "help: grid" in text)
        assert children_of(server.child.pid) == apps
        await page.press("Escape")
        await page.until(lambda text: "3 of 56 GPU pairs are bad" in text)
        await page.click("T out", beside="n000 1")
        await page.until(lambda text: "THIS PAIR  n000:1 > n001:2" in text)
        server.child.terminate()
        await page.until_seen("ended", "was stopped")
        assert page.failed == []
