"""The tutorial, run from its own code blocks: a lab with a fault, the finding, the app, the CSV, the comparison."""

import re
from pathlib import Path
from typing import Any

import pytest

from fabtui.session.feeds.replay import ReplayFeed
from tests.screen.conftest import make_app, screen_text
from tests.unit.docs.blocks import ROOT, blocks
from tests.unit.docs.running import check_transcript, run_in_shell

PAGE = "docs/tutorial.md"
#: Text on the screen without a key, where the cursor is on the pair of the first finding, and after each key.
SHOWN = {"none": "▌1 n000:1 > n001:0", "enter": "timed out", "escape": "n001", "F": "FT017"}

pytestmark = pytest.mark.slow


async def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "fabtui" / "config.toml"
    settings.parent.mkdir()
    # Smaller messages than usual take a fraction of the time.
    settings.write_text('[session]\nbytes = "1M"\niters = 5\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    codes: list[int] = []
    for block in (block for block in blocks(PAGE) if not block.reason):
        for statement, expected in block.transcript():
            code, out, err = run_in_shell(statement)
            codes.append(code)
            assert code in (0, 1), err
            check_transcript(expected, out)
        if block.language == "python":
            names: dict[str, Any] = {}
            exec(compile(block.text, block.place, "exec"), names)
            assert re.search(r"p2p n000:1 n001:0 timeout transfer: .*drop", capsys.readouterr().out)
    # The first run finds the fault.
    assert codes[0] == 1
    await check_keys(tmp_path / "broken.jsonl.gz")


async def check_keys(recording: Path) -> None:
    keys = re.findall(r"^\| `(\S+)` \|", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert ["none", *keys] == [*SHOWN, "q"]
    app = make_app(ReplayFeed(recording, None))
    async with app.run_test(size=(120, 40)) as pilot:
        for key, text in SHOWN.items():
            if key != "none":
                await pilot.press(key)
            for _ in range(500):
                await pilot.pause(0.02)
                if app.model.exit_code is not None and text in screen_text(app):
                    break
            assert text in screen_text(app), key
