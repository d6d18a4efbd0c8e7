"""Imported files in the grid."""

from pathlib import Path

from fabtui.importers.result import read
from fabtui.importers.sources import Source
from fabtui.importers.to_model.dispatch import events
from fabtui.session.feeds.replay import StillFeed
from tests.screen.conftest import Opened, press, screen_text
from tests.unit.importers.places import output_of
from tests.unit.importers.test_as_model import CUDA

JOBS = "==> p2p-test-0-9-1.out <==\nn060 [0] : BEG send 0 -> 9\nn061 [9] : OK 0 -> 9\n==> p2p-test-9-0-2.out <==\n"
JOBS += "torch.distributed.DistBackendError: NCCL error: remote process failed\n"


def feed(**texts: str) -> StillFeed:
    results = [read(Source(f"{name}.txt", text)) for name, text in texts.items()]
    return StillFeed(events(results), f"READ {len(results)} files")


async def test_a_matrix_in_the_grid(opened: Opened, tmp_path: Path) -> None:
    shown = feed(n060=CUDA, n061=CUDA)
    async with opened(shown, title="bw.txt") as (app, pilot):
        await press(pilot, "2")
        text = screen_text(app)
        assert app.main.view == "grid"
        assert "READ 2 files" in text
        assert "275" in text
        assert "n061" in text
        # Nothing can be tested again, and saying so does no harm.
        await pilot.press("r", "R", "space")
        await press(pilot, "enter")
        assert "p2pBandwidthLatencyTest" in screen_text(app)


async def test_jobs_of_pairs_in_the_grid(opened: Opened) -> None:
    async with opened(feed(runs=JOBS), title="runs") as (app, pilot):
        await press(pilot, "2", "]")
        text = screen_text(app)
        assert "remote process failed" in text
        assert "n061" in text


async def test_a_ping_mesh_in_the_grid(opened: Opened) -> None:
    async with opened(feed(mesh=output_of("older-ping-csv")), title="mesh.csv") as (app, pilot):
        await press(pilot, "5")
        text = screen_text(app)
        assert "a001-gw" in text
        assert "a002-gw" in text
        await press(pilot, "n")
        assert "a001-gw" in screen_text(app)
