"""Reports in a headless Chromium: no error, no request, all layers drawn, hover, tabs, and both colour schemes."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.report.contents import document
from fabtui.report.html import html
from tests.serve.browser import Page, browser, find_browser
from tests.serve.served import ROOT
from tests.unit.report.hostile import TEXTS, hostile

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")
RECORDINGS = sorted((ROOT / "tests" / "samples" / "sessions").glob("h*.jsonl.gz"))
SAMPLES = (
    "h200x8/nvlink-s.txt",
    "h200x8/topo-m.txt",
    "h200x8/smi.txt",
    "ibsim/ibstat_n061.txt",
    "ibsim/iblinkinfo_degraded_1x_edr.txt",
    "ibsim/ib_write_bw.txt",
    "ras/skip-json.txt",
    "slurm/scontrol_show_job.txt",
)
#: Errors of the console and refused requests, which a page reports as events.
COLLECT = "window.problems = []; for (const kind of ['error', 'securitypolicyviolation', 'unhandledrejection'])" + (
    " addEventListener(kind, (event) => problems.push(`${kind} ${event.message ?? event.blockedURI}`), true)"
)


@asynccontextmanager
async def opened(path: Path, width: int = 1100) -> AsyncIterator[Page]:
    """A report in a page; at the end, nothing has failed and nothing else has been fetched."""
    async with browser(width, 900) as new_page:
        page = await new_page()
        await page.call("Log.enable")
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=COLLECT)
        await page.open(path.as_uri())
        await page.until_is("document.readyState", "complete")
        yield page
        assert await page.evaluate("problems") == []
        assert page.failed == []
        assert [url for url in page.asked if not url.startswith("data:")] == [path.as_uri()]
        if folder := os.environ.get("FABTUI_PICTURES"):
            (Path(folder) / f"report-{path.stem}.png").write_bytes(await page.picture())


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
async def test_the_report_of_a_recording_shows_each_layer_in_a_tab_with_hover(recording: Path, tmp_path: Path) -> None:
    entry.main(["report", str(recording), "-o", str(tmp_path / "a.html")])
    async with opened(tmp_path / "a.html") as page:
        tabs = await page.evaluate("[...document.querySelectorAll('[role=tab]')].map((one) => one.textContent)")
        assert {"health", "p2p", "world", "latency", "ping", "busbw", "transport"} <= set(tabs)
        for at in range(len(tabs)):
            await page.evaluate(f"document.querySelectorAll('[role=tab]')[{at}].click()")
            shown = "[...document.querySelectorAll('.panel')].filter((one) => one.getClientRects().length)"
            assert await page.evaluate(f"{shown}.map((one) => one.querySelector('h3').textContent)") == [tabs[at]]
            box = await page.evaluate(
                f"(r => [r.width, r.height])({shown}[0].querySelector('svg').getBoundingClientRect())"
            )
            assert min(box) > 150
            paths = await page.evaluate(f"{shown}[0].querySelectorAll('svg path').length")
            assert paths > 3
        await page.evaluate("document.querySelectorAll('[role=tab]')[1].click()")
        await hover(page, 0, 1)
        await page.until_is(
            "[...document.querySelectorAll('output')].map((one) => one.textContent).join('')", "n000:0 > n000:1"
        )


async def hover(page: Page, row: int, column: int) -> None:
    place = await page.evaluate(
        f"""(() => {{
            const svg = [...document.querySelectorAll('svg[data-origin]')].find((one) => one.getClientRects().length);
            svg.scrollIntoView({{block: 'center'}});
            const [left, top, pitch] = svg.dataset.origin.split(' ').map(Number);
            const at = new DOMPoint(left + ({column} + .5) * pitch, top + ({row} + .5) * pitch);
            const on = at.matrixTransform(svg.getScreenCTM());
            return [on.x, on.y];
        }})()"""
    )
    await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])


async def test_reports_of_sample_outputs_open_without_a_problem(tmp_path: Path) -> None:
    for name in SAMPLES:
        path = tmp_path / f"{Path(name).stem}.html"
        assert entry.main(["report", str(ROOT / "tests/samples" / name), "-o", str(path)]) in (0, 1, 3)
        async with opened(path) as page:
            assert Path(name).name in await page.evaluate("document.body.innerText")


async def test_hostile_texts_run_nothing_and_fetch_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(html(document(diagnose(hostile()), list(TEXTS))))
    async with opened(tmp_path / "a.html") as page:
        await hover(page, 0, 1)
        assert "<script>alert(1)</script>" in await page.evaluate("document.body.innerText")
        assert await page.evaluate("document.querySelectorAll('script').length") == 1
        assert await page.evaluate("document.querySelectorAll('img, iframe, link, object, [onerror]').length") == 0


async def test_without_a_script_all_layers_are_shown(tmp_path: Path) -> None:
    entry.main(["report", str(RECORDINGS[0]), "-o", str(tmp_path / "a.html")])
    async with browser() as new_page:
        page = await new_page()
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        await page.open((tmp_path / "a.html").as_uri())
        await page.until_is("document.readyState", "complete")
        shown = await page.evaluate(
            "[...document.querySelectorAll('.panel')].every((one) => one.getClientRects().length)"
        )
        assert shown
        assert await page.evaluate("document.querySelectorAll('[role=tab]').length") == 0


async def test_colours_follow_the_scheme_paper_is_light_and_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    entry.main(["report", str(RECORDINGS[1]), "-o", str(tmp_path / "a.html")])
    color = (
        "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.querySelector('.fab-paper')).fill"
    )
    async with opened(tmp_path / "a.html", width=390) as page:
        found = []
        for scheme in ("light", "dark"):
            await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            found.append(await page.evaluate(color))
        assert found[0] != found[1]
        await page.call(
            "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        assert await page.evaluate(color) == found[0]
        # What the page folds stays folded on paper.
        shown = "[...document.querySelectorAll('{}')].filter((one) => one.getClientRects().length).length"
        assert await page.evaluate(shown.format("h2")) > 1
        assert await page.evaluate(shown.format("details .panel")) == 0
        await page.call("Emulation.setEmulatedMedia", media="", features=[])
        await page.set_window(390, 800)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
