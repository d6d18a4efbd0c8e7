"""Share of the failure texts of NCCL, PyTorch, perftest, Gloo and the EFA plug-in that `fabtui explain` knows.

    python bench/known_errors.py --source nccl=PATH [--source pytorch=PATH] ... [--list GROUP]

The texts are read from the sources, which are not part of this repository: a checkout or a bare git directory of each
library. Their placeholders get plausible values, and each text is wrapped as its library prints it, below the command
where it names no program. Then the mechanism of ``explain`` is asked about it alone. Each text belongs to one group:

- *cause*: an entry of the catalogue names the cause.
- *consequence*: an entry of the catalogue names where to look.
- *stage*: only the source file or a number identifies the failure.
- *nothing*: the text is unknown.

A text is also a *contradiction* if the entry belongs to other stages than the source file.
``--list GROUP`` prints the texts of a group: cause, consequence, stage, nothing or contradiction.
"""

import argparse
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from fabtui.diagnosis.knowledge.error_catalogue import Meaning
from fabtui.diagnosis.knowledge.failure_stage import is_stage, stage_of_file
from fabtui.diagnosis.knowledge.log_causes import LogReader

#: Least shares of the texts with a stage or better, and with a cause.
BAR_STAGE = 0.95
BAR_CAUSE = 0.40
GROUPS = ("cause", "consequence", "stage", "nothing", "contradiction")

_STRING = r'"((?:[^"\\]|\\.)*)"'
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DIRECTIVE = re.compile(r"%%|%[-+ #0]*(\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t|L)?([a-zA-Z])")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
#: Plausible values of expressions, the first that matches.
_VALUES = (
    (r"logPrefix|getNcclErrorDetail|includePrefix", ""),
    (r"strerror|getSocketError|gai_|\berr_?str\b|fi_strerror|errMsg|e\.what|dlerror", "Invalid argument"),
    (r"cudaGetErrorString|cuGetErrorString|ErrorName|nvmlErrorString|errStr", "invalid argument"),
    (r"[Ss]ocketToString|[Aa]ddr|peer\b|remote|[Ss]ock\b|\bline\b", "10.0.0.2<45763>"),
    (r"[Ss]tatusStr|wc_status", "remote access error"),
    (r"[Dd]ev(?:ice)?_?[Nn]ame|devName|ib_dev|hca|\bname\b", "mlx5_0"),
    (r"[Hh]ost", "n060"),
    (r"[Tt]imeout|elapsed|count\(\)", "600000"),
    (r"[Pp]ort\b|port_", "29500"),
    (r"\berrno\b|\berr\b|\berror\b|\bret\b|\bres\b|retcode|\brc\b|status", "22"),
)


class Text(NamedTuple):
    """A failure text: the file that has it, and the lines as they are printed."""

    file: str
    printed: str


class Library(NamedTuple):
    """Format of the failures that a library prints."""

    files: str  #: Regular expression of its source files.
    calls: str  #: Regular expression of the functions and macros that print.
    skipped: Callable[[str], int]  #: How many arguments come before the text.
    wrapped: Callable[[str, int, str], str]  #: Returns the printed lines of a text of a file's line.
    where: str  #: Where to get the source.
    stage: str = ""  #: The stage of all its failures; "" if it depends on the source file.
    #: What follows a text that reports a failure, within its block; other texts are notes.
    ends: str = ""


