"""Pictures as SVG: well-formed, harmless, the same each time, and small."""

import base64
import itertools
import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from fabtui.errors import InputError
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.pictures.scene import colors, css, css_class

from .decoding import busbw_png, busbw_svg, connectivity_png, connectivity_svg, decoded, matrix_png, matrix_svg

SVG = "{http://www.w3.org/2000/svg}"
Maker = Callable[[], Any]
#: Maximum size (bytes) of the matrix of 1,024 endpoints.
LARGEST_SVG, LARGEST_PNG = 400_000, 400_000
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]></title></svg>",
    "&lt;b&gt; &amp; &#x1b;",
    "\x1b[31mred\x07 \u202egnp.exe\u2066",
    "tab\tline\nline\x00end",
    "\ud800 lone",
    "javascript:alert(1)",
    "n" * 5000,
)


def titles(text: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(text).iter(f"{SVG}title")]


def fabric(maker: Any, nodes: int, gpus: int = 8) -> Model:
    """A fabric with a failed, a slow and a timed out pair; of more than 64 endpoints, each with its neighbours."""
    names = [f"n{number:03d}" for number in range(nodes)]
    maker.start(names).endpoints(dict.fromkeys(names, gpus))
    ends = [f"{name}:{index}" for name in names for index in range(gpus)]
    bad = {(ends[0], ends[-1]): Verdict.FAILED, (ends[1], ends[-1]): Verdict.TIMEOUT}
    found = [
        Measurement(Layer.P2P, src, dst, verdict, None if verdict.bad else 40.0, "GB/s", 1 << 28, how="test")
        for (at, src), (to, dst) in itertools.permutations(enumerate(ends), 2)
        if len(ends) <= 64 or abs(to - at) < 16 or (src, dst) in bad
        if (verdict := bad.get((src, dst), Verdict.OK))
    ]
    found.append(Measurement(Layer.P2P, ends[2], ends[-1], Verdict.OK, 1.0, "GB/s", 1 << 28, how="test"))
    maker.events.append(Measured(found, seq=len(maker.events), time=maker.now))
    model: Model = maker.model()
    return model


def test_a_matrix_has_a_tooltip_per_pair(make_model: Maker) -> None:
    model = make_model().start(["a", "b"]).endpoints({"a": 1, "b": 1}).pairs(["a:0", "b:0"]).model()
    text = matrix_svg(model, "p2p", "value")
    assert titles(text) == ["a:0 > b:0: ok, 2.00 GB/s", "b:0 > a:0: ok, 2.00 GB/s"]
    picture = ElementTree.fromstring(text)
    assert picture.get("role") == "img"
    assert "2 ok" in (picture.get("aria-label") or "")
    assert json.loads(picture.get("data-names") or "") == ["a:0", "b:0"]


def test_the_legend_has_unit_size_method_and_counts(make_model: Maker) -> None:
    text = "".join(ElementTree.fromstring(matrix_svg(fabric(make_model(), 2, 4), "p2p", "value")).itertext())
    assert "GB/s at 256 MiB; test" in text
    assert "GB/s at 256 MiB, logarithmic scale" in text
    for words in ("slow 1", "timed out 1", "failed 1"):
        assert words in text


def test_verdicts_differ_without_colour(make_model: Maker) -> None:
    picture = ElementTree.fromstring(matrix_svg(fabric(make_model(), 2, 4), "p2p"))
    marks = {
        path.get("class"): path.get("d", "") for path in picture.iter(f"{SVG}path") if path.get("stroke-width") == ".11"
    }
    drawn = [marks[css_class(f"{name}-ink") + "-line"].partition("m")[2] for name in ("failed", "timeout", "slow")]
    assert len(set(drawn)) == 3
    small = ElementTree.fromstring(matrix_svg(fabric(make_model(), 32), "p2p"))
    stripes = [path for path in small.iter(f"{SVG}path") if path.get("stroke-width") == ".2"]
    assert [path.get("d") for path in stripes] == ["M255 1.5h1"], "a timeout is striped where marks have no room"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_stay_text(make_model: Maker, name: str) -> None:
    maker = make_model().start([name, "b"]).endpoints({name: 1, "b": 1}).pairs([f"{name}:0", "b:0"])
    maker.measured("p2p", "b:0", f"{name}:0", "failed", error=name, how=name, transport=name)
    maker.measured("ping", name, "b", "failed", src_addr=name, dst_addr=name[::-1], unit="ms", error=name, how=name)
    maker.measured("busbw", name, name, value=3.0, unit="GB/s", bytes=1 << 20, arm=name)
    maker.measured("busbw", "all", "all", value=3.0, unit="GB/s", bytes=1 << 20)
    model = maker.model()
    pictures = [matrix_svg(model, layer, "verdict") for layer in ("p2p", "health", "transport", "ping", "busbw")]
    pictures += [matrix_svg(model, "p2p", "value"), connectivity_svg(model), busbw_svg(model)]
    for text in pictures:
        root = ElementTree.fromstring(text)
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "g", "path", "text", "title"}
        attributes = {key for element in root.iter() for key in element.attrib}
        assert not [key for key in attributes if key.startswith("on") or key.endswith("href")]
        assert all(character.isprintable() for character in text.replace("\n", "")), "no control or bidi character"
        assert len(text) < 60_000, "long names are cut"
    for data in (matrix_png(model, "p2p"), connectivity_png(model), busbw_png(model)):
        decoded(data)


