"""Reports as HTML and Markdown: whole, the same each time, and harmless with hostile texts."""

import runpy
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.recording import apply_recorded, read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import step_text, title
from fabtui.presentation.verdict_line import sentence_of
from fabtui.report.contents import Against, document
from fabtui.report.document import Block, Document, Items, Lines, Paragraph, Section, Table
from fabtui.report.html import html
from fabtui.report.markdown import markdown
from fabtui.report.summary import summary
from fabtui.sanitize import printable
from tests.unit.report.hostile import TEXTS, hostile

ROOT = Path(__file__).resolve().parents[3]
RECORDINGS = sorted((ROOT / "tests" / "samples" / "sessions").glob("h*.jsonl.gz"))
#: Layers of pairs beside p2p.
OTHERS = (Layer.WORLD, Layer.LATENCY)
FAULTS = next(path for path in RECORDINGS if "faults" in path.name)
NAMES = [f"n00{node}:{index}" for node in range(2) for index in range(4)]
#: Elements of a report; any other came from a text.
ELEMENTS = frozenset(
    (
        *("html", "head", "meta", "title", "style", "script", "body", "dl", "dt", "dd", "main", "section", "article"),
        *("h1", "h2", "h3", "p", "a", "b", "span", "ul", "li", "pre", "details", "summary", "div", "output"),
        *("figure", "figcaption", "svg", "path", "text", "g", "image"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    )
)


def session(path: Path) -> Model:
    model = Model()
    for event in read_events(path):
        apply_recorded(model, event, path)
    return model


def shown(*blocks: Block) -> str:
    return markdown(Document("t", (), "v", "ok", (), [Section("s", "s", blocks)], 0))


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.words: list[str] = []
        self.scripts = 0
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.scripts += tag == "script"
        self.attributes |= {(name, value or "") for name, value in attrs}
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:60]}")


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_every_recording_gives_a_page_that_is_complete_small_and_the_same_each_time(path: Path) -> None:
    diagnosed = diagnose(session(path))
    found, again = document(diagnosed, [path.name]), document(diagnose(session(path)), [path.name])
    page = html(found)
    assert page == html(again)
    assert len(page.encode()) < 1_000_000
    parsed = Page(page)
    assert parsed.names <= ELEMENTS
    for name in ("findings", "layers", "collectives", "preflight", "run", "how-to-read"):
        assert f'id="{name}"' in page
    for one in diagnosed.findings:
        assert any(title(one) in words for words in parsed.words)
    text = markdown(found)
    assert text == markdown(again)
    assert "## Findings" in text


def test_findings_have_the_words_and_the_numbers_of_the_summary() -> None:
    model = session(FAULTS)
    printed, page = summary(diagnose(model)), Page(html(document(diagnose(model), ["a.jsonl.gz"])))
    words = "".join(page.words)
    begin, end = printed.index("findings: 3"), printed.index("what to do now")
    lines = [" ".join(line.split()).removeprefix("next: ") for line in printed[begin:end].splitlines() if line.strip()]
    for line in lines[1:]:
        # The title is apart from the id of the rule.
        assert line.rpartition(" FT")[0] in words if " FT" in line else line in words


def test_the_page_begins_with_the_verdict_the_parts_the_picture_the_findings_and_what_to_do() -> None:
    diagnosis = diagnose(session(FAULTS))
    page = html(document(diagnosis, ["a.jsonl.gz, SHA-256 00ff"], site="cluster-a"))
    body = page[page.index("<body>") :]
    commands = [step_text(one.next[0]) for one in diagnosis.findings]
    head = ["cluster-a", "2026-", "8 x NVIDIA H200 in 2 nodes", "driver 580.", "a.jsonl.gz, SHA-256 00ff"]
    wanted = [
        sentence_of(diagnosis),
        *head,
        'id="parts"',
        "<svg",
        'id="findings"',
        *commands,
        "what to do now",
        "<summary><h2",
    ]
    places = [body.index(escape(text) if text[0] != "<" and text[:3] != "id=" else text) for text in wanted]
    assert places == sorted(places)
    once = [f" {number}</b> {title(one)}" for number, one in enumerate(diagnosis.findings, 1)]
    assert [body.replace("&gt;", ">").count(text) for text in ("what to do now", *once)] == [1, 1, 1, 1]
    text = markdown(document(diagnosis, ["a.jsonl.gz"]))
    assert text.startswith(f"# {sentence_of(diagnosis)}\n")
    assert len(text.splitlines()) <= 100
    assert "Layers" in text.splitlines()[-1], "it names what is left out"