def tree(path: Path, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files of a checkout or of a bare git directory."""
    wanted = re.compile(pattern)
    if (path / "HEAD").exists() and (path / "objects").exists():
        packed = subprocess.run(["git", f"--git-dir={path}", "archive", "HEAD"], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            for member in archive:
                if wanted.search(member.name) and (file := archive.extractfile(member)):
                    yield member.name, file.read().decode(errors="replace")
        return
    for one in sorted(path.rglob("*")):
        name = one.relative_to(path).as_posix()
        if one.is_file() and wanted.search(name):
            yield name, one.read_text(errors="replace")


def texts(library: Library, path: Path) -> Iterator[Text]:
    """Yield the failure texts of a library, each once for a file."""
    files = dict(tree(path, library.files))
    users: dict[str, str] = {}
    for name, source in files.items():
        for macro in set(re.findall(r"\b[A-Z_]{4,}\b(?=\()", source)):
            if not name.endswith(".h"):
                users.setdefault(macro, name)
    seen = set()
    ends = re.compile(library.ends)
    for name, raw in files.items():
        source = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), raw)
        for call in re.finditer(rf"(?:{library.calls})\s*(\(|<<)", source):
            line = source.count("\n", 0, call.start()) + 1
            defined = _macro(source, call.start())
            if defined in re.findall(r"\w+", call[0]):
                continue
            arguments = _stream(source, call.end()) if call[1] == "<<" else _arguments(source, call.end())
            text = _rendered(arguments[library.skipped(call[0]) :]).strip()
            # A macro prints the file that uses it.
            file = users.get(defined, name)
            printed = library.wrapped(file, line, text)
            block = source[call.end() : call.end() + 1000].partition("}")[0]
            if re.search(r"[a-z]{3}", text) and ends.search(block) and library.wrapped(file, 0, text) not in seen:
                seen.add(library.wrapped(file, 0, text))
                yield Text(file, printed)


def _macro(source: str, at: int) -> str:
    """Return the name of the macro in whose definition a place is, or ""."""
    start = source.rfind("\n", 0, at) + 1
    while start > 1 and source[start - 2] == "\\":
        start = source.rfind("\n", 0, start - 1) + 1
    found = re.match(r"\s*#\s*define\s+(\w+)", source[start:at])
    return found[1] if found else ""


def _arguments(source: str, at: int) -> list[str]:
    """Return the arguments of a call, whose text begins after its parenthesis."""
    found, depth, start = [], 1, at
    while at < len(source) and depth:
        if quoted := re.match(rf"{_STRING}|'(?:[^'\\]|\\.)+'", source[at : at + 4000]):
            at += quoted.end()
            continue
        char = source[at]
        depth += (char in "([{") - (char in ")]}")
        if (char == "," and depth == 1) or not depth:
            found.append(source[start:at])
            start = at + 1
        at += 1
    return found


def _stream(source: str, at: int) -> list[str]:
    end, parts = at, [""]
    while end < len(source) and source[end] != ";":
        quoted = re.match(_STRING, source[end : end + 4000])
        piece = quoted[0] if quoted else source[end]
        end += len(piece)
        if source.startswith("<<", end - len(piece)):
            parts.append("")
            end += 1
        else:
            parts[-1] += piece
    return parts


def _rendered(arguments: list[str]) -> str:
    """Return the text that arguments make: a format with its values, or parts one after the other."""
    if not arguments:
        return ""
    first, rest = arguments[0], list(arguments[1:])
    literal = _literal(first)
    if literal is not None and _DIRECTIVE.search(literal) and rest:
        return _DIRECTIVE.sub(lambda found: _directive(found, rest), literal)
    if literal is not None and "{" in literal and rest:
        return re.sub(r"\{[^{}]*\}", lambda _: _value(rest.pop(0)) if rest else "3", literal)
    return "".join(map(_part, arguments))


def _part(argument: str) -> str:
    literal = _literal(argument)
    if literal is not None:
        return _DIRECTIVE.sub(lambda found: _directive(found, []), literal)
    inner = re.match(r"\s*(?:[\w:]*(?:fmt::|c10::str|std::string|MakeString)\w*)\s*\(", argument)
    return _rendered(_arguments(argument, inner.end())) if inner else _value(argument)


def _literal(argument: str) -> str | None:
    """Return the text of adjacent string literals; macros between them are numbers or names. None without any."""
    if not re.match(rf"\s*(?:[A-Z_]+[A-Z0-9_]*\s*)*(?:{_STRING}|$)", argument) or '"' not in argument:
        return None
    # The macros of <inttypes.h> are the end of a directive; other names are text.
    parts = re.findall(rf"{_STRING}|(PRI[a-zX]\w+)|(\w+)", argument)
    return "".join(
        re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], ""), text)
        if not macro and not name
        else "d"
        if macro
        else name
        for text, macro, name in parts
    )


def _directive(found: re.Match[str], rest: list[str]) -> str:
    if found[0] == "%%":
        return "%"
    if found[1] == "*" and rest:
        rest.pop(0)
    kind = found[2]
    if kind == "m":
        return "Invalid argument"
    value = _value(rest.pop(0)) if rest else ""
    if kind == "s":
        return value or "name"
    if kind == "c":
        return "c"
    if kind in "xXp":
        return "0x7f01" if kind == "p" else "7f01"
    return value if value.isdecimal() else "1.5" if kind in "fg" else "3"


def _value(expression: str) -> str:
    if choice := re.search(rf"\?\s*{_STRING}\s*:", expression):
        return choice[1]
    return next((value for pattern, value in _VALUES if re.search(pattern, expression)), "3")


def _nccl(file: str, line: int, text: str) -> str:
    short = re.sub(r"^(?:src|contrib/\w+(?:/src)?)/", "", file)
    function = " (ncclFunction)" if line % 2 else ""
    return f"n060:4101:4190 [0] {short}:{line}{function} NCCL WARN {text}"


def _pytorch(file: str, line: int, text: str) -> str:
    name = Path(file).name
    if name in ("socket.cpp", "TCPStore.cpp", "TCPStoreBackend.cpp", "TCPStoreLibUvBackend.cpp"):
        if line % 2:
            return f"[rank3]:[E1120 10:12:01.123456789 {name}:{line}] [c10d] {text}"
        kind = "DistNetworkError" if name == "socket.cpp" else "DistStoreError"
        return f"[rank3]: torch.distributed.{kind}: {text}"
    if name.startswith("ProcessGroupNCCL"):
        return f"[rank3]:[E1120 10:12:01.123456789 {name}:{line}] [PG ID 0 PG GUID 0(default_pg) Rank 3] {text}"
    return f"[rank3]: RuntimeError: {text}"


def _gloo(file: str, line: int, text: str) -> str:
    return f"[rank3]: RuntimeError: [../third_party/gloo/{file}:{line}] {text}"


LIBRARIES = {
    "nccl": Library(
        r"^(?:src/(?!os/windows)|contrib/nccl_m2n/src|plugins/).*\.(?:cc|cpp|cu|h)$",
        r"\bWARN(?=\s*\()",
        lambda _: 0,
        _nccl,
        "github.com/NVIDIA/nccl",
    ),
    "pytorch": Library(
        r"torch/csrc/distributed/c10d/(?:ProcessGroup(?:NCCL|Gloo|Wrapper)?|NCCLUtils|TCPStore\w*|socket|Store|PrefixStore|"
        r"FileStore|Utils|GlooDeviceFactory)\.(?:cpp|hpp)$",
        r"\b(?:TORCH_CHECK(?:_WITH)?|C10_THROW_ERROR|C10D_ERROR|C10D_THROW_ERROR|recordError|LOG\((?:ERROR|FATAL)\)|"
        r"\w*[mM]sg\w* =\s*(?:fmt::format|c10::str))",
        lambda call: 1 if re.match(r"TORCH_CHECK|C10_THROW|C10D_THROW", call) else 0,
        _pytorch,
        "github.com/pytorch/pytorch (torch/csrc/distributed/c10d)",
    ),
    "perftest": Library(
        r"^src/.*\.[ch]$",
        r"\bfprintf(?=\s*\(\s*stderr)",
        lambda _: 1,
        lambda file, line, text: f"$ ib_write_bw -d mlx5_0 n061\n{text}",
        "github.com/linux-rdma/perftest",
        "perftest",
        r"\b(?:return|exit|goto)\b",
    ),
    "gloo": Library(
        r"^gloo/(?!test|benchmark|examples).*\.(?:cc|h)$",
        r"\b(?:GLOO_THROW\w*|GLOO_ERROR|GLOO_ERROR_MSG|GLOO_ENFORCE\w*|throw std::runtime_error|makeNetworkException)",
        lambda call: 2 if re.match(r"GLOO_ENFORCE_..\b", call) else 1 if call.startswith("GLOO_ENFORCE") else 0,
        _gloo,
        "github.com/pytorch/gloo",
        "gloo",
    ),
    "ofi": Library(
        r"^(?:src|include)/.*\.(?:cc|cpp|c|h)$",
        r"\bNCCL_OFI_WARN",
        lambda _: 0,
        lambda file, line, text: f"n060:4101:4190 [0] nccl_net_ofi_function:{line} NCCL WARN NET/OFI {text}",
        "github.com/aws/aws-ofi-nccl",
        "ofi",
    ),
}


def answer(text: Text, library: str) -> tuple[str, Meaning | None]:
    """Return the group of a text, and its meaning."""
    reader = LogReader()
    reader.add(text.printed)
    found = reader.result()
    meaning = next((one.meaning for one in (*found.causes, *found.notices)), None)
    if meaning is None:
        return "nothing", None
    file = Path(text.file).name if library == "pytorch" else text.file
    stage = stage_of_file(file)
    own = LIBRARIES[library].stage or (stage and stage.id)
    by_stage = is_stage(meaning)
    known = (meaning.id.removeprefix("stage-"),) if by_stage else meaning.stages
    if known and own and own not in known:
        return "contradiction", meaning
    if by_stage:
        return "stage", meaning
    return ("cause" if meaning.role == "cause" else "consequence"), meaning


def main() -> int:
    """Print the figures; return 1 if a bar is missed, 2 without sources."""
    parser = argparse.ArgumentParser(description="How many failure texts of the libraries `fabtui explain` knows.")
    parser.add_argument("--source", action="append", default=[], metavar="LIBRARY=PATH")
    parser.add_argument("--list", choices=GROUPS, help="print the texts of a group")
    args = parser.parse_args()
    sources = [one.partition("=") for one in args.source]
    if not sources or any(name not in LIBRARIES or not Path(path).is_dir() for name, _, path in sources):
        print("known_errors: name the sources, each a checkout or a bare git directory:", file=sys.stderr)
        for name, library in LIBRARIES.items():
            print(f"  --source {name}=PATH   {library.where}", file=sys.stderr)
        return 2
    total: Counter[str] = Counter()
    print(f"{'':9} {'texts':>6} " + " ".join(f"{group:>13}" for group in GROUPS))
    for name, _, path in sources:
        counted: Counter[str] = Counter()
        for text in texts(LIBRARIES[name], Path(path)):
            group, meaning = answer(text, name)
            counted[group] += 1
            if group == args.list:
                print(f"{name} {text.file} {meaning.id if meaning else '-'}: {text.printed}")
        print(_row(name, counted))
        total += counted
    print(_row("all", total))
    every = total.total()
    missed = total["nothing"] > (1 - BAR_STAGE) * every or total["cause"] < BAR_CAUSE * every or total["contradiction"]
    print(f"bars: stage or better {BAR_STAGE:.0%}, cause {BAR_CAUSE:.0%}, no contradiction")
    print("MISSED" if missed else "held")
    return int(bool(missed))


def _row(name: str, counted: Counter[str]) -> str:
    every = max(counted.total(), 1)
    shares = " ".join(f"{counted[group]:6} ({counted[group] / every:4.0%})" for group in GROUPS)
    return f"{name:9} {every:6} {shares}"


if __name__ == "__main__":
    sys.exit(main())
