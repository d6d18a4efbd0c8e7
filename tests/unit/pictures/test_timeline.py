"""Timers of Megatron-LM, with and without times, as a timeline of ranks."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source
from fabtui.pictures.drawing import svg
from fabtui.pictures.scene import Box, Text
from fabtui.pictures.timeline import GROUPS, group_of, timeline_scene

from .decoding import timeline_svg

_PROFILE = """\
times across ranks (ms):
  forward-compute:
     rank  0: 300.00
 forward-compute start time lst:  1686726492.0 1686726492.5
 forward-compute end time lst:  1686726492.1 1686726492.7
     rank  1: 800.00
 forward-compute start time lst:  1686726492.25
 forward-compute end time lst:  1686726493.0
  backward-send:
     rank  0: 100.00
 backward-send start time lst:  1686726492.1
 backward-send end time lst:  1686726492.2
  grads-all-reduce:
     rank  1: 50.00
 grads-all-reduce start time lst:  1686726493.0
 grads-all-reduce end time lst:  1686726493.05
"""


def timeline(text: str) -> list[dict[str, Any]]:
    result = read(Source("n065.out", text))
    assert (result.kind, result.unknown) == ("megatron-log", [])
    rows: list[dict[str, Any]] = result.values["timeline"]
    return rows


def boxes(rows: list[dict[str, Any]]) -> list[Box]:
    return [item for item in timeline_scene(rows).items if isinstance(item, Box) and item.title]


@pytest.mark.parametrize(
    ("group", "timers"),
    [
        ("compute", "forward-compute backward-compute optimizer"),
        ("communication", "forward-recv backward-send forward-send-backward-recv"),
        ("collectives", "grads-all-reduce grads-reduce-scatter params-all-gather all-grads-sync"),
        ("rest", "batch-generator loss-compute post-process optimizer-inner-step optimizer-clip-main-grad"),
    ],
)
def test_groups(group: str, timers: str) -> None:
    assert {group_of(timer) for timer in timers.split()} == {group}


def test_starts_and_ends_are_read_and_drawn_to_scale() -> None:
    rows = timeline(_PROFILE)
    assert [(row["rank"], row["timer"], row["spent"]) for row in rows] == [
        (0, "forward-compute", 300.0),
        (1, "forward-compute", 800.0),
        (0, "backward-send", 100.0),
        (1, "grads-all-reduce", 50.0),
    ]
    assert rows[0]["starts"] == [1686726492.0, 1686726492.5]
    assert rows[0]["ends"] == [1686726492.1, 1686726492.7]
    found = {box.title: box for box in boxes(rows)}
    first = found["rank 0, compute, 100 ms from 0.00 ms: forward-compute"]
    later = found["rank 1, compute, 750 ms from 250 ms: forward-compute"]
    assert later.width == pytest.approx(7.5 * first.width, rel=1e-3)
    assert later.x - first.x == pytest.approx(2.5 * first.width, rel=1e-3)
    assert later.y > first.y
    assert found["rank 0, communication, 100 ms from 100 ms: backward-send"].y == first.y + first.height
    assert len(found) == 5


def test_without_starts_the_totals_follow_each_other_and_that_is_stated() -> None:
    rows = timeline("\n".join(line for line in _PROFILE.splitlines() if " time lst" not in line) + "\n")
    assert [row["starts"] for row in rows] == [[]] * 4
    found = boxes(rows)
    assert [box.title for box in found][1] == "rank 1, compute, 800 ms: forward-compute"
    assert len({box.x for box in found}) == 1
    assert "totals of timers, not their order" in timeline_scene(rows).label


def test_boxes_that_share_a_text_keep_their_gaps() -> None:
    rows: list[dict[str, Any]] = [
        {
            "rank": rank,
            "timer": "forward-compute",
            "spent": 1.0,
            "starts": [float(at) for at in range(100)],
            "ends": [at + 0.5 for at in range(100)],
        }
        for rank in range(64)
    ]
    found = boxes(rows)
    assert len(found) == 64
    assert [len(box.parts) for box in found] == [100] * 64
    (first, width), (second, _) = found[0].parts[:2]
    assert second - first == pytest.approx(2 * width)
    assert found[1].title == "rank 1, compute, 50.0 s from 0.00 ms: forward-compute"


def test_umbrella_timers_do_not_hide_those_within() -> None:
    rows: list[dict[str, Any]] = [
        {"rank": 0, "timer": name, "spent": 10.0, "starts": [], "ends": []}
        for name in ("forward-backward", "optimizer")
    ]
    assert [box.title.rpartition(": ")[2] for box in boxes(rows)] == ["optimizer"]
    assert [box.title.rpartition(": ")[2] for box in boxes(rows[:1])] == ["forward-backward"]


@pytest.mark.slow
def test_many_ranks_and_times_stay_small() -> None:
    rows: list[dict[str, Any]] = [
        {
            "rank": rank,
            "timer": timer,
            "spent": 1.0 + (rank == 299),
            "starts": [2.0 * at for at in range(50)],
            "ends": [2.0 * at + 1 for at in range(50)],
        }
        for rank in range(300)
        for timer in ("forward-compute", "forward-recv")
    ]
    scene = timeline_scene(rows)
    assert "256 of 300 ranks" in scene.label
    assert any(
        isinstance(item, Text) and "the 256 ranks with the longest times of 300" in item.text for item in scene.items
    )
    assert any(isinstance(item, Box) and item.title.startswith("rank 299,") for item in scene.items)
    assert len(svg(scene)) < 800_000


def test_hostile_names_are_text() -> None:
    name = "<script>alert(1)</script>\u202e\x1b[31m" + "x" * 500
    rows = [{"rank": 0, "timer": name, "spent": 1.0, "starts": [], "ends": []}]
    text = timeline_svg(rows)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    ET.fromstring(text)
    assert text == timeline_svg(rows)
    ET.fromstring(timeline_svg([]))
    assert len(GROUPS) == 4
