"""Pasted texts in all the dresses that they come in: the answer is the one to the bare text."""

import bz2
import gzip
import html
import io
import json
import lzma
import re
import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .test_cases import PASTED, Out, answer

#: Cases of different libraries, and the code of the first cause.
CASES = {
    "06-nvls-401.txt": "E80",
    "07-ipc-217.txt": "E82",
    "09-gloo-loopback.txt": "E103",
    "12-watchdog-stuck.txt": "E99",
    "17-mlx5-command.txt": "E105",
}


def each(prefix: str) -> Callable[[str], str]:
    """Return the variation that puts something before each line; ``{n}`` in it is the number of the line."""
    return lambda text: "".join(
        prefix.replace("{n}", str(number)) + line for number, line in enumerate(text.splitlines(keepends=True))
    )


def folded(width: int) -> Callable[[str], str]:
    return lambda text: "".join(
        f"{line[at : at + width]}\n" for line in text.splitlines() for at in range(0, len(line), width)
    )


def in_docker(text: str) -> str:
    entries = [
        {"log": line, "stream": "stderr", "time": "2026-11-20T10:12:01Z"} for line in text.splitlines(keepends=True)
    ]
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


TALK = "Hi all,\n\nour training stops on the second node. Did anybody see this before?\n\n"
VARIATIONS: dict[str, Callable[[str], str]] = {
    "quoted": each("> "),
    "quoted twice": each("> > "),
    "a table of a mail": each("| "),
    "ISO": each("2026-11-20T10:12:0{n}.123Z "),
    "syslog": each("Nov 20 10:12:0{n} n061 train[4151]: "),
    "ctime": each("[Fri Nov 20 10:12:0{n} 2026] "),
    "Ray": each("(RayTrainWorker pid=1601, ip=10.0.0.3) "),
    "MPI": each("[1,3]<stderr>:"),
    "srun": each("3: "),
    "kubectl": each("[pod/worker-0/main] "),
    "compose": each("worker-0  | "),
    "Docker": in_docker,
    "HTML": lambda text: f"<html><body><p>{TALK}</p><pre><code>{html.escape(text)}</code></pre></body></html>\n",
    "Markdown": lambda text: f"{TALK}```\n{text}```\n\nThanks!\n",
    "indented": lambda text: textwrap.indent(text, "        "),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "folded at 80": folded(80),
    "folded at 138": folded(138),
    "one line with escapes": lambda text: text.replace("\n", "\\n") + "\n",
}
#: Cases for long logs.
FEW = {name: CASES[name] for name in ("06-nvls-401.txt", "09-gloo-loopback.txt", "17-mlx5-command.txt")}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


def first_cause(text: str) -> str:
    found = re.search(r"cause: (E\d+)|\n +1 [^\n]*(?:\n(?! +2 )[^\n]*)*?means: (E\d+)", text)
    return (found[1] or found[2]) if found else ""


def packed(name: str, text: str) -> dict[str, bytes]:
    """Return a text in the archives that are read, by the name of the file."""
    data = text.encode()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return {
        f"{name}.gz": gzip.compress(data),
        f"{name}.xz": lzma.compress(data),
        f"{name}.bz2": bz2.compress(data),
        "logs.zip": whole.getvalue(),
        "bom.log": b"\xef\xbb\xbf" + data,
        "utf16.log": text.encode("utf-16"),
    }


@pytest.mark.parametrize("variation", VARIATIONS)
def test_a_text_in_another_dress(variation: str, capsys: Out) -> None:
    for name, code in CASES.items():
        Path("pasted.log").write_bytes(VARIATIONS[variation]((PASTED / name).read_text()).encode())
        given, text = answer(capsys, "explain", "pasted.log")
        assert (given, first_cause(text)) == (0, code), f"{name}\n{text}"


def test_a_text_in_an_archive_or_another_encoding(capsys: Out) -> None:
    for name, code in CASES.items():
        for file, data in packed("rank0.log", (PASTED / name).read_text()).items():
            Path(file).write_bytes(data)
            given, text = answer(capsys, "explain", file)
            assert (given, first_cause(text)) == (0, code), f"{name} as {file}\n{text}"


@pytest.mark.slow
def test_the_time_for_4_megabytes(capsys: Out) -> None:
    """The limit is 2 s of CPU; a machine that does other work at the time gets five times as long."""
    steps = "step 12 loss 2.31\n" * 120_000
    Path("pasted.log").write_text(f"{steps}{(PASTED / '06-nvls-401.txt').read_text()}{steps}")
    start = time.process_time()
    given, text = answer(capsys, "explain", "pasted.log")
    assert (given, first_cause(text)) == (0, CASES["06-nvls-401.txt"])
    assert time.process_time() - start < 10.0


@pytest.mark.slow
def test_the_time_for_4_megabytes_of_warnings(capsys: Out) -> None:
    """The same limit, for lines that no entry explains, with other numbers in each."""
    lines = (
        f"n{at % 64:03}:{at % 60000}:{at} [{at % 8}] site_net.cc:{at % 900} NCCL WARN SITE : queue {at % 213} full"
        for at in range(50_000)
    )
    Path("pasted.log").write_text("\n".join(lines))
    start = time.process_time()
    answer(capsys, "explain", "pasted.log")
    assert time.process_time() - start < 10.0


@pytest.mark.slow
def test_a_log_of_many_errors_has_the_causes_of_a_short_one(capsys: Out) -> None:
    for name, code in FEW.items():
        text = (PASTED / name).read_text()
        Path("pasted.log").write_text(f"{text}\n" * (1 + 3_000 // len(text.splitlines())))
        given, text = answer(capsys, "explain", "pasted.log")
        assert (given, first_cause(text)) == (0, code), f"{name}\n{text}"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, invalid usage, NCCL version 2.17.1\n"
            "Last error:\nDuplicate GPU detected : rank 3 and rank 2 both on CUDA device e2000",
            "E23",
        ),
        ("Libfabric error: (-12) x\nEFA internal error: (4112) Failure to post internal receive buffers", "E13"),
        ("libfabric:7:1::efa:mr:efa_mr_regattr():632<warn> Unable to register MR: Cannot allocate memory", "E13"),
        ('n1:4:4 [0] init.cc:126 NCCL WARN Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment', "E84"),
    ],
)
def test_lines_of_public_reports(text: str, code: str, capsys: Out) -> None:
    Path("pasted.log").write_text(f"{text}\n")
    given, shown = answer(capsys, "explain", "pasted.log")
    assert (given, first_cause(shown)) == (0, code), shown
