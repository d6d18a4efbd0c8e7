"""A terminal that keeps its text: enough of one for what Textual writes."""

import re
from codecs import getincrementaldecoder

_SEQUENCE = re.compile(
    r"\x1b\[([?<>=]?)([0-9;]*)[ $]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\"
    r"|\x1b[()].|\x1b[=>78cM]"
)
#: The beginning of a sequence whose end is still to come.
_BEGUN = re.compile(r"\x1b(?:\[[?<>=]?[0-9;]*[ $]*|\][^\x07\x1b]*|[PX^_][^\x1b]*|[()]?)?$")


class Terminal:
    """A terminal of a size: as in a real one, rows below the last one are the last one, and lines end at the edge."""

    def __init__(self, width: int = 400, height: int = 200) -> None:
        self.width, self.height = width, height
        self.lines = [[" "] * width for _ in range(height)]
        self.x = self.y = 0
        #: Number of characters, and of rows, that were beyond the edge.
        self.beyond = 0
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._left = ""

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip()

    def feed(self, data: bytes) -> None:
        text = self._left + self._decode(data)
        begun = _BEGUN.search(text)
        self._left = text[begun.start() :] if begun else ""
        text = text[: begun.start()] if begun else text
        at = 0
        while at < len(text):
            found = _SEQUENCE.match(text, at)
            if found is not None:
                at = found.end()
                if found.group(3) and not found.group(1):
                    self._control(found.group(3), [int(n or 0) for n in found.group(2).split(";")])
                continue
            self._put(text[at])
            at += 1

    def _control(self, letter: str, numbers: list[int]) -> None:
        if letter in "Hf":
            row, column = (*numbers, 1, 1)[:2] if len(numbers) > 1 else (numbers[0], 1)
            self.y, self.x = min(max(row, 1), self.height) - 1, max(column, 1) - 1
            self.beyond += row > self.height
        elif letter == "J":
            self.lines = [[" "] * self.width for _ in range(self.height)]

    def _put(self, character: str) -> None:
        if character == "\n":
            self.y = min(self.y + 1, self.height - 1)
            self.x = 0
        elif character == "\r":
            self.x = 0
        elif character >= " " and self.x < self.width:
            self.lines[self.y][self.x] = character
            self.x += 1
        elif character >= " ":
            self.beyond += 1