def test_the_same_model_gives_the_same_bytes(make_model: Maker) -> None:
    model, again = fabric(make_model(), 2), fabric(make_model(), 2)
    for mode in ("verdict", "value"):
        assert matrix_svg(model, "p2p", mode) == matrix_svg(again, "p2p", mode)
        assert matrix_png(model, "p2p", mode) == matrix_png(again, "p2p", mode)


@pytest.mark.parametrize("nodes", [2, 8])
def test_each_pair_is_in_the_picture(make_model: Maker, nodes: int) -> None:
    """The rectangles of a colour cover the cells of its verdict at all sizes."""
    model = fabric(make_model(), nodes)
    size = nodes * 8
    cells = next(group for group in ElementTree.fromstring(matrix_svg(model, "p2p")).iter(f"{SVG}g"))
    (good,) = (path.get("d", "") for path in cells if path.get("class") == css_class("good"))
    covered = sum(map(int, re.findall(r"M\d+ \d+h(\d+)v1h", good)))
    assert covered == size * (size - 1) - 3


@pytest.mark.slow
def test_1024_endpoints_are_small(make_model: Maker) -> None:
    model = fabric(make_model(), 128)
    text, data = matrix_svg(model, "p2p", "value"), matrix_png(model, "p2p", "verdict")
    assert len(text) < LARGEST_SVG
    assert len(data) < LARGEST_PNG
    (image,) = ElementTree.fromstring(text).iter(f"{SVG}image")
    assert decoded(base64.b64decode((image.get("href") or "").partition(",")[2])).width == 1024
    assert titles(text) == ["n000:0 > n127:7: failed", "n000:1 > n127:7: timed out", "n000:2 > n127:7: slow, 1.00 GB/s"]
    whole = decoded(data)
    assert whole.width > 1024


def test_more_endpoints_are_drawn_by_node(make_model: Maker) -> None:
    names = [f"n{number:03d}" for number in range(130)]
    maker = make_model().start(names).endpoints(dict.fromkeys(names, 8))
    maker.measured("p2p", "n000:0", "n001:7", value=40.0, unit="GB/s").measured("p2p", "n000:1", "n001:6", "failed")
    text = matrix_svg(maker.model(), "p2p")
    assert titles(text) == ["n000 > n001: worst pair failed"]
    assert "1040 endpoints: a cell is the worst pair of two nodes" in text


