"""Lines that sound like a failure, whatever program printed them: how loud, by whom, and what they advise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

from fabtui.sanitize import one_line

#: Length of a line that is examined, and of a quotation.
_LONGEST = 1_000
_QUOTED = 300
#: Maximum number of lines below a failure that belong to its message.
AROUND = 12
#: A line of a level that reports no failure, at its beginning: tags of processes and stamps may come before the level.
_INFORMS = re.compile(r"^.{0,100}?(?:\b(?:INFO|DEBUG|TRACE|DIAG|NOTICE)\b|\[[ID]\d{3,4} |^I\d{4} )", re.ASCII)
_LOUD = re.compile(
    r"(?:^|[\s\[|:(])(?:ERROR|CRITICAL|FATAL|[Ff]atal(?: error)?|panic|error)(?:[\s\]|:)]|$)|^\[?[EF]\d{3,4} \d\d:\d\d|\[E\d{3} "
    r"|(?:^|[\s\].])[A-Za-z_]{0,60}(?:Error|Exception|Interrupt)(?:: |$)|\bterminate called\b|\bSegmentation fault\b"
    r"|(?:^|[\s:])Killed$|\b[Aa]ssert(?:ion)?\b.{0,200}\bfail|\bcore dumped\b|\bPANIC\b|\bNCCL (?:WARN|ERROR)\b"
)
_SOUNDS = re.compile(
    r"\b(?:fail(?:s|ed|ure|ing)?|cannot|can't|could ?n[o']t|unable|refused|denied|disagrees?|mismatch\w{0,3}|unknown symbol"
    r"|un(?:reachable|resolved|supported|recognized)|timed? ?out|timeout|not (?:found|available|supported|permitted|allowed"
    r"|enough|responding|compatible|installed|loaded|match)|no such|don't match|does not (?:match|support|exist|have)|missing"
    r"|invalid|illegal|out of (?:memory|range|resource\w{0,2})|insufficient|exceed\w{0,3}|abort\w{0,3}|corrupt\w{0,3}"
    r"|stuck|hang(?:s|ing)?|hung|lost|broken|undefined|error|exception|fatal|killed|dead|died|crash\w{0,3}|deadlock\w{0,3})\b"
    r"|错误|失败|超时",
    re.I,
)
#: Each line that sounds like a failure matches one of these.
SOUNDS = (_LOUD.pattern, f"(?i){_SOUNDS.pattern}")
#: A count or option that only names a failure, and what is tried again.
_HARMLESS = re.compile(
    r"\b(?:0|no|without) (?:errors?|failures?|problems?|issues?)\b|\b(?:errors?|failed|failures?|lost|timeouts?)\s{0,3}[=:]\s{0,3}"
    r"(?:0\b|None|False|off)|[A-Z]\w{2,60}Warning\b|warnings\.warn|--?[\w-]{0,40}(?:timeout|error|fail)\w{0,20}"
    r"|\b(?:timeout|time_out|error_\w{1,30})\s{0,3}[=:]|\bretrying\b|\bwill retry\b|\bretries? [1-9]|\bfall(?:s|ing)? ?back\b|\bignored?\b"
    r"|\b(?:NCCL|TORCH|GLOO|UCX|VLLM|SGLANG)_\w{0,40}(?:TIMEOUT|ERROR)|\bdeprecated\b|\b\d{1,20} passed\b|\bexpected_|\(timeout\b|\btimeout \d|^ibwarn: ",
    re.I,
)
#: What launchers, wrappers and parents print about a failure that another line names.
_FRAME = re.compile(
    r"See (?:root cause|stack trace|above)|failed to start\b|initialization failed due to|died unexpectedly|hit an exception"
    r"|ChildFailedError|Traceback|[Ee]xit(?:ed|ing)? (?:with |code)|exitcode|exit status|returned non-zero|Root Cause|noticed that process"
    r"|\bSIGTERM\b|terminate called|^[-=*^~\s]{3,}$|EngineDeadError|EngineCore encountered|encountered (?:a fatal|an issue)|Job step aborted"
    r"|process group (?:has NOT|was not)|leaked (?:semaphore|shared_memory)|resource_tracker|stack(?:trace| trace)|FAILED$|Shutdown initiated"
    r"|The above exception|During handling|[Ww]orker .{0,80}(?:died|dead)|Failed with result|Control process|Received signal|Process received signal"
    r"|Error in (?:sys|exception)|Fatal Python error: Aborted|MPI_ABORT|child \d+ failed|printing contents of"
    r"|required plugin|spank_task|Exited with|detected by watchdog|[Ff]ailures?:|time +:|\bhost +:|error_file|Parent process|"
    r"^.{0,120}\bFile \"[^\"]{1,200}\", line \d",
)
#: Lines that explain the signs of a table, and records of JSON, whose texts are quoted.
_NO_MESSAGE = re.compile(r"\s{0,8}(?:\{|\[\{|\S{1,12}\s{1,8}[=-]\s|Key: |usage:|\s{0,8}--?\w)")
_CODE_ABOVE = re.compile(r"\bFile [\"\u201c][^\"\u201d]{1,300}[\"\u201d], line (\d{1,7}), in (\S{1,80})")
_FILE_ABOVE = re.compile(r"\bFile [\"\u201c]([^\"\u201d]{1,300})[\"\u201d], line (\d{1,7}), in (\S{1,80})")
#: The exception that a traceback ends with, behind labels of processes and of logging frameworks.
EXCEPTION = re.compile(
    r"^(?:.{0,160}?[\])|] {1,4}|.{0,60}: )?((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt|Timeout|Expired|NotFound|Failure))(?:: (.{0,600})|$)"
)
#: Who printed a line, the first that fits.
_PRINTERS = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"\b([\w./+-]{2,80}\.(?:cpp|cc|cu|cuh|c|hpp|h|py|go|rs):\d{1,6})\b",
        r"\b([\w./+-]{2,80}\.(?:cpp|cc|cu|cuh|c|hpp|h)(?::\w{1,60})?[: ]\d{1,6})\b",
        r"\((\w{2,40}(?:_\w{1,20})?) pid=\d{1,9}",
        r"^(?:\S{1,60} ){0,4}?(?!error|warning|fatal)([a-z][\w/-]{2,40})(?:\[\d{1,9}\])?: ",
    )
)
_ADVICE = re.compile(
    r"\b[Pp]lease (?!note|see the (?:above|stack)|report)\w|\b[Tt]ry (?:to|setting|\w{2,20}ing|again with|[A-Z_]{3,40}=|-)|\b[Cc]onsider \w+ing\b"
    r"|\b(?:[Ss]et(?:ting)?|[Uu]se|[Ee]xport|[Uu]nset|[Pp]ass|[Aa]dd|[Ss]pecify|[Ee]nable|[Dd]isable) (?:the )?(?:environment variable )?[`'\"]?(?:--?[\w-]{3,60}|[A-Z][A-Z0-9]{1,12}_[A-Z0-9_]{2,60})"
    r"|\b(?:[Ii]ncreas|[Dd]ecreas|[Rr]educ|[Rr]ais|[Ll]ower)(?:e|ing) (?:the )?[`'\"]?\w|\b(?:[Cc]heck|[Vv]erify|[Mm]ake sure|[Ee]nsure) (?:the|that|if|your|whether|[A-Z`'])"
    r"|\bpip install\b|\b(?:apt|dnf|yum|conda) install\b|\b[Uu]pgrad(?:e|ing) (?:to|your|the)|\b[Dd]owngrad\w{1,3}\b|\b(?:should|must|need(?:s)? to|has to|have to|can) be (?:set|installed|enabled|disabled|increased|greater|less|at least|divisible|a multiple|specified|used|one of)"
    r"|\b[Yy]ou (?:can|may|should|must|need)\b|\bHINT\b|\bHint:|\brequires? \w|\b(?:supported|available|valid|expected) (?:\w+ )?(?:are|is|values)\b|\b--[a-z][\w-]{2,60}\b"
    r"|\b[A-Z][A-Z0-9]{1,12}_[A-Z0-9_]{2,60}=\S|\bmight be because\b|\busually (?:means|caused)\b|\binstead\b"
)
_SENTENCE = re.compile(r"(?<=[.!;]) +(?=[A-Z`\"'])|\n")


class Loudness(IntEnum):
    """How clearly a line names a failure."""

    NONE = 0
    FRAME = 1  #: It reports the failure of another.
    WORDS = 2  #: It has words of failures.
    LOUD = 3  #: It is an exception, or has the level of an error.


def loudness(line: str) -> Loudness:
    """Return how clearly a line names a failure."""
    text = line[:_LONGEST]
    loud = _LOUD.search(text)
    if _NO_MESSAGE.match(text):
        return Loudness.NONE
    if (
        (loud is None and not _SOUNDS.search(text))
        or _INFORMS.search(text)
        or (_HARMLESS.search(text) and not EXCEPTION.match(text))
    ):
        return Loudness.NONE
    if _FRAME.search(text):
        return Loudness.FRAME
    return Loudness.LOUD if loud else Loudness.WORDS


def printer(line: str, above: Sequence[str] = ()) -> str:
    """Return what printed a line: the function that raised it by the lines above it, a source file, a program; or ""."""
    if EXCEPTION.match(line):
        for other in reversed(above):
            if frame := _FILE_ABOVE.search(other):
                return f"{frame[1].rpartition('site-packages/')[2]}:{frame[2]}, in {frame[3]}"
    return next((found[1] for form in _PRINTERS if (found := form.search(line[:_QUOTED]))), "")


def said(line: str, above: Sequence[str] = ()) -> str:
    """Return what a line says; an assertion without a message is the source above it."""
    message = EXCEPTION.match(line)
    if message is not None and message[1].endswith("AssertionError") and not message[2]:
        code = next((other for other in reversed(above) if "assert " in other), "")
        return f"{line}: {code[code.index('assert ') :]}" if code else line
    return line


def is_code(above: str, line: str) -> bool:
    """Return True if a line shows the source of the frame of a traceback above it."""
    return _CODE_ABOVE.search(above) is not None and EXCEPTION.match(line) is None


def advised(lines: Sequence[str]) -> str:
    """Return what the sentences of a message advise, in its own words, or ""."""
    sentences = (part.strip() for line in lines for part in _SENTENCE.split(line[:_LONGEST]))
    parts = dict.fromkeys(part for part in sentences if part and _ADVICE.search(part))
    # A message that is one sentence is quoted as the line.
    return "" if list(parts) == [lines[0].strip()] else one_line(" ".join(parts), _QUOTED)
