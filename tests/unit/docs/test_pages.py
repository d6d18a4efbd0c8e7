"""Pages of the documentation: all of them are in the navigation, and their links lead somewhere."""

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

from .blocks import NAMES, ROOT

PARSER = MarkdownIt().enable("table")


def links(page: Path) -> list[str]:
    inline = [child for token in PARSER.parse(page.read_text()) for child in token.children or ()]
    return [str(token.attrs[name]) for token in inline for name in ("href", "src") if name in token.attrs]


def anchors(page: Path) -> set[str]:
    tokens = PARSER.parse(page.read_text())
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_the_navigation_has_each_page_once() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(name.removeprefix("docs/") for name in NAMES if name.startswith("docs/"))


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in links(page):
        target = urlsplit(link)
        if target.scheme:
            assert target.scheme in ("https", "mailto"), link
            assert target.scheme == "mailto" or "." in target.netloc, link
            continue
        path = (page.parent / target.path).resolve() if target.path else page
        assert path.exists(), link
        # A link from the site to a file outside of its folder leads nowhere.
        assert not name.startswith("docs/") or path.is_relative_to(ROOT / "docs"), link
        assert not target.fragment or target.fragment in anchors(path), link


def test_a_job_that_hangs_is_asked_before_it_is_stopped() -> None:
    """Reading from the top on, a user saves the evidence first."""
    text = (ROOT / "docs" / "hang.md").read_text()
    head = text.partition("\n## ")[0]
    first = text.split("\n## ")[1]
    assert "Do not stop it yet" in head
    assert all(words in first for words in ("fabtui hang", "--save", "--source stacks", "--source flight"))
    # Testing busy GPUs needs the job stopped, or --force.
    assert min(text.index("--force"), text.index("## Then: stop it")) > text.index(first)
