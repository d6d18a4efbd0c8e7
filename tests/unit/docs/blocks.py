"""Code blocks of the documentation, and the commands in them."""

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from fabtui.cli.parser import COMMANDS, FURTHER

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [
        *(ROOT / "docs").glob("**/*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "recordings/README.md")),
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

#: Languages of blocks that hold commands; an indented block has none.
SHELL = ("", "sh", "console")
_MARKER = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
_WORDS = {*COMMANDS, *FURTHER}


class Block(NamedTuple):
    """A code block.

    Attributes:
        place: Page and line.
        language: What follows the fence; empty for an indented block.
        text: The content.
        reason: Why it cannot run here, from the comment above it; empty if it can.
    """

    place: str
    language: str
    text: str
    reason: str

    def statements(self) -> list[str]:
        """Return the commands of a shell block; in a console block these follow a dollar sign."""
        joined = self._joined().splitlines()
        if any(line.startswith("$ ") for line in joined):
            joined = [line[2:] for line in joined if line.startswith("$ ")]
        return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]

    def _joined(self) -> str:
        return re.sub(r"\\\n\s*", " ", self.text)

    def transcript(self) -> list[tuple[str, str]]:
        parts = re.split(r"^\$ (.*)\n", self._joined(), flags=re.MULTILINE)
        return list(zip(parts[1::2], parts[2::2], strict=True))


@functools.cache
def _tokens(name: str) -> list[Token]:
    return MarkdownIt().enable("table").parse((ROOT / name).read_text())


def blocks(name: str) -> Iterator[Block]:
    reason = ""
    for token in _tokens(name):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            yield Block(f"{name}:{token.map[0] + 1}", token.info.strip(), token.content, reason)
        if token.type not in ("list_item_open", "bullet_list_open", "ordered_list_open"):
            found = _MARKER.match(token.content) if token.type == "html_block" else None
            reason = " ".join(found[1].split()) if found else ""


def inline_commands(name: str) -> Iterator[str]:
    for token in _tokens(name):
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("fabtui "):
                yield child.content


def commands(statement: str) -> list[list[str]]:
    """Return the words of each simple command of a statement, without redirections.

    Raises:
        ValueError: A quote is not closed.
    """
    lexer = shlex.shlex(statement, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if set(word) <= set("<>&") and set(word) & set("<>"):
            skip = True
            if found[-1][-1:] in (["1"], ["2"]):
                found[-1].pop()
        elif set(word) <= set("();|&"):
            found.append([])
        elif skip:
            skip = False
        else:
            found[-1].append(word)
    return [words for words in found if words]


def arguments(words: list[str]) -> list[str] | None:
    """Return the arguments of fabtui in the words of a command or a line of output; None if it is not started."""
    for place, word in enumerate(words):
        rest = words[place + 1 :]
        is_fabtui = word.rpartition("/")[2] in ("fabtui", "fabtui.pyz")
        if is_fabtui and (place == 0 or not rest or rest[0] in _WORDS or rest[0].startswith("-")):
            return rest
    return None