def test_layers_of_addresses_and_nodes_fill_the_cells_of_their_endpoints(make_model: Maker) -> None:
    maker = make_model().start(["a", "b"]).endpoints({"a": 2, "b": 2})
    maker.measured("ping", "a", "b", value=0.1, unit="ms", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    maker.measured("busbw", "a", "b", "failed", unit="GB/s", bytes=1 << 20)
    model = maker.model()
    assert sorted(titles(matrix_svg(model, "ping"))) == [
        f"a:{i} > b:{j}: ok, 0.10 ms" for i in range(2) for j in range(2)
    ]
    assert len(titles(matrix_svg(model, "busbw"))) == 8, "both directions of a group of two nodes"
    health = ElementTree.fromstring(matrix_svg(model, "health"))
    assert "8 failed" in (health.get("aria-label") or "")


def test_without_values_there_is_no_scale(make_model: Maker) -> None:
    maker = make_model().start(["a", "b"]).endpoints({"a": 1, "b": 1}).measured("p2p", "a:0", "b:0", bytes=1 << 20)
    text = "".join(ElementTree.fromstring(matrix_svg(maker.model(), "p2p", "value")).itertext())
    assert "scale" not in text
    assert "ok 1" in text


def test_labels_omit_the_domain_that_all_nodes_share(make_model: Maker) -> None:
    nodes = ["a.rack.example.org", "b.rack.example.org"]
    maker = make_model().start(nodes).endpoints(dict.fromkeys(nodes, 1)).pairs([f"{node}:0" for node in nodes])
    maker.measured("ping", *nodes, value=0.1, unit="ms", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    assert titles(matrix_svg(maker.model(), "p2p"))[0] == "a:0 > b:0: ok, 2.00 GB/s"
    assert titles(connectivity_svg(maker.model())) == ["a 10.0.0.0/24 > b 10.0.0.0/24: ok, 0.10 ms"]


def test_nodes_that_are_gone_and_pairs_left_out_are_marked(make_model: Maker) -> None:
    maker = make_model().start(["a", "b", "c"]).endpoints({"a": 1, "b": 1, "c": 0}).pairs(["a:0", "b:0"])
    maker.add("plan", slow_below=0.7, untested=[["a:0", "b:0", "not wanted"]])
    label = ElementTree.fromstring(matrix_svg(maker.model(), "p2p")).get("aria-label") or ""
    assert "2 ok" in label
    assert "4 node gone" in label


def test_curves_of_many_groups_stay_readable(make_model: Maker) -> None:
    maker = make_model().start(["a"]).endpoints({"a": 8})
    for group in ("all", *(f"first{count}" for count in range(2, 30))):
        for size in (1 << 20, 1 << 24, 1 << 30):
            maker.measured("busbw", group, group, value=size / 2e7, unit="GB/s", bytes=size)
    maker.measured("busbw", "all", "all", "failed", unit="GB/s", bytes=1 << 31)
    text = "".join(ElementTree.fromstring(busbw_svg(maker.model())).itertext())
    assert "21 faster groups" in text
    assert "X at the bottom: not passed" in text
    assert "1 GiB" in text


@pytest.mark.parametrize("value", [float("nan"), -1.0, 0.0, 1e99, 5e-324])
def test_any_number_can_be_drawn(make_model: Maker, value: float) -> None:
    maker = make_model().start(["a", "b"]).endpoints({"a": 1, "b": 1}).pairs(["a:0", "b:0"])
    maker.measured("p2p", "a:0", "b:0", value=value, unit="GB/s", bytes=1 << 62)
    for size in (1000, 3000):
        maker.measured("busbw", "all", "all", value=value, unit="GB/s", bytes=size)
    for text in (matrix_svg(maker.model(), "p2p", "value"), busbw_svg(maker.model())):
        assert ElementTree.fromstring(text).tag == f"{SVG}svg"
        assert "nan" not in text.partition("<title>")[0]
    for data in (matrix_png(maker.model(), "p2p", "value"), busbw_png(maker.model())):
        assert decoded(data).width > 0


def test_the_size_of_a_single_point_is_named(make_model: Maker) -> None:
    maker = make_model().start(["a"]).endpoints({"a": 1})
    maker.measured("busbw", "all", "all", value=3.0, unit="GB/s", bytes=1000)
    assert "1000 B" in "".join(ElementTree.fromstring(busbw_svg(maker.model())).itertext())


def test_pictures_without_results_are_pictures(make_model: Maker) -> None:
    model = make_model().start([]).model()
    for text in (matrix_svg(model, "p2p"), matrix_svg(model, "health"), connectivity_svg(model), busbw_svg(model)):
        assert ElementTree.fromstring(text).tag == f"{SVG}svg"
    for data in (matrix_png(model, "p2p", "value"), connectivity_png(model), busbw_png(model)):
        assert decoded(data).width > 0


@pytest.mark.parametrize(("layer", "mode", "words"), [("p2q", "verdict", "p2q"), ("health", "value", "no values")])
def test_what_cannot_be_drawn_is_reported(make_model: Maker, layer: str, mode: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        matrix_svg(make_model().start([]).model(), layer, mode)


def test_a_page_can_give_every_colour_a_dark_one() -> None:
    rules = css("dark")
    for name in colors():
        assert f".{css_class(name)}{{fill:" in rules
    assert colors("dark").keys() == colors("light").keys()
