"""Prefixes before each line hide neither a format nor a value: launchers, dates, logging frameworks, mail, colours."""

import functools
from collections.abc import Callable

import pytest

from fabtui.importers.catalogue import recognise
from fabtui.importers.result import Result, read
from fabtui.importers.sources import Source, sources
from fabtui_node.parsers.base import Format

from .places import SAMPLES, of_text, start_of

#: A function of a line's number and the line, by what puts such a prefix there.
PREFIXES: dict[str, Callable[[int, str], str]] = {
    "torch": lambda at, line: f"[rank3]: {line}",
    "mpirun": lambda at, line: f"[1,0]<stdout>:{line}",
    "srun": lambda at, line: f"3: {line}",
    "pdsh": lambda at, line: f"n001: {line}",
    "kubectl": lambda at, line: f"[pod/worker-0/main] {line}",
    "ray": lambda at, line: f"(Worker pid=1234, ip=192.0.2.1) {line}",
    "mail": lambda at, line: f"> > {line}",
    "date": lambda at, line: f"[2026-05-01 12:00:{at % 60:02},123] {line}",
    "container": lambda at, line: f"2026-05-01T12:00:{at % 60:02}.123456789Z stdout F {line}",
    "logging": lambda at, line: f"2026-05-01 12:00:{at % 60:02},123 - INFO - {line}",
    "loguru": lambda at, line: f"2026-05-01 12:00:{at % 60:02}.123 | INFO     | __main__:run:12 - {line}",
    "deepspeed": lambda at, line: f"[2026-05-01 12:00:{at % 60:02},123] [INFO] [bench.py:12:main] {line}",
    "syslog": lambda at, line: f"May  1 12:00:{at % 60:02} n001 job[123]: {line}",
    "colour": lambda at, line: f"\x1b[36m[rank0]:\x1b[0m {line}",
    "grep": lambda at, line: f"slurm-12.out:{line}",
    "numbers": lambda at, line: f"{at + 1:6d}\t{line}",
    "indent": lambda at, line: f"    {line}",
    "date and rank": lambda at, line: f"2026-05-01T12:00:{at % 60:02}Z [rank3]: {line}",
    "web": lambda at, line: line.replace("  ", "\u00a0 ") + "  \r",
}
#: Texts with too little in them, and why.
SHORT = {
    "ibsim/ib_write_bw.txt": "a complaint alone",
}


@functools.cache
def samples() -> list[tuple[Format, str]]:
    found: dict[str, tuple[Format, str]] = {}
    packed = set()
    for path in sorted(SAMPLES.rglob("*.*")):
        name = str(path.relative_to(SAMPLES))
        if path.suffix in (".md", ".net") or name in SHORT:
            continue
        # Recordings and dumps of a folder have one format, and are large.
        if path.suffix in (".gz", ".pickle"):
            group = (path.parent, *path.suffixes[-2:])
            if group in packed:
                continue
            packed.add(group)
        (source,) = sources([str(path)])
        form = recognise(source.text).format
        if form is not None and source.text.count("\n") > 3:
            found.setdefault(form.name, (form, name))
    return list(found.values())


@functools.cache
def plain(name: str) -> tuple[Source, Result]:
    """Return an output without a prefix, and what is read from it; of a long one the first lines."""
    (source,) = sources([str(SAMPLES / name)])
    source = source._replace(text=start_of(source.text))
    return source, read(source)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_hides_nothing(prefix: str) -> None:
    """Outputs have the same values with a prefix; a log may have more: its dates and ranks."""
    assert len(samples()) > 30
    # Each prefix with a third of the formats, each format with a third of the prefixes.
    for form, name in samples()[list(PREFIXES).index(prefix) % 3 :: 3]:
        source, expected = plain(name)
        lines = source.text.removesuffix("\n").split("\n")
        text = "\n".join(PREFIXES[prefix](at, line) for at, line in enumerate(lines)) + "\n"
        result = read(source._replace(text=text))
        assert result.kind == form.name, name
        if not form.log:
            assert result.values == expected.values, name


def test_two_processes_that_print_at_once() -> None:
    lines = (SAMPLES / "ibsim/ibstat_n061.txt").read_text().splitlines()
    text = "".join(f"n060: {line}\nn061: {line}\n" for line in lines)
    both, alone = of_text(text), of_text("\n".join(lines) + "\n")
    assert both.kind == "ibstat"
    assert both.values["cas"] == alone.values["cas"] * 2
    assert "outputs of n060, n061 are read one after the other, without these names" in both.warnings
    assert not any("one after another" in warning for warning in alone.warnings)


def test_a_value_that_could_be_a_prefix_is_kept() -> None:
    text = "".join(f"GPU {gpu}: NVIDIA H200 (UUID: GPU-0dd4612e-2829-6556-0dbf-{gpu:012})\n" for gpu in range(8))
    assert [row["index"] for row in of_text(text).values["gpus"]] == list(range(8))
    kernel = "".join(
        f"[2026-05-01 12:00:0{at}] NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus.\n"
        for at in range(3)
    )
    assert [row["time"] for row in of_text(kernel).values["events"]] == [f"2026-05-01 12:00:0{at}" for at in range(3)]


def test_a_prefix_of_a_single_line() -> None:
    """The name of a host before a complaint hides it no more; the name of the program is a part of it."""
    lost = "Unable to determine the device handle for GPU0000:09:00.0: Unknown Error\n"
    assert of_text(f"n060: {lost}").values == of_text(lost).values
    assert "qperf: failed to connect to n061" in of_text("qperf: failed to connect to n061\n", "qperf").warnings


def test_marks_of_a_web_page() -> None:
    """Its markup takes the # of comments for headings."""
    nccl = (
        " nThread 1 nGpus 1 minBytes 32 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n\n"
        " Using devices\n   Rank  0 Pid 1213 on n060 device  0 [0x00] NVIDIA A100\n"
        "   Rank  1 Pid 1214 on n061 device  0 [0x00] NVIDIA A100\n\n"
        "       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
        "          32             8   float     sum    14.09    0.00    0.00  1e-07    13.86    0.00    0.00  1e-07\n"
        " Out of bounds values : 0 OK\n Avg bus bandwidth    : 0.005\n"
    )
    table = of_text(nccl).values["tables"][0]
    assert (table["ranks"], table["hosts"], table["average"]) == (2, ["n060", "n061"], 0.005)
    perftest = (
        "                    Send BW Test\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   "
        "MsgRate[Mpps]\n 1024       1000             0.00               5544.28\t\t   5.677340\n"
    )
    assert of_text(perftest).values["rows"][0]["average"] == 5544.28


def test_a_stamp_in_a_line_of_its_own_is_no_prefix() -> None:
    _, smi = (SAMPLES / "h200x8/smi.txt").read_text().split("\n", 1)
    assert of_text(smi).values["time"] == "Fri Nov 20 12:41:36 2026"


def test_a_named_format_is_read_without_prefixes() -> None:
    text = "".join(f"7: {line}\n" for line in (SAMPLES / "ibsim/perfquery_ok.txt").read_text().splitlines())
    assert of_text(text, "perfquery").values == of_text(text).values != {}


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["> ", "[1,0]", "2026-05-01 ", "a.b/", "INFO:", "a - ", "| ", "[", " ", "\x1b["])
@pytest.mark.timeout(60)
def test_long_lines_end_soon(piece: str) -> None:
    assert not of_text((piece * (1_000_000 // len(piece)) + "\n") * 3).known