def test_the_health_of_each_pair_is_a_word() -> None:
    found = document(diagnose(session(FAULTS)), ["a"])
    layers = next(section for section in found.sections if section.name == "layers")
    lines = markdown(found._replace(sections=[layers._replace(folded=False)])).splitlines()
    at = next(at for at, line in enumerate(lines) if line.split() == ["n000:0", "n000:1", *NAMES[2:]])
    assert lines[at + 2].split() == ["n000:1", "ok", "·", *["ok"] * 4, "timed", "out", "ok"]


def test_only_the_own_script_may_run_and_nothing_may_be_fetched() -> None:
    page = Page(html(document(diagnose(session(FAULTS)), ["a"])))
    (policy,) = (value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert page.scripts == 1
    assert not [value for name, value in page.attributes if name in ("src", "href") and not value.startswith("#")]


def test_hostile_texts_stay_text_in_the_page() -> None:
    page = html(document(diagnose(hostile()), list(TEXTS), against=Against(TEXTS[0], hostile())))
    found = Page(page)
    assert found.names <= ELEMENTS
    assert found.scripts == 1
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert not [value for name, value in found.attributes if name in ("src", "href") and not value.startswith("#")]
    assert printable(page) == page
    assert not {"\u202e", "\u2066", "\u200b", "\x1b"} & set(page)
    assert any("<script>alert(1)</script>" in words for words in found.words)


def test_hostile_texts_stay_text_in_markdown() -> None:
    text = markdown(document(diagnose(hostile()), list(TEXTS), against=Against(TEXTS[0], hostile())))
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inner = [child for token in tokens for child in [token, *(token.children or ())]]
    kinds = {token.type for token in inner}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "s_open", "code_inline", "em_open"}
    assert [t.content for t in inner if t.type == "inline" and t.content.startswith("heading")] == []
    assert not {"\u202e", "\u2066", "\u200b", "\x1b"} & set(text)


def test_what_begins_a_line_is_no_markup_and_numbers_stay_as_they_are() -> None:
    texts = ["# a", "- b", "1. c", "> d", "===", "1.96 GB/s", "-1", "n[000-001]", "all_reduce", "_x_", "a:b"]
    text = shown(Items("", texts), Table("", [["+ a", "b|c"], ["# d", "-"]]))
    lines = [line.removeprefix("- ") for line in text.partition("## About")[0].splitlines() if line.startswith("- ")]
    assert lines == [
        *("\\# a", "\\- b", "1\\. c", "\\> d", "\\===", "1.96 GB/s", "-1", "n[000-001]", "all_reduce"),
        *("\\_x\\_", "a:b"),
    ]
    assert "| + a | b\\|c |" in text
    assert [token.type for token in MarkdownIt().enable("table").parse(text)].count("table_open") == 1


def test_lines_with_a_fence_stay_in_theirs() -> None:
    text = markdown(
        Document("t", (), "v", "ok", (), [Section("s", "s", [Lines("", ["````", "# no"]), Paragraph("p")])], 0)
    )
    assert "`````text\n````\n# no\n`````\n" in text


def test_changes_since_an_earlier_session_are_a_section() -> None:
    then, now = (session(next(path for path in RECORDINGS if name in path.name)) for name in ("2x4.j", "2x4-f"))
    found = document(diagnose(now), ["now"], against=Against("then", then))
    (section,) = (section for section in found.sections if section.name == "changes")
    text = markdown(found._replace(sections=[section]))
    assert "Something is worse: " in text
    assert "n001:0 > n000:0" in text


def synthetic(nodes: int, results: int | None) -> Model:
    made = runpy.run_path(str(ROOT / "bench" / "synthetic.py"))
    model = Model()
    for event in made["events_of"](made["Fabric"](nodes), results, 2000.0):
        model.apply(event)
    return model


@pytest.mark.slow
def test_the_page_of_a_large_fabric_stays_small() -> None:
    page = html(document(diagnose(synthetic(512, 20_000)), ["a.jsonl.gz"]))
    assert len(page.encode()) < 3_000_000
    assert '"data:image/png;base64,' in page
    assert Page(page).names <= ELEMENTS


@pytest.mark.slow
def test_the_page_with_every_layer_of_64_endpoints_is_below_1_mb() -> None:
    model = synthetic(8, None)
    whole = [replace(one, layer=layer) for layer in OTHERS for one in model.measurements() if one.layer is Layer.P2P]
    model.apply(Measured(measurements=whole, time=model.now))
    page = html(document(diagnose(model), ["a.jsonl.gz"]))
    assert page.count('class="panel"') >= 5
    assert len(page.encode()) < 1_000_000
