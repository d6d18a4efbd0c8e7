"""The pictures of the documentation: scripts that still draw them, and files that show what the app shows."""

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"
#: Maximum size (bytes) of a picture that a page loads.
LARGEST = 500_000


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return lambda name: runpy.run_path(str(ROOT / "docs" / f"{name}.py"))


def texts(picture: ElementTree.Element) -> list[str]:
    rows = {row.get("id"): [text.text or "" for text in row.iter(f"{SVG}text")] for row in picture.iter(f"{SVG}g")}
    return [text for use in picture.iter(f"{SVG}use") for text in rows[use.get("href", "").removeprefix("#")]]


def test_all_pictures_stand_alone_and_are_used() -> None:
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for path in IMAGES.glob("*.svg"):
        text = path.read_text()
        picture = ElementTree.fromstring(text)
        assert path.stat().st_size < LARGEST, path
        # GitHub shows pictures without scripts, and without anything from elsewhere.
        assert not list(picture.iter(f"{SVG}script")), path
        assert "url(" not in text, path
        assert text.count("http") == 1, path
        assert f"images/{path.name})" in pages, path


@pytest.mark.worst_first
async def test_the_animation_shows_a_screen_after_the_other(script: Any) -> None:
    found = script("make_animation")
    film = found["FILMS"]["trouble"]
    story = film.story[3:6]
    picture = ElementTree.fromstring(await found["draw"](film._replace(story=story)))
    frames = [group for group in picture.iter(f"{SVG}g") if group.get("class") == "f"]
    assert len(frames) == len(story)
    style = "".join(style.text or "" for style in picture.iter(f"{SVG}style"))
    for place, (scene, frame) in enumerate(zip(story, frames, strict=True)):
        assert scene.caption in [text.text for text in frame.iter(f"{SVG}text")]
        assert f"#f{place}{{animation:k{place} " in style
    rows = " ".join(texts(picture))
    assert "4 of 12 GPU pairs are bad" in rows
    assert "n001:1 > n001:0 wrong data, 1 byte wrong in the 64 KiB checked (message 256 MiB)" in rows
    assert "n000:1 > n001:1 timed out" in rows


@pytest.mark.worst_first
async def test_the_picture_of_the_grid_shows_what_the_app_shows(script: Any, tmp_path: Path) -> None:
    found = script("make_images")
    drawn = ElementTree.fromstring(await found["drawn"](found["PICTURES"]["grid"], found["RECORDING"]))
    assert texts(drawn) == texts(ElementTree.parse(IMAGES / "grid.svg").getroot()), "make images draws them again"
